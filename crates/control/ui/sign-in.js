// The dialog for a token, which the server requires over TLS.

import { isPresented, present } from "./api.js";
import { at, say } from "./dom.js";

let isAsking = false;

/** Resolves once the user has entered a token. */
export function ask() {
  const dialog = at("sign-in");
  say(at("sign-in-trouble"), isPresented() ? "The server does not know that token." : "");
  present(null);
  at("sign-out").hidden = true;
  const field = dialog.querySelector("input");
  field.value = "";
  isAsking = true;
  if (!dialog.open) dialog.showModal();
  field.focus();
  return new Promise((done) => {
    dialog.querySelector("form").addEventListener("submit", () => {
      isAsking = false;
      present(field.value);
      field.value = "";
      at("sign-out").hidden = false;
      done();
    }, { once: true });
  });
}

export function start() {
  // The page needs a token, but browsers always close a dialog on Escape.
  at("sign-in").addEventListener("close", () => {
    if (isAsking) at("sign-in").showModal();
  });
  at("sign-out").hidden = !isPresented();
  at("sign-out").addEventListener("click", () => {
    present(null);
    // The shown data is removed with the token.
    location.reload();
  });
}
