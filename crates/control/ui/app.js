// The page: asks once a second, and hands what is new to its parts.

import { get } from "./api.js";
import { at, say } from "./dom.js";
import * as tenants from "./tenants.js";
import * as theme from "./theme.js";
import { Chart, countAxis, timeAxis } from "./chart.js";
import { colour } from "./theme.js";

const data = [[], [], []];
let chart;

async function look() {
  tenants.show(await get("/v1/tenants"));
  const flows = await get("/v1/flows");
  data[0].push(Date.now() / 1000);
  data[1].push(flows.devices[0].tokens.generated);
  data[2].push(flows.devices[0].tokens.spent);
  chart.show(data);
}

async function run() {
  for (;;) {
    try {
      await look();
      say(at("link").lastElementChild, "live");
    } catch (error) {
      if (error.status === undefined) throw error;
      say(at("link").lastElementChild, error.message);
    }
    await new Promise((done) => setTimeout(done, 1000));
  }
}

theme.start();
tenants.start();
chart = new Chart(at("tokens-chart"), () => ({
  axes: [timeAxis(), countAxis()],
  series: [{}, { stroke: colour("series-1") }, { stroke: colour("series-2") }],
}), data);
run();
