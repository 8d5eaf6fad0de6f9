// The time that charts show: how much of it, and up to now or around a moment, to which the page's
// address is a link.

import { at, say } from "./dom.js";
import { showTime, shownTime } from "./history.js";

let last = null;
let wake = () => {};

/** Reads the moment out of the page's address, as `#at=SECONDS&span=SECONDS`. */
function follow() {
  const parts = new URLSearchParams(location.hash.slice(1));
  const [around, seconds] = ["at", "span"].map((name) => Number(parts.get(name)));
  const known = [...at("span").options].some((option) => Number(option.value) === seconds);
  showTime({ around: around > 0 ? around : null, seconds: known ? seconds : undefined });
  at("span").value = String(shownTime().seconds);
  tell();
  wake();
}

function tell() {
  const { around } = shownTime();
  const clock = around && new Date(around * 1000).toLocaleTimeString([], { hour12: false });
  say(at("hold"), around ? "Back to now" : "Hold");
  say(at("held"), around ? `held at ${clock}; the address of this page leads here` : "all tenants");
}

/** Has charts show the time around a moment, in seconds since 1970; `null`: up to now. */
export function hold(around) {
  const { seconds } = shownTime();
  const hash = around === null ? "" : `#at=${Math.round(around)}&span=${seconds}`;
  history.replaceState(null, "", location.pathname + location.search + hash);
  follow();
}

export function start(whenChanged) {
  wake = whenChanged;
  at("span").addEventListener("change", () => {
    showTime({ seconds: Number(at("span").value) });
    hold(shownTime().around);
  });
  at("hold").addEventListener("click", () => hold(shownTime().around === null ? last : null));
  addEventListener("hashchange", follow);
  follow();
}

export function show(charted) {
  last = charted.now?.at ?? Date.now() / 1000;
  const { around } = shownTime();
  if (around === null || charted.shown.length > 0) return tell();
  say(at("held"), "the server remembers nothing of that moment; a day is kept by minutes");
}
