// The theme, light or dark: the system's, unless the user chose one.

import { at } from "./dom.js";

const KEY = "nearflash-theme";
const listeners = [];

/** Registers a function to call when colours have changed. */
export const onColours = (listener) => listeners.push(listener);

/** Returns a colour of the style sheets, in the form for a canvas. */
export function colour(name) {
  const probe = document.documentElement.appendChild(document.createElement("i"));
  probe.style.color = `var(--${name})`;
  const resolved = getComputedStyle(probe).color;
  probe.remove();
  return resolved;
}

function show(choice) {
  if (choice === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = choice;
  listeners.forEach((listener) => listener());
}

/** Wires the switch. */
export function start() {
  const select = at("theme");
  const chosen = localStorage.getItem(KEY);
  if (chosen === "light" || chosen === "dark") select.value = chosen;
  show(select.value);
  select.addEventListener("change", () => {
    localStorage.setItem(KEY, select.value);
    show(select.value);
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => show(select.value));
}
