// The list of workers, and the parts of their busy time.

import { key } from "./chart.js";
import { at, h, keep, mark, say } from "./dom.js";
import { count, percent, time } from "./format.js";

const PARTS = ["network", "protocol", "scheduling", "device", "kernel", "upkeep"];
const COLUMNS = [["Worker"], ["State"], ["Busy", "busy"], ["Waited", "number"], ["What busy time goes into", "parts"], ["Connections", "number"],
  ["In flight", "number"], ["Buffers", "number"], ["Turns/s", "number"], ["Moved away", "number"], ["Longest pause", "number"]];
/** Percent of a second for which a worker may wait for a processor: `qos::WAITS_MAX`. */
const WAITED_MAX = 2.5;
const STATES = { active: "● serves", retiring: "◐ retiring", parked: "○ parked" };
let body;

function make() {
  const parts = PARTS.map((part) => h("i", { class: `part-${part}` }));
  return h("tr", {}, h("th", { scope: "row" }), h("td"),
    h("td", { class: "busy" }, h("div", { class: "meter", "aria-hidden": "true" }, h("i")), h("span")),
    h("td", { class: "number", title: "ready to run, but other threads had the processors" }),
    h("td", { class: "parts" }, h("div", { class: "stack", role: "img" }, ...parts)),
    ...COLUMNS.slice(5).map(([, kind]) => h("td", { class: kind })));
}

function update(row, { worker, flow }) {
  const cells = row.children;
  say(cells[0], worker.cpu === null ? String(worker.number) : `${worker.number} (CPU ${worker.cpu})`);
  say(cells[1], STATES[worker.state]);
  const [meter, text] = cells[2].children;
  meter.firstElementChild.style.width = `${flow.busy_percent}%`;
  mark(meter, "data-tone", flow.busy_percent >= 90 ? "bad" : flow.busy_percent >= 70 ? "warn" : "plain");
  say(text, percent(flow.busy_percent / 100));
  say(cells[3], percent(flow.waited_percent / 100));
  mark(cells[3], "data-tone", flow.waited_percent > WAITED_MAX ? "bad" : "plain");
  const stack = cells[4].firstElementChild;
  flow.parts.forEach((share, n) => { stack.children[n].style.width = `${share}%`; });
  const words = PARTS.map((part, n) => `${part} ${percent(flow.parts[n] / 100)}`).join(", ");
  mark(stack, "aria-label", words);
  mark(stack, "title", words);
  const figures = [count(worker.connections), count(flow.in_flight), count(flow.buffers), count(flow.turns),
    count(worker.moved), worker.moved > 0 ? time(worker.pause_us_max) : "–"];
  figures.forEach((figure, n) => say(cells[n + 5], figure));
}

export function start() {
  body = h("tbody");
  const head = COLUMNS.map(([title, kind]) => h("th", { scope: "col", class: kind }, title));
  at("workers-table").append(h("table", {}, h("thead", {}, h("tr", {}, ...head)), body));
  key(at("workers-key"), PARTS.map((part) => [part, `block part-${part}`, ""]));
}

export function show(workers, flows) {
  const each = workers.map((worker, n) => ({ worker, flow: flows[n] })).filter(({ flow }) => flow);
  keep(body, each, ({ worker }) => worker.number, make, update);
}
