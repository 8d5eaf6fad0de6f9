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

function update(tile, { tone, value, sub, series }) {
  mark(tile, "data-tone", tone ?? "plain");
  say(tile.children[1], value);
  say(tile.children[2], sub);
  const most = Math.max(...series, 1e-9);
  const step = 120 / Math.max(series.length - 1, 1);
  const points = series.map((y, n) => `${(n * step).toFixed(1)},${(27 - 25 * (y / most)).toFixed(1)}`);
  tile.lastElementChild.firstElementChild.setAttribute("points", points.join(" "));
}

/** Summarizes the tenants' standings: only those with an SLO that could be judged. */
function promises({ late, over, kept }) {
  const all = late + over + kept;
  const parts = [late && `${late} late`, over && `${over} over`].filter(Boolean);
  return {
    tone: late > 0 ? "bad" : over > 0 ? "warn" : all > 0 ? "good" : "plain",
    value: all === 0 ? "–" : `${count(kept)} of ${count(all)}`,
    sub: all === 0 ? "none is in use" : parts.length ? `⚠ ${parts.join(", ")}` : "✓ all in use are kept",
  };
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
    { id: "promises", title: "Promises kept", ...promises(stood.standings), series: series((s) => {
      const judged = s.standings.late + s.standings.over + s.standings.kept;
      return judged ? s.standings.kept / judged : 0;
    }) },
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
