// The server's history of the last five minutes.

const SECONDS_MAX = 300;

/** Number of seconds that charts show. */
let span = SECONDS_MAX;

/** Sets the number of seconds that charts show. */
export function showSeconds(seconds) {
  span = seconds;
}

export class History {
  seconds = [];
  last = 0;
  edges = [];
  version = "";

  /** Adds the server's seconds after `last`. */
  take(said) {
    this.edges = said.edges_us;
    this.version = said.version;
    const first = said.seconds[0];
    // After a restart, the server counts from 1 again.
    if (first && first.number <= this.last) this.seconds = [];
    const now = Date.now() / 1000;
    for (const second of said.seconds) this.seconds.push({ ...second, at: now - second.age });
    this.seconds.splice(0, this.seconds.length - SECONDS_MAX);
    if (first) this.last = said.seconds.at(-1).number;
  }

  /** Returns the last second. */
  get now() {
    return this.seconds.at(-1);
  }

  /** Returns the seconds that charts show. */
  get shown() {
    return this.seconds.slice(-span);
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
