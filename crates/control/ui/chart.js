// The common parts of all charts: size, colours, the time axis, and keys.

import { h, keep, say } from "./dom.js";
import { short } from "./format.js";
import { colour, onColours } from "./theme.js";

const charts = new Set();
const seen = new ResizeObserver((entries) => {
  for (const { target } of entries) target.chart?.resize();
});

onColours(() => charts.forEach((chart) => chart.rebuild()));

/** Line styles, by the name in their keys. */
export const DASHES = { dashed: [8, 4], dotted: [2, 3] };

/** Returns an axis in the colours of the page. */
export const axis = (more = {}) => ({
  stroke: colour("dim"),
  font: "12px system-ui, sans-serif",
  grid: { stroke: colour("line"), width: 1 },
  ticks: { stroke: colour("line"), width: 1, size: 4 },
  ...more,
});

/** Returns a time scale of at least a minute. */
export const timeScale = () =>
  ({ range: (_, from, to) => [Math.min(from ?? 0, (to ?? 1) - 60), (to ?? 1) + 1] });

/** Returns the time axis. */
export const timeAxis = () => axis({
  space: 76,
  size: 30,
  values: (_, splits) => splits.map((at) => new Date(at * 1000).toLocaleTimeString([], { hour12: false })),
});

/** Returns the round times of an axis between two latencies in microseconds: of each decade the given
 * digits. */
export function roundTimes(low, high, digits) {
  const steps = [];
  for (let power = 10 ** Math.floor(Math.log10(Math.max(low, 1))); power <= high; power *= 10) {
    steps.push(...digits.map((n) => n * power).filter((us) => us >= low && us <= high));
  }
  return steps;
}

/** Returns an axis of counts. */
export const countAxis = (more = {}) =>
  axis({ size: 58, values: (_, splits) => splits.map(short), ...more });

/** The key below a chart: each line's name, style and current value. */
export function key(list, entries) {
  keep(list, entries, ([name]) => name,
    ([name, kind]) => h("li", {}, h("i", { class: `swatch ${kind}`, "aria-hidden": "true" }), h("span", {}, name), h("b")),
    (entry, [, , value]) => say(entry.lastElementChild, value));
}

/** A chart in a box, drawn by uPlot, and recreated when colours change. */
export class Chart {
  /** `options` returns uPlot's options, without a size. */
  constructor(box, options, data) {
    Object.assign(this, { box, options, data, plot: null });
    box.chart = this;
    charts.add(this);
    seen.observe(box);
    this.rebuild();
  }

  size() {
    return { width: Math.max(this.box.clientWidth, 200), height: Math.max(this.box.clientHeight, 120) };
  }

  rebuild() {
    this.plot?.destroy();
    this.plot = new uPlot({
      legend: { show: false },
      cursor: { drag: { x: false, y: false }, points: { show: false } },
      padding: [10, 14, 0, 0],
      ...this.options(),
      ...this.size(),
    }, this.data, this.box);
  }

  resize() {
    const { width, height } = this.size();
    if (width !== this.plot.width || height !== this.plot.height) this.plot.setSize({ width, height });
  }

  show(data) {
    this.data = data;
    this.plot.setData(data);
  }
}
