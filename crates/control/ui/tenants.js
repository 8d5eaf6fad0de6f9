// The list of tenants with their SLOs: the first of an order, never all ten thousand.

import { at, h, keep, mark, say } from "./dom.js";
import { bytes, count, percent, time } from "./format.js";
import * as standing from "./standing.js";

const SHOWN = 50;
const COLUMNS = [
  ["Tenant"], ["Standing"], ["Tail latency and bound", "tail"], ["In bound, 1 min", "number"],
  ["Requests/s", "number"], ["promised", "number dim-cell"], ["Tokens/s", "number"],
  ["reserved", "number dim-cell"], ["Read", "number"], ["Written", "number"], ["Failed/s", "number"],
];
let body;
let opened = () => {};

/** Returns the path of the listed tenants, in the chosen order. */
export function path() {
  const query = new URLSearchParams({ limit: SHOWN, order: at("tenants-order").value });
  const text = at("tenants-search").value.trim();
  if (text) query.set("search", text);
  return `/v1/standing?${query}`;
}

/** Returns the percent of a bar for a latency in bounds: the bound is the middle, a hundred bounds the
 * end, and above the bound each factor takes the same space. */
const reach = (share) => Math.min(share <= 1 ? share * 50 : 50 + 25 * Math.log10(share), 100);

/** Returns how far above its bound a latency is: `3.1×`, or nothing within the bound. */
const excess = (share) => (share > 1.05 ? ` ${share < 10 ? share.toFixed(1) : count(share)}×` : "");

/** Returns a bar with a mark at the bound, in the middle. */
const bullet = () => h("div", { class: "bullet", "aria-hidden": "true" }, h("i"), h("b"));

function make({ tenant }) {
  const button = h("button", { type: "button", class: "plain-button", title: "Where its reads spend their time" });
  button.addEventListener("click", () => opened(tenant.name));
  return h("tr", {}, h("th", { scope: "row" }, button), h("td", {}, standing.badge()),
    h("td", { class: "tail" }, bullet(), h("span")),
    // Where the table is a list of cards, each figure needs its name.
    ...COLUMNS.slice(3).map(([title, kind]) => h("td", { class: kind, "data-of": title })));
}

function update(row, { standing: stands, tail_share, tenant }) {
  const { measured, slo } = tenant;
  const cells = row.children;
  say(cells[0].firstElementChild, tenant.name);
  standing.write(cells[1].firstElementChild, stands);
  const [bar, text] = cells[2].children;
  mark(row, "data-standing", stands);
  mark(bar, "hidden", slo ? false : "");
  bar.firstElementChild.style.width = `${reach(tail_share ?? 0)}%`;
  const tail = time(slo ? measured.slo_percentile_us : measured.p95_us);
  say(text, slo ? `${tail} of ${time(slo.latency_us)} (p${slo.percentile})${excess(tail_share ?? 0)}` : `${tail} (p95)`);
  const { minute } = measured.compliance;
  mark(cells[3], "data-tone", slo && minute !== null && minute < slo.percentile / 100 ? "bad" : "plain");
  mark(cells[10], "data-tone", measured.failures > 0 ? "bad" : "plain");
  const figures = [percent(minute), count(measured.iops), slo ? count(slo.iops) : "–",
    count(measured.tokens), slo ? count(tenant.tokens_needed) : "–",
    bytes(measured.read_bytes), bytes(measured.written_bytes), count(measured.failures)];
  figures.forEach((figure, n) => say(cells[n + 3], figure));
}

/** `wake` polls at once; `open` shows a tenant's details. */
export function start(wake, open) {
  opened = open;
  body = h("tbody");
  const head = COLUMNS.map(([title, kind]) => h("th", { scope: "col", class: kind }, title));
  at("tenants-table").append(h("table", { class: "cards" }, h("thead", {}, h("tr", {}, ...head)), body));
  at("tenants-search").addEventListener("input", wake);
  at("tenants-order").addEventListener("change", wake);
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.target.closest("input, select, textarea, dialog")) return;
    event.preventDefault();
    at("tenants-search").focus();
  });
}

export function show({ total, matched, tenants }) {
  keep(body, tenants, ({ tenant }) => `${tenant.number}:${tenant.name}`, make, update);
  const text = at("tenants-search").value.trim();
  const why = total === 0
    ? "There is no tenant yet. `nearflash tenant add NAME --latency 1ms --iops 10k` makes one; the form “What if” below says beforehand whether it would fit."
    : `No tenant has “${text}” in its name.`;
  say(at("tenants-empty"), why);
  at("tenants-empty").hidden = matched > 0;
  at("tenants-table").hidden = matched === 0;
  const of = text ? `${count(matched)} that match, of ${count(total)}` : count(total);
  say(at("tenants-more"), matched > tenants.length ? `The first ${tenants.length} of ${of}. Search for others, or choose another order.` : "");
}
