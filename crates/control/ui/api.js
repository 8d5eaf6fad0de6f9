// A client of the admin API. Requests run one after another, so that a page holds one connection.

/** Maximum time for an answer, in milliseconds. */
const PATIENCE = 5000;

/** A refused request; the status is `null` without an answer. */
export class Failure extends Error {
  constructor(status, message, problem) {
    super(message);
    this.status = status;
    this.problem = problem;
  }
}

/** The key of the entered token in the tab's storage, which duplicates of the tab copy. */
const KEPT = "nearflash-token";

let token = sessionStorage.getItem(KEPT);

/** Sets the token for further requests; `null` for none. */
export function present(given) {
  token = given;
  if (given === null) sessionStorage.removeItem(KEPT);
  else sessionStorage.setItem(KEPT, given);
}

export const isPresented = () => token !== null;

async function call(path, options = {}) {
  const headers = { ...options.headers, ...(token && { authorization: `Bearer ${token}` }) };
  let response;
  try {
    response = await fetch(path, { ...options, headers, signal: AbortSignal.timeout(PATIENCE) });
  } catch {
    throw new Failure(null, "the server does not answer");
  }
  let body;
  try {
    body = await response.json();
  } catch {
    throw new Failure(null, "the answer broke off");
  }
  if (response.ok) return body;
  throw new Failure(response.status, body.error?.message ?? response.statusText, body.error);
}

/** Returns the resource at a path. */
export const get = (path) => call(path);

/** Sends a body and returns the answer. */
export const post = (path, body) => call(path, {
  method: "POST",
  headers: { "content-type": "application/json" },
  body: JSON.stringify(body),
});
