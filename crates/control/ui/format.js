// Figures as text, in the form that `nearflash top` uses.

const NONE = "–";

const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** A count or a rate: `950`, `12,345`, `1.23 M`. */
export function count(value) {
  if (value === null || value === undefined) return NONE;
  if (value >= 1e9) return `${(value / 1e9).toFixed(2)} G`;
  if (value >= 1e6) return `${(value / 1e6).toFixed(2)} M`;
  return grouped.format(value).replaceAll(",", "\u202f");
}

/** A count for an axis: `0`, `50 k`, `1.5 M`. */
export function short(value) {
  const trim = (text) => text.replace(/\.0$/, "");
  if (value >= 1e6) return `${trim((value / 1e6).toFixed(1))} M`;
  if (value >= 1e3) return `${trim((value / 1e3).toFixed(1))} k`;
  return String(Math.round(value * 100) / 100);
}

/** A time in microseconds: `85.2 µs`, `1.25 ms`, `2.1 s`. */
export function time(us) {
  if (us === null || us === undefined) return NONE;
  const places = (value) => (value >= 100 ? 0 : value >= 10 ? 1 : 2);
  const [value, unit] = us >= 1e6 ? [us / 1e6, "s"] : us >= 1e3 ? [us / 1e3, "ms"] : [us, "µs"];
  return `${value.toFixed(places(value))} ${unit}`;
}

/** A time in microseconds for an axis: `300 µs`, `1 ms`, `2.5 s`. */
export function shortTime(us) {
  const [value, unit] = us >= 1e6 ? [us / 1e6, "s"] : us >= 1e3 ? [us / 1e3, "ms"] : [us, "µs"];
  return `${Number(value.toPrecision(3))} ${unit}`;
}

/** A number of things: `1 tenant`, `12 tenants`. */
export const counted = (value, noun) => `${count(value)} ${noun}${value === 1 ? "" : "s"}`;

/** A share from 0 to 1, in percent. Only a full share is shown as 100 %. */
export function percent(share) {
  if (share === null || share === undefined) return NONE;
  const value = share * 100;
  if (value >= 100) return "100 %";
  return `${Math.min(value, 99.99).toFixed(value > 99.9 ? 2 : 1)} %`;
}

/** Bytes per second. */
export function bytes(value) {
  if (value === null || value === undefined) return NONE;
  for (const [unit, size] of [["GB/s", 1e9], ["MB/s", 1e6], ["kB/s", 1e3]]) {
    if (value >= size) return `${(value / size).toFixed(value / size >= 100 ? 0 : 1)} ${unit}`;
  }
  return `${Math.round(value)} B/s`;
}
