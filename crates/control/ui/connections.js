// The list of connections. Fetched once, and then only while visible, since workers must be asked.

import { get } from "./api.js";
import { at, h, keep, say } from "./dom.js";
import { count } from "./format.js";

const SHOWN = 100;
/** Number of polls of the page between two fetches. */
const EVERY = 3;
const COLUMNS = [["Connection"], ["Tenant"], ["Peer"], ["Worker", "number"], ["In flight", "number"], ["Messages/s", "number"]];
let body;
let inSight = false;
let looks = 0;
let before = { at: 0, messages: new Map() };

export function start(wake) {
  body = h("tbody");
  const head = COLUMNS.map(([title, kind]) => h("th", { scope: "col", class: kind }, title));
  at("connections-table").append(h("table", {}, h("thead", {}, h("tr", {}, ...head)), body));
  at("connections-search").addEventListener("input", () => {
    looks = 0;
    wake();
  });
  new IntersectionObserver(([entry]) => {
    if (entry.isIntersecting && !inSight) looks = 0;
    inSight = entry.isIntersecting;
  }).observe(at("connections"));
}

const make = () => h("tr", {}, h("th", { scope: "row" }), ...COLUMNS.slice(1).map(([, kind]) => h("td", { class: kind })));

export async function look() {
  // Once at first, so that the page is whole when it is printed.
  if (!(inSight || looks === 0) || looks++ % EVERY !== 0) return;
  const query = new URLSearchParams({ limit: SHOWN });
  const text = at("connections-search").value.trim();
  if (text) query.set("search", text);
  const { connections, total } = await get(`/v1/connections?${query}`);
  const now = performance.now() / 1000;
  const rate = ({ id, messages }) => {
    const was = before.messages.get(id);
    // The count wraps at 2³².
    return was === undefined ? null : ((messages - was) >>> 0) / (now - before.at);
  };
  keep(body, connections, ({ id }) => id, make, (row, of) => {
    [of.id, of.tenant ?? "none", of.peer, String(of.worker), count(of.in_flight), count(rate(of))]
      .forEach((figure, n) => say(row.children[n], figure));
  });
  before = { at: now, messages: new Map(connections.map(({ id, messages }) => [id, messages])) };
  at("connections-table").hidden = connections.length === 0;
  const shown = `${count(connections.length)} of ${count(total)} connections.`;
  say(at("connections-note"), total === 0 ? "Nobody is connected." : connections.length === 0 ? `No connection has “${text}” in its tenant or address, of ${count(total)}.` : shown);
}
