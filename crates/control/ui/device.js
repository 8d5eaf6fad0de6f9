// The device model: measured latency by load, the limit, and the current operating point.

import { Failure, get } from "./api.js";
import { Chart, DASHES, axis, countAxis, key, roundTimes } from "./chart.js";
import * as devices from "./devices.js";
import { at, h, keep, say } from "./dom.js";
import { count, percent, shortTime, time } from "./format.js";
import { colour } from "./theme.js";

const CURVES = [
  ["mixed, p95", "series-1", "", "p95", "mixed"],
  ["reads only, p95", "series-3", "dashed", "p95", "read_only"],
  ["mixed, p99", "series-4", "dotted", "p99", "mixed"],
];
/** Number of polls before the model is fetched again, since it changes rarely. */
const LOOKS = 30;
const TRAIL = 30;

let chart;
let model = null;
let asked = { name: null, looks: 0 };
let points = { limit: null, now: null, trail: [] };

/** Returns the curves over one axis of tokens. A curve may lack points. */
function data(rate) {
  const each = CURVES.map(([, , , percentile, mix]) => new Map((model?.[percentile] ?? []).map((row) => [row[mix] * rate, row.latency_us])));
  const xs = [...new Set(each.flatMap((curve) => [...curve.keys()]))].sort((a, b) => a - b);
  return [xs, ...each.map((curve) => xs.map((x) => curve.get(x) ?? null))];
}

function dot(plot, [x, y], draw) {
  const { ctx } = plot;
  ctx.save();
  draw(ctx, plot.valToPos(x, "x", true), plot.valToPos(y, "y", true), devicePixelRatio);
  ctx.restore();
}

function paint(plot) {
  for (const [n, point] of points.trail.entries()) {
    dot(plot, point, (ctx, x, y, scale) => {
      ctx.globalAlpha = 0.08 + (0.3 * n) / TRAIL;
      ctx.fillStyle = colour("series-2");
      ctx.beginPath();
      ctx.arc(x, y, 3 * scale, 0, 7);
      ctx.fill();
    });
  }
  if (points.limit) {
    dot(plot, points.limit, (ctx, x, y, scale) => {
      ctx.fillStyle = colour("bad");
      ctx.translate(x, y);
      ctx.rotate(Math.PI / 4);
      ctx.fillRect(-5 * scale, -5 * scale, 10 * scale, 10 * scale);
    });
  }
  if (points.now) {
    dot(plot, points.now, (ctx, x, y, scale) => {
      ctx.fillStyle = colour("series-2");
      ctx.strokeStyle = colour("panel");
      ctx.lineWidth = 2 * scale;
      ctx.beginPath();
      ctx.arc(x, y, 6 * scale, 0, 7);
      ctx.fill();
      ctx.stroke();
    });
  }
}

function options() {
  const others = () => [points.limit, points.now, ...points.trail].filter(Boolean);
  return {
    scales: {
      x: { time: false, range: (_, __, high) => [0, Math.max(high ?? 0, ...others().map(([x]) => x), 1) * 1.05] },
      y: { distr: 3, range: (_, low, high) => {
        const ys = others().map(([, y]) => y);
        return [Math.min(low ?? 100, ...ys) / 1.6, Math.max(high ?? 1000, ...ys) * 1.6];
      } },
    },
    axes: [countAxis({ size: 30 }), axis({ size: 64,
      splits: (_, __, low, high) => roundTimes(low, high, [1, 2, 5]),
      filter: (_, splits) => splits,
      values: (_, splits) => splits.map(shortTime) })],
    series: [{}, ...CURVES.map(([, stroke, drawn]) => ({
      stroke: colour(stroke), width: 2, dash: DASHES[drawn], spanGaps: true, points: { show: true, size: 6, fill: colour(stroke) },
    }))],
    hooks: { draw: [paint] },
  };
}

export function start() {
  chart = new Chart(at("device-chart"), options, [[], ...CURVES.map(() => [])]);
}

