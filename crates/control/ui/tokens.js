// The flow of a device's tokens.

import { Chart, DASHES, countAxis, key, timeAxis, timeScale } from "./chart.js";
import * as devices from "./devices.js";
import { at, say } from "./dom.js";
import { count } from "./format.js";
import { colour } from "./theme.js";

/** Name, colour, style, and the figure of a device's second. */
const LINES = [
  ["spent", "series-1", "filled", (of) => of.tokens.spent],
  ["made", "text", "dashed", (of) => of.made],
  ["reserved", "series-4", "dotted", (of) => of.promised],
  ["donated", "series-3", "", (of) => of.tokens.donated],
  ["borrowed", "series-2", "dashed", (of) => of.tokens.borrowed],
];
let chart;

function options() {
  return {
    scales: { x: timeScale(), y: { range: (_, __, high) => [0, Math.max(high ?? 0, 1) * 1.08] } },
    axes: [timeAxis(), countAxis()],
    series: [{}, ...LINES.map(([, stroke, drawn]) => ({
      stroke: colour(stroke), width: 1.6, dash: DASHES[drawn], points: { show: false },
      fill: drawn === "filled" ? colour("series-1-fill") : undefined,
    }))],
  };
}

export function start() {
  chart = new Chart(at("tokens-chart"), options, [[], ...LINES.map(() => [])]);
}

export function show(past) {
  const of = (second) => second.devices[devices.place()];
  chart.show(past.columns(...LINES.map(([, , , figure]) => (second) => {
    const device = of(second);
    return device ? figure(device) : null;
  })));
  const now = past.now && of(past.now);
  if (!now) return;
  const spare = now.made === null ? null : Math.max(now.made - now.tokens.spent, 0);
  key(at("tokens-key"), [
    ...LINES.map(([name, stroke, drawn, figure]) => [name, `${stroke} ${drawn}`, count(figure(now))]),
    ["unspent", "none", count(spare)],
  ]);
  say(at("tokens-note"), now.made === null
    ? "This device has no model: nothing is reserved on it and nobody is limited, so its tokens are only counted. `nearflash calibrate` measures a model."
    : "");
  at("tokens-chart").setAttribute("aria-label",
    `Tokens a second: ${LINES.map(([name, , , figure]) => `${name} ${count(figure(now))}`).join(", ")}, unspent ${count(spare)}.`);
}
