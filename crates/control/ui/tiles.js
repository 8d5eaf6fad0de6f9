// The overview: a few figures.

import { at, h, keep, mark, say } from "./dom.js";
import { bytes, count, counted, percent, time } from "./format.js";
import { latencyAt, quantile } from "./history.js";

const SVG = "http://www.w3.org/2000/svg";
const POINTS = 60;

function make({ id, title }) {
  const line = document.createElementNS(SVG, "polyline");
  const spark = document.createElementNS(SVG, "svg");
  spark.setAttribute("viewBox", "0 0 120 28");
  spark.setAttribute("preserveAspectRatio", "none");
  spark.setAttribute("aria-hidden", "true");
  spark.append(line);
  return h("li", { id: `tile-${id}`, class: "tile" },
    h("span", { class: "title dim" }, title), h("strong"), h("span", { class: "sub dim" }), spark);
}

function update(tile, { tone, value, sub, series, top = 1e-9 }) {
  mark(tile, "data-tone", tone ?? "plain");
  say(tile.children[1], value);
  say(tile.children[2], sub);
  const most = Math.max(...series, top);
  const step = 120 / Math.max(series.length - 1, 1);
  const points = series.map((y, n) => `${(n * step).toFixed(1)},${(27 - 25 * (y / most)).toFixed(1)}`);
  tile.lastElementChild.firstElementChild.setAttribute("points", points.join(" "));
}

/** Summarizes the tenants' standings. Only tenants that keep to their SLO are judged: latency is not
 * promised to those that ask for more, nor to those that ask for nothing. */
function promises({ late, over, kept }) {
  const judged = late + kept;
  const value = judged === 0 ? "–" : `${count(kept)} of ${count(judged)}`;
  if (late > 0) return { tone: "bad", value, sub: `▲ ${count(late)} late${over ? `, ◆ ${count(over)} over` : ""}` };
  if (over > 0) return { tone: "warn", value, sub: `◆ ${count(over)} ${over === 1 ? "asks" : "ask"} for more` };
  return judged > 0 ? { tone: "good", value, sub: "✓ all in use are kept" } : { tone: "plain", value, sub: "none is in use" };
}

/** Returns the share of judged promises that were kept: all of them where none is in use. */
function share({ late, kept }) {
  return late + kept > 0 ? kept / (late + kept) : 1;
}

export function show({ past, stood, flows, crew }) {
  const now = past.now;
  const recent = past.seconds.slice(-POINTS);
  const series = (of) => recent.map((second) => of(second) ?? 0);
  const tail = (second) => {
    const place = quantile(second.reads, 0.95);
    return place === null ? null : latencyAt(place, past.edges);
  };
  const busiest = Math.max(0, ...flows.workers.map((worker) => worker.busy_percent));
  const active = crew.workers.filter((worker) => worker.state === "active").length;
  const connections = flows.workers.reduce((sum, worker) => sum + worker.connections, 0);
  const waiting = flows.devices.reduce((sum, device) => sum + device.queued, 0);
  const failures = now?.failures ?? 0;
  keep(at("tiles"), [
    { id: "promises", title: "Promises kept", ...promises(stood.standings), series: series((s) => share(s.standings)), top: 1 },
    { id: "requests", title: "Requests a second", value: count(now?.requests ?? 0),
      sub: failures > 0 ? `⚠ ${count(failures)} failed` : `${count(waiting)} wait for tokens`,
      tone: failures > 0 ? "bad" : "plain", series: series((s) => s.requests) },
    { id: "bytes", title: "Read and written", value: bytes((now?.read_bytes ?? 0) + (now?.written_bytes ?? 0)),
      sub: `${bytes(now?.read_bytes ?? 0)} read`, series: series((s) => s.read_bytes + s.written_bytes) },
    { id: "tail", title: "p95 of all reads", value: time(now && tail(now)),
      sub: now ? `p50 ${time(((p) => p === null ? null : latencyAt(p, past.edges))(quantile(now.reads, 0.5)))}` : "",
      series: series(tail) },
    { id: "busy", title: "Busiest worker", value: percent(busiest / 100), sub: `${active} of ${counted(crew.workers.length, "worker")} serving`,
      tone: busiest >= 90 ? "warn" : "plain", series: [] },
    { id: "conns", title: "Connections", value: count(connections), sub: counted(stood.total, "tenant"), series: [] },
  ], (tile) => tile.id, make, update);
}
