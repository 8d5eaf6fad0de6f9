// The page: polls the server once a second, and passes news to its parts.

import { Failure, get } from "./api.js";
import { at, say } from "./dom.js";
import * as check from "./check.js";
import * as connections from "./connections.js";
import * as device from "./device.js";
import * as devices from "./devices.js";
import * as first from "./first.js";
import * as heat from "./heat.js";
import { History, showsMinutes } from "./history.js";
import * as link from "./link.js";
import * as moment from "./moment.js";
import * as signIn from "./sign-in.js";
import * as tenant from "./tenant.js";
import * as tenants from "./tenants.js";
import * as theme from "./theme.js";
import * as tiles from "./tiles.js";
import * as tokens from "./tokens.js";
import * as violations from "./violations.js";
import * as workers from "./workers.js";

/** Milliseconds between two polls, and the maximum while the server does not answer. */
const PERIOD = 1000;
const PERIOD_MAX = 5000;

const past = new History(1);
const day = new History(60);
let wake = () => {};

/** Polls everything, one request after another. */
async function look() {
  past.take(await get(past.path));
  if (showsMinutes()) day.take(await get(day.path));
  const charted = showsMinutes() ? day : past;
  const stood = await get(tenants.path());
  const flows = await get("/v1/flows");
  const named = await get("/v1/devices");
  const crew = await get("/v1/workers");
  devices.show(named.devices);
  const verdict = at("overcommitted");
  verdict.hidden = !flows.overcommitted;
  say(verdict, flows.overcommitted ? `⚠ ${flows.overcommitted}. Reads that are late may be the machine's; devices are not judged meanwhile.` : "");
  first.show(past, stood, named.devices);
  tiles.show({ past, stood, flows, crew });
  tenants.show(stood);
  await violations.look();
  heat.show(charted);
  tokens.show(charted);
  moment.show(charted);
  await device.show(past, named.devices, flows.devices);
  check.show(named.devices, device.modelOf());
  workers.show(crew.workers, flows.workers);
  await connections.look();
  await tenant.look(stood);
  return past.version;
}

/** Waits, unless a poll is requested at once. */
const rest = (milliseconds) => new Promise((done) => {
  const timer = setTimeout(done, milliseconds);
  wake = () => {
    clearTimeout(timer);
    done();
  };
});

async function run() {
  let pause = PERIOD;
  for (;;) {
    // A page in the background is not visible; the server keeps the history that it missed.
    if (!document.hidden) {
      try {
        link.live(await look());
        pause = PERIOD;
      } catch (error) {
        if (!(error instanceof Failure)) throw error;
        if (error.status === 401) {
          link.locked();
          await signIn.ask();
          pause = PERIOD;
          continue;
        }
        pause = Math.min(pause * 1.5, PERIOD_MAX);
        link.lost(error, pause);
      }
    }
    await rest(document.hidden ? PERIOD_MAX : pause);
  }
}

theme.start();
signIn.start();
[heat, tokens, device, devices, check, violations, workers].forEach((part) => part.start());
tenants.start(() => wake(), tenant.open);
connections.start(() => wake());
tenant.start(() => wake());
document.addEventListener("visibilitychange", () => wake());
moment.start(() => wake());
at("main").dataset.state = "waiting";
run();
