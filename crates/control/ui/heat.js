// The heat map of latency: one column per second, one row per quarter of a doubling.

import { Chart, DASHES, axis, key, roundTimes, timeAxis, timeScale } from "./chart.js";
import { at, say } from "./dom.js";
import { count, shortTime, time } from "./format.js";
import { History, latencyAt, placeOf, quantile } from "./history.js";
import { hold } from "./moment.js";
import { colour, onColours } from "./theme.js";

const LEVELS = 32;
/** Share of the reads below a line, and the line's style. */
const LINES = [[0.95, ""], [0.5, "dashed"]];
let chart;
let past = new History(1);
let levels = [];

/** The colours from few to many. */
function palette() {
  const stops = [1, 2, 3, 4].map((n) => colour(`heat-${n}`).match(/[\d.]+/g).map(Number));
  levels = Array.from({ length: LEVELS }, (_, n) => {
    const place = (n / (LEVELS - 1)) * (stops.length - 1);
    const low = Math.min(Math.floor(place), stops.length - 2);
    const mix = stops[low].map((from, c) => Math.round(from + (stops[low + 1][c] - from) * (place - low)));
    return `rgb(${mix.slice(0, 3).join(" ")})`;
  });
}

function paint(plot) {
  const { ctx } = plot;
  const { left, top, width, height } = plot.bbox;
  const seconds = past.shown;
  const most = seconds.reduce((all, second) => Math.max(all, ...second.reads.counts), 2);
  ctx.save();
  ctx.beginPath();
  ctx.rect(left, top, width, height);
  ctx.clip();
  for (const [n, second] of seconds.entries()) {
    const next = seconds[n + 1]?.at ?? second.at + past.step;
    const x = plot.valToPos(second.at, "x", true);
    // A gap stays a gap.
    const w = Math.max(plot.valToPos(Math.min(next, second.at + 2 * past.step), "x", true) - x, 1) + 0.5;
    for (const [row, reads] of second.reads.counts.entries()) {
      if (reads === 0) continue;
      const level = Math.floor((Math.log(reads + 1) / Math.log(most + 1)) * (LEVELS - 1));
      const from = plot.valToPos(second.reads.from + row, "y", true);
      const to = plot.valToPos(second.reads.from + row + 1, "y", true);
      ctx.fillStyle = levels[level];
      ctx.fillRect(x, to, w, from - to + 0.5);
    }
  }
  ctx.restore();
}

/** Returns the rows in use, with some margin. */
function rows() {
  const used = past.shown.filter((second) => second.reads.counts.length > 0);
  if (used.length === 0) return [20, 44];
  const low = Math.min(...used.map((second) => second.reads.from)) - 2;
  const high = Math.max(...used.map((second) => second.reads.from + second.reads.counts.length)) + 2;
  return [Math.max(low, 0), Math.min(Math.max(high, low + 12), past.edges.length + 1)];
}

function options() {
  return {
    scales: { x: timeScale(), y: { range: rows } },
    axes: [timeAxis(), axis({
      size: 64,
      // Round times; fewer where the chart spans more than two decades.
      splits: (_, __, low, high) => {
        if (past.edges.length === 0) return [];
        const [from, to] = [latencyAt(low, past.edges) || 1, latencyAt(high, past.edges) ?? past.edges.at(-1)];
        return roundTimes(from, to, to > 100 * from ? [1, 3] : [1, 2, 5]).map((us) => placeOf(us, past.edges));
      },
      filter: (_, splits) => splits,
      values: (_, splits) => splits.map((place) => shortTime(latencyAt(place, past.edges))),
    })],
    // A line has an edge of the other lightness, as it crosses cells of all.
    series: [{}, ...[["heat-edge", 3], ["heat-line", 0]].flatMap(([stroke, more]) =>
      LINES.map(([, drawn]) => ({ stroke: colour(stroke), width: 1.8 + more, cap: "round", dash: DASHES[drawn], points: { show: false } }))),
      { stroke: colour("heat-edge"), width: 5, points: { show: false } },
      { stroke: colour("bad"), width: 2, dash: DASHES.dotted, points: { show: false } }],
    hooks: { drawAxes: [paint], setCursor: [read] },
  };
}

/** Shows the figures below the pointer. */
function read(plot) {
  const { left, top } = plot.cursor;
  if (left < 0 || past.seconds.length === 0) return say(at("latency-readout"), "");
  const when = plot.posToVal(left, "x");
  const row = Math.floor(plot.posToVal(top, "y"));
  const second = past.seconds.findLast((each) => each.at <= when);
  if (!second) return say(at("latency-readout"), "");
  const reads = second.reads.counts[row - second.reads.from] ?? 0;
  const clock = new Date(second.at * 1000).toLocaleTimeString([], { hour12: false });
  say(at("latency-readout"), `${clock}: ${count(reads)} reads of ${time(past.edges[row - 1] ?? 0)} to ${time(past.edges[row])}`);
}

export function start() {
  palette();
  onColours(palette);
  chart = new Chart(at("latency-chart"), options, Array.from({ length: 2 * LINES.length + 3 }, () => []));
  at("latency-chart").addEventListener("click", () => {
    const { left } = chart.plot.cursor;
    if (left >= 0 && past.seconds.length > 0) hold(chart.plot.posToVal(left, "x"));
  });
}

/** Returns the strictest latency bound of a second. */
const bound = (second) => {
  const bounds = second.devices.map((device) => device.bound_us).filter((us) => us !== null);
  return bounds.length ? placeOf(Math.min(...bounds), past.edges) : null;
};

export function show(history) {
  past = history;
  const lines = LINES.map(([share]) => (second) => quantile(second.reads, share));
  chart.show(past.columns(...lines, ...lines, bound, bound));
  const now = past.now;
  const figure = (share) => {
    const place = now ? quantile(now.reads, share) : null;
    return time(place === null ? null : latencyAt(place, past.edges));
  };
  const strictest = now ? bound(now) : null;
  key(at("latency-key"), [
    ["few to many", "heat", "reads"],
    ["p50", "heat-line dashed", figure(0.5)],
    ["p95", "heat-line", figure(0.95)],
    ["strictest bound", "bad dotted", strictest === null ? "none" : time(latencyAt(strictest, past.edges))],
  ]);
  at("latency-chart").setAttribute("aria-label", `Heat map of read latency. In the last ${past.step === 60 ? "minute" : "second"} p50 ${figure(0.5)}, p95 ${figure(0.95)}.`);
}
