// The admin API, asked one thing after the other so that a page holds one connection.

/** How long an answer may take, in milliseconds. */
const PATIENCE = 5000;

/** What the server said no to, or `null` status when it said nothing. */
export class Failure extends Error {
  constructor(status, message, problem) {
    super(message);
    this.status = status;
    this.problem = problem;
  }
}

/** Where the tab keeps the token that its owner typed in: it is the tab's, and that of its duplicates. */
const KEPT = "nearflash-token";

let token = sessionStorage.getItem(KEPT);

/** Takes a token for what is asked from now on; none with `null`. */
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

/** What is at a path. */
export const get = (path) => call(path);

/** What the server says to a body. */
export const post = (path, body) => call(path, {
  method: "POST",
  headers: { "content-type": "application/json" },
  body: JSON.stringify(body),
});
