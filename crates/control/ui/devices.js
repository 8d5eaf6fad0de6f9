// The chosen device: one choice for the whole page.

import { h, keep, say } from "./dom.js";

let chosen = null;
let named = [];

const selects = () => [...document.querySelectorAll("select.devices")];

export function start() {
  selects().forEach((select) => select.addEventListener("change", () => {
    chosen = select.value;
    selects().forEach((other) => { other.value = chosen; });
  }));
}

/** Returns the position of the chosen device in the order of configuration. */
export const place = () => Math.max(named.findIndex(({ name }) => name === chosen), 0);

/** Returns the name of the chosen device. */
export const name = () => named[place()]?.name ?? null;

export function show(devices) {
  named = devices;
  for (const select of selects()) {
    keep(select, devices, (device) => device.name, (device) => h("option", { value: device.name }), (option, device) => say(option, device.name));
    // A single device needs no choice.
    select.closest("label").hidden = devices.length < 2;
  }
}
