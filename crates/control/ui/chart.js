// What all charts have in common: size, colours, and the axis of time.

import { colour, onColours } from "./theme.js";
import { short } from "./format.js";

const charts = new Set();
const seen = new ResizeObserver((entries) => {
  for (const { target } of entries) target.chart?.resize();
});

onColours(() => charts.forEach((chart) => chart.rebuild()));

/** An axis in the colours of the page. */
export const axis = (more = {}) => ({
  stroke: colour("dim"),
  font: "12px system-ui, sans-serif",
  grid: { stroke: colour("line"), width: 1 },
  ticks: { stroke: colour("line"), width: 1, size: 4 },
  ...more,
});

/** The axis of time, in the past of now. */
export const timeAxis = () => axis({
  space: 70,
  values: (_, splits) => splits.map((at) => new Date(at * 1000).toLocaleTimeString([], {
    hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false,
  })),
});

/** An axis of counts. */
export const countAxis = (more = {}) =>
  axis({ size: 56, values: (_, splits) => splits.map(short), ...more });

/** A chart in a box, drawn by uPlot, that is made anew when colours change. */
export class Chart {
  /** `options` gives those of uPlot, without a size. */
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
      cursor: { drag: { x: false, y: false } },
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
