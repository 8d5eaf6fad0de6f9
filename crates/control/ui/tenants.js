// Tenants beside their promises.

import { at, h, keep, say } from "./dom.js";
import { bytes, count, time } from "./format.js";

const COLUMNS = ["Tenant", "p95 read", "Bound", "Requests/s", "Tokens/s", "Read", "Written"];
let body;

function make() {
  return h("tr", {}, h("th", { scope: "row" }),
    ...COLUMNS.slice(1).map(() => h("td", { class: "number" })));
}

function update(row, tenant) {
  const { measured, slo } = tenant;
  const tail = slo ? measured.slo_percentile_us : measured.p95_us;
  const figures = [tenant.name, time(tail), time(slo?.latency_us), count(measured.iops),
    count(measured.tokens), bytes(measured.read_bytes), bytes(measured.written_bytes)];
  figures.forEach((figure, n) => say(row.children[n], figure));
}

export function start() {
  body = h("tbody");
  const head = COLUMNS.map((title, n) => h("th", { scope: "col", class: n && "number" }, title));
  at("tenants-table").append(h("table", {}, h("thead", {}, h("tr", {}, ...head)), body));
}

export const show = ({ tenants }) => keep(body, tenants, (tenant) => tenant.name, make, update);
