// The form that checks whether an SLO would be admitted.

import { Failure, post } from "./api.js";
import * as devices from "./devices.js";
import { at, h, mark, say } from "./dom.js";
import { count, time } from "./format.js";

const NUMBERS = ["latency_us", "iops", "read_percent", "request_bytes", "percentile"];

let isTouched = false;
let budget = null;
let asked = 0;

/** Returns the form's question as a body of the API. */
function question(form) {
  const slo = Object.fromEntries(NUMBERS.map((name) => [name, Number(form.elements[name].value)]));
  return { device: form.elements.device.value || undefined, slo };
}

function tell(tone, sign, title, ...more) {
  const answer = at("check-answer");
  answer.dataset.tone = tone;
  answer.replaceChildren(h("p", {}, h("span", { "aria-hidden": "true" }, `${sign} `), h("strong", {}, title)), ...more);
}

/** Returns a button that fills in one remedy and checks again. */
function way(form, label, name, value) {
  return h("button", { type: "button", onclick: () => {
    form.elements[name].value = value;
    form.requestSubmit();
  } }, label);
}

function refused(form, verdict) {
  const { message, ways } = verdict.refusal;
  const buttons = [];
  if (ways?.iops) buttons.push(way(form, `Try ${count(ways.iops)} requests/s`, "iops", ways.iops));
  if (ways?.latency_us) buttons.push(way(form, `Try a bound of ${time(ways.latency_us)}`, "latency_us", ways.latency_us));
  tell("bad", "▲", "It would be refused.", h("p", {}, `${message}.`), h("p", { class: "ways" }, ...buttons));
}

/** Returns a sentence about how many such tenants there is room for. */
function fit(fits) {
  return fits === 1 ? "No second one like it fits." : `${count(fits)} such tenants fit.`;
}

/** Asks the server, and shows its answer unless another question was asked meanwhile. */
async function ask(form) {
  const own = ++asked;
  const button = form.querySelector("button");
  button.disabled = true;
  try {
    const verdict = await post("/v1/tenants/check", question(form));
    if (own !== asked) return;
    draw(verdict.tokens_needed);
    if (!verdict.admitted) return refused(form, verdict);
    tell("good", "✓", "It would be admitted.",
      h("p", {}, `It needs ${count(verdict.tokens_needed)} tokens/s; ${count(verdict.tokens_left)} would be left for best effort. ${fit(verdict.fits)}`));
  } catch (error) {
    if (!(error instanceof Failure)) throw error;
    if (own !== asked) return;
    tell("bad", "▲", "It cannot be told.", h("p", {}, `${error.message}.`));
  } finally {
    button.disabled = false;
  }
}

/** Shows the device's tokens: reserved now, and reserved with the SLO. */
function draw(needed) {
  at("check-budget").hidden = budget === null;
  if (budget === null) return;
  const { tokens, tokens_promised, tokens_left } = budget;
  const [bar, note] = at("check-budget").children;
  const share = (part) => `${Math.min((part / tokens) * 100, 100)}%`;
  bar.children[0].style.width = share(tokens_promised);
  bar.children[1].style.width = share(needed ?? 0);
  mark(bar.children[1], "data-tone", (needed ?? 0) > tokens_left ? "bad" : "good");
  const asked = needed ? ` The question asks for ${count(needed)}.` : "";
  say(note, `Reserved: ${count(tokens_promised)} of ${count(tokens)} tokens/s at the strictest latency.${asked}`);
}

/** Shows the device's free tokens. Suggests a fitting SLO and asks about it, until the user types. */
export function show(named, model) {
  const device = named[devices.place()];
  const isOther = budget?.name !== device?.name;
  budget = device?.has_model ? device : null;
  if (isOther) draw(null);
  const form = at("check-form");
  if (isTouched || !isOther || !model || !budget) return;
  const row = model.p95[Math.min(1, model.p95.length - 1)];
  form.elements.latency_us.value = Math.max(row.latency_us, budget.strictest?.latency_us ?? 0);
  form.elements.iops.value = Math.max(Math.floor(budget.tokens_left / 10), 1);
  ask(form);
}

export function start() {
  at("check-form").addEventListener("input", () => { isTouched = true; });
  at("check-form").addEventListener("submit", (event) => {
    event.preventDefault();
    ask(event.target);
  });
}
