// The details of one tenant: its SLO, and the time per stage of its reads.

import { Failure, get } from "./api.js";
import { at, h, keep, mark, say } from "./dom.js";
import { count, percent, time } from "./format.js";
import * as standing from "./standing.js";

const STAGES = [
  ["latency", "Whole", "from the last byte of the request to the reply handed to the socket"],
  ["scheduler", "Scheduler", "waiting for tokens, of one request in 32"],
  ["device", "Device", "at the device, of one request in 32"],
  ["reply", "Network", "until the network took the reply, of one request in 32"],
];
let name = null;
let before = null;
let wake = () => {};
const parts = {};

export function start(wakes) {
  wake = wakes;
  parts.badge = standing.badge();
  parts.facts = h("dl", { class: "facts" });
  parts.note = h("p", { class: "note dim" });
  parts.body = h("tbody");
  const head = STAGES.map(([, title, what]) => h("th", { scope: "col", title: what }, title));
  parts.table = h("table", { class: "stages" }, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Up to"), ...head)), parts.body);
  at("tenant-body").append(parts.badge, parts.facts, h("h3", {}, "Where its reads spend their time"), parts.note,
    h("div", { class: "scroll", tabindex: "0" }, parts.table));
  at("tenant").addEventListener("close", () => { name = null; });
}

/** Shows a tenant. */
export function open(which) {
  name = which;
  before = null;
  say(at("tenant-title"), which);
  at("tenant").showModal();
  wake();
}

function fact([term, value]) {
  return h("div", {}, h("dt", {}, term), h("dd", {}, value));
}

function facts({ standing: stands, tenant }) {
  const { slo, measured } = tenant;
  standing.write(parts.badge, stands);
  keep(parts.facts, [
    ["Promise", slo ? `p${slo.percentile} ≤ ${time(slo.latency_us)} at ${count(slo.iops)} requests/s, ${slo.read_percent} % reads` : `best effort, weight ${tenant.share.weight}`],
    ["Now", `p${slo?.percentile ?? 95} ${time(slo ? measured.slo_percentile_us : measured.p95_us)} at ${count(measured.iops)} requests/s`],
    ["Seconds of the last minute in which the promise held", slo ? percent(measured.compliance.kept) : "–"],
    ["Waited for tokens", `${percent(measured.throttled)} of the time`],
    ["Device", tenant.device],
    ["Connections", count(tenant.connections)],
    ["In flight", count(tenant.in_flight)],
  ], ([term]) => term, fact, (row, [, value]) => say(row.lastElementChild, value));
}

/** Returns the counts since the dialog was opened. Without any, the counts since the tenant was added. */
function histogram(stages) {
  before ??= stages;
  const sum = (counts) => counts.reduce((all, n) => all + n, 0);
  const since = (kind) => stages[kind].map((n, at) => n - before[kind][at]);
  const isNew = sum(since("latency")) > 0;
  say(parts.note, isNew ? "Share of its reads since this was opened." : "Share of its reads since it was made.");
  const columns = STAGES.map(([kind]) => (isNew ? since(kind) : stages[kind]));
  const totals = columns.map((counts) => Math.max(sum(counts), 1));
  const rows = [...stages.edges_us, null].map((edge, n) => ({
    edge, shares: columns.map((counts, of) => counts[n] / totals[of]),
  }));
  const used = rows.map((row) => row.shares.some((share) => share > 0));
  const shown = rows.slice(Math.max(used.indexOf(true), 0), used.lastIndexOf(true) + 1);
  keep(parts.body, shown, ({ edge }) => edge ?? "more", ({ edge }) => h("tr", {},
    h("th", { scope: "row" }, edge === null ? "more" : time(edge)),
    ...STAGES.map(() => h("td", { class: "share" }, h("i", { "aria-hidden": "true" }), h("span")))),
  (row, { shares }) => shares.forEach((share, n) => {
    const cell = row.children[n + 1];
    cell.firstElementChild.style.width = `${share * 100}%`;
    say(cell.lastElementChild, share > 0 ? percent(share) : "");
  }));
}

/** Fetches the shown tenant. */
export async function look(stood) {
  if (name === null) return;
  const path = encodeURIComponent(name);
  const listed = stood.tenants.find(({ tenant }) => tenant.name === name);
  try {
    const found = listed ?? (await get(`/v1/standing?limit=500&search=${path}`)).tenants.find(({ tenant }) => tenant.name === name);
    if (found) facts(found);
    histogram(await get(`/v1/tenants/${path}/stages`));
    mark(at("tenant"), "data-gone", false);
  } catch (error) {
    if (!(error instanceof Failure) || error.status !== 404) throw error;
    say(parts.note, "It is gone.");
    mark(at("tenant"), "data-gone", "");
  }
}
