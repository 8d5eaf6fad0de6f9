// A tenant's standing: a sign, a word and a colour, so that none is needed alone.

import { h, mark, say } from "./dom.js";

const SIGNS = {
  "late": ["▲", "late", "bad", "Its reads took longer than promised."],
  "over": ["◆", "over its SLO", "warn", "It asks for more than it was promised, so its latency is not promised."],
  "kept": ["✓", "kept", "good", "Its promise was kept in the last second."],
  "best-effort": ["•", "best effort", "plain", "It has no promise and shares what is left."],
  "idle": ["○", "idle", "dim", "It did nothing in the last second."],
  "leaving": ["×", "leaving", "dim", "It was removed; what it had in flight ends."],
};

/** Returns an empty badge. */
export const badge = () => h("span", { class: "badge" }, h("span", { "aria-hidden": "true" }), h("span"));

/** Shows a tenant's standing on a badge. */
export function write(badge, standing) {
  const [sign, word, tone, title] = SIGNS[standing];
  mark(badge, "data-tone", tone);
  mark(badge, "title", title);
  say(badge.firstElementChild, sign);
  say(badge.lastElementChild, word);
}
