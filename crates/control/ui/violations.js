// The latest violations of promises. Hidden while there are none.

import { get } from "./api.js";
import { at, h, keep, say } from "./dom.js";
import { count, counted, time } from "./format.js";
import { hold } from "./moment.js";

const SHOWN = 10;
/** Number of polls of the page between two fetches. */
const EVERY = 5;
const COLUMNS = [["Tenant"], ["Began"], ["Late", "number"], ["Worst", "number"], ["Promised", "number wide"], ["Machine", "wide"]];
let body;
let looks = 0;

export function start() {
  body = h("tbody");
  const head = COLUMNS.map(([title, kind]) => h("th", { scope: "col", class: kind }, title));
  at("violations-table").append(h("table", { class: "cards" }, h("thead", {}, h("tr", {}, ...head)), body));
}

/** Makes a row, whose beginning is a link to that moment in the charts. */
function make({ began }) {
  // Where the table is a list of cards, each figure needs its name.
  const cells = COLUMNS.slice(1).map(([title, kind]) => h("td", { class: kind, "data-of": kind && title }));
  cells[0].append(h("button", { type: "button", title: "Show this moment in the charts", onclick: () => hold(began) }));
  return h("tr", {}, h("th", { scope: "row" }), ...cells);
}

const clock = (seconds) => new Date(seconds * 1000).toLocaleTimeString([], { hour12: false });

/** Says whether the machine had too little time in the late seconds. */
const machine = ({ late_seconds: late, starved_seconds: starved }) =>
  starved === 0 ? "had time" : starved === late ? "overcommitted" : `overcommitted in ${starved} of ${late} s`;

export async function look() {
  if (looks++ % EVERY !== 0) return;
  const { violations } = await get("/v1/violations");
  const now = Date.now() / 1000;
  at("violations").hidden = violations.length === 0;
  const latest = violations.slice(0, SHOWN).map((one) => ({ ...one, began: now - one.age }));
  // The beginning is known to about a second.
  const key = ({ tenant, began }) => `${Math.round(began / 4)} ${tenant}`;
  keep(body, latest, key, make, (row, of) => {
    const { percentile, latency_us: bound } = of.slo;
    const late = of.goes_on ? `${count(of.late_seconds)} s so far` : `${count(of.late_seconds)} s`;
    const [tenant, began, ...rest] = row.children;
    say(tenant, of.tenant);
    say(began.firstElementChild, clock(of.began));
    [late, time(of.worst_us), `p${percentile} ${time(bound)}`, machine(of)].forEach((text, n) => say(rest[n], text));
  });
  const all = violations.length;
  say(at("violations-note"), all > SHOWN ? `The last ${SHOWN} of ${counted(all, "violation")}; /v1/violations has all.` : "");
}
