// The server's history: the last five minutes by seconds, and the last day by minutes.

/** Number of windows that the server keeps, by their seconds. */
const KEPT = { 1: 300, 60: 1440 };

/** Number of seconds that charts show. */
let span = KEPT[1];

/** The moment around which charts show them, in seconds since 1970; `null`: up to now. */
let moment = null;

/** Sets what charts show. */
export function showTime({ seconds = span, around = moment }) {
  [span, moment] = [seconds, around];
}

/** Returns what charts show. */
export const shownTime = () => ({ seconds: span, around: moment });

/** Returns `true` if charts show minutes. */
export const showsMinutes = () => span > KEPT[1];

export class History {
  /** The windows, which are seconds or minutes. */
  seconds = [];
  last = 0;
  edges = [];
  version = "";

  /** A history of windows of this many seconds. */
  constructor(step) {
    this.step = step;
  }

  /** Returns the path of the windows that this history has not. */
  get path() {
    return `/v1/history?after=${this.last}${this.step === 60 ? "&step=minute" : ""}`;
  }

  /** Adds the server's seconds after `last`. */
  take(said) {
    this.edges = said.edges_us;
    this.version = said.version;
    const first = said.seconds[0];
    // After a restart, the server counts from 1 again.
    if (first && first.number <= this.last) this.seconds = [];
    const now = Date.now() / 1000;
    for (const second of said.seconds) this.seconds.push({ ...second, at: now - second.age });
    // While charts are held, what they show stays, for an hour.
    const most = KEPT[this.step] * (moment === null ? 1 : 12);
    this.seconds.splice(0, Math.max(this.seconds.length - most, 0));
    if (first) this.last = said.seconds.at(-1).number;
  }

  /** Returns the last second. */
  get now() {
    return this.seconds.at(-1);
  }

  /** Returns the seconds that charts show. */
  get shown() {
    const count = Math.ceil(span / this.step);
    if (moment === null) return this.seconds.slice(-count);
    const end = this.seconds.findLastIndex((second) => second.at <= moment + span / 2) + 1;
    return this.seconds.slice(Math.max(end - count, 0), end);
  }

  /** Returns the ends of the seconds, each with the value of `of`. */
  columns(...of) {
    return [this.shown.map((second) => second.at), ...of.map((each) => this.shown.map(each))];
  }
}

/** Returns the quantile of a second's reads as a position among buckets: 12.5 is the middle of bucket 12. */
export function quantile(reads, share) {
  const all = reads.counts.reduce((sum, count) => sum + count, 0);
  let wanted = all * share;
  for (const [n, count] of reads.counts.entries()) {
    if (wanted <= count && count > 0) return reads.from + n + wanted / count;
    wanted -= count;
  }
  return null;
}

/** Returns the latency in microseconds at a position among buckets. */
export function latencyAt(place, edges) {
  const n = Math.floor(place);
  const from = n === 0 ? 0 : edges[n - 1];
  const to = edges[n] ?? from * 2;
  return from === undefined ? null : from + (to - from) * (place - n);
}

/** Returns the position among buckets of a latency in microseconds. */
export function placeOf(us, edges) {
  const n = edges.findIndex((edge) => us < edge);
  if (n < 0) return edges.length;
  const from = n === 0 ? 0 : edges[n - 1];
  return n + (us - from) / (edges[n] - from);
}