/** Returns the chosen device's model; `null` without one. */
export const modelOf = () => model;

/** Fetches the model when another device is chosen, and from time to time. */
async function ask(device) {
  if (asked.name === device.name && asked.looks++ < LOOKS) return;
  asked = { name: device.name, looks: 0 };
  try {
    model = device.has_model ? await get(`/v1/devices/${encodeURIComponent(device.name)}/model`) : null;
  } catch (error) {
    if (!(error instanceof Failure) || error.status === null) asked.name = null;
    if (!(error instanceof Failure) || error.status !== 422) throw error;
    model = null;
  }
}

/** Returns a text about a device's drift from its model. */
function fit(drift) {
  switch (drift?.state) {
    case "fits": return "yes";
    case "drifted": return `no: at the latency that it shows, it serves ${percent(drift.percent / 100)} of what its model says`;
    case "unknown": return `unknown: ${drift.why}`;
    default: return "–";
  }
}

function facts(device, flow) {
  const limit = device.strictest
    ? `${count(device.tokens)} tokens/s at ≤ ${time(device.strictest.latency_us)}, the bound of ${device.strictest.tenant}`
    : `${count(device.tokens)} tokens/s: no latency is promised`;
  const tail = flow.p95_us === null ? "" : `p95 at the device ≤ ${time(flow.p95_us)}, `;
  const now = ["Now", `${count(flow.tokens.spent)} tokens/s, ${tail}depth ${flow.depth}`];
  const rows = !device.has_model ? [["Limit", "none: it has no model"], now] : [
    ["Limit", limit],
    ["Reserved", `${count(device.tokens_promised)} tokens/s, ${count(device.tokens_left)} left for best effort${device.tokens_headroom ? `, ${count(device.tokens_headroom)} more kept back for windows` : ""}`],
    now,
    ["Prices of 4 KiB", model ? `a write ${model.write_price} tokens, a read 1; while there are only reads, a read ${model.read_only_price}` : "–"],
    ["Correction of the model", device.correction ? `${percent(device.correction.rate_percent / 100)} of the rate, ${percent(device.correction.write_price_percent / 100)} of the price of writes` : "none"],
    ["Does it fit the model?", fit(device.drift)],
  ];
  keep(at("device-facts"), rows, ([term]) => term,
    ([term]) => h("div", {}, h("dt", {}, term), h("dd")), (row, [, value]) => say(row.lastElementChild, value));
}

export async function show(past, named, flows) {
  const place = devices.place();
  const [device, flow] = [named[place], flows[place]];
  if (!device) return;
  await ask(device);
  at("device-empty").hidden = model !== null;
  say(at("device-empty"), `${device.name} has no model, so no latency can be promised on it. \`nearflash calibrate\` measures one.`);
  at("device-chart").hidden = at("device-key").hidden = model === null;
  facts(device, flow);
  if (model === null) return;
  const at95 = (second) => {
    const of = second.devices[place];
    return of?.p95_us && of.tokens.spent > 0 ? [of.tokens.spent, of.p95_us] : null;
  };
  points = {
    limit: device.strictest ? [device.tokens, device.strictest.latency_us] : null,
    now: past.now ? at95(past.now) : null,
    trail: past.seconds.slice(-TRAIL).map(at95).filter(Boolean),
  };
  chart.show(data((device.correction?.rate_percent ?? 100) / 100));
  const known = CURVES.filter(([, , , percentile]) => model[percentile].length > 0);
  key(at("device-key"), [
    ...known.map(([name, stroke, drawn]) => [name, `${stroke} ${drawn}`, ""]),
    ["limit", "diamond", points.limit ? "" : "no promise"],
    ["now, at the device", "dot", points.now ? "" : "idle"],
  ]);
  at("device-chart").setAttribute("aria-label",
    `Latency over load of ${device.name}: now ${count(flow.tokens.spent)} tokens a second at p95 of at most ${time(flow.p95_us)}; limit ${count(device.tokens)}.`);
}
