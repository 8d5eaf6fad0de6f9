// The first steps, shown until somebody has a promise or sends requests.

import { at, say } from "./dom.js";
import * as devices from "./devices.js";

/** Shows the first steps on a new server, in place of figures that are all empty. */
export function show(past, stood, named) {
  const promised = stood.tenants.some(({ tenant }) => tenant.slo);
  const used = past.seconds.some((second) => second.requests > 0);
  const isNew = stood.total <= 1 && stood.matched === stood.total && !promised && !used;
  at("first").hidden = !isNew;
  at("main").toggleAttribute("data-is-new", isNew);
  if (!isNew) return;
  const device = named[devices.place()];
  at("first-model").hidden = device?.has_model ?? true;
  say(at("first-model").querySelector("code"),
    `nearflash calibrate DEVICE -o model.toml                # while no server uses it\nnearflash device set ${device?.name ?? "NAME"} --model model.toml`);
  say(at("first").querySelector("li:last-child code"),
    `nearflash listener list                                 # where clients connect\nnearflash bench reflex://${location.hostname}:7420 --tenant gold --rate 1000 --seconds 60`);
}
