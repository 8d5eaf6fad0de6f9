// The state of the link: whether the server answers.

import { at, mark, say } from "./dom.js";

let lostAt = null;

function state(name, word) {
  const link = at("link");
  mark(link, "data-state", name);
  say(link.lastElementChild, word);
  at("main").dataset.state = name;
}

export function live(version) {
  lostAt = null;
  at("banner").hidden = true;
  say(at("version"), version);
  state("live", "live");
}

/** Shows that the server requires authentication. */
export function locked() {
  lostAt = null;
  at("banner").hidden = true;
  state("locked", "signed out");
}

export function lost(error, pause) {
  lostAt ??= new Date();
  state("lost", "not connected");
  const since = lostAt.toLocaleTimeString([], { hour12: false });
  const what = error.status === null
    ? `No answer from the server at ${location.host} since ${since}`
    : `The server says: ${error.message}`;
  say(at("banner"), `${what}. What you see is from before. Trying again every ${Math.round(pause / 1000)} s.`);
  at("banner").hidden = false;
}
