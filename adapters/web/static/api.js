// Talking to the server: JSON, and turns as streams of server-sent events.

/** Something the server refused or could not do; `message` may be shown. */
export class ApiError extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }

  /** Whether asking again will be refused again: not where one has to log in, or the server has to recover. */
  get isFinal() {
    return this.status < 500 && ![401, 408, 429].includes(this.status);
  }
}

/** Nobody answered at the server's address; whether the request arrived is not known. */
export class Unreachable extends Error {
  constructor() {
    super("The server cannot be reached.");
  }
}

export async function getJson(path, query = {}) {
  return read(await send("GET", withQuery(path, query)));
}

export async function postJson(path, query = {}, body = undefined) {
  return read(await send("POST", withQuery(path, query), body));
}

/** Ask, and give the turn's events as they come. Sending the same turn id again asks nothing twice: it follows. */
export async function* ask(turn, signal) {
  yield* events(await send("POST", "/v1/turns", turn, signal));
}

/** Give the events of a turn asked before: those that were, then those that come. */
export async function* follow(sessionId, turnId, signal) {
  const path = withQuery(`/v1/turns/${encodeURIComponent(turnId)}/events`, { sessionId });
  yield* events(await send("GET", path, undefined, signal));
}

/** Try a failed turn again, as the turn `newId`; like the next, it does nothing twice. */
export async function* retry(sessionId, turnId, newId, signal) {
  const path = withQuery(`/v1/turns/${encodeURIComponent(turnId)}/retry`, { sessionId });
  yield* events(await send("POST", path, undefined, signal, { "Idempotency-Key": newId }));
}

export async function* decide(sessionId, ticketId, verdict, newId, signal) {
  const body = { sessionId, verdict, turnId: newId };
  yield* events(await send("POST", `/v1/tickets/${encodeURIComponent(ticketId)}`, body, signal));
}

function withQuery(path, query) {
  const text = new URLSearchParams(query).toString();
  return text ? `${path}?${text}` : path;
}

async function send(method, path, body, signal, headers = {}) {
  const init = { method, signal, headers, credentials: "same-origin" };
  if (body !== undefined) {
    init.body = JSON.stringify(body);
    init.headers = { ...headers, "Content-Type": "application/json" };
  }
  const response = await reached(path, init);
  if (response.status === 401) location.assign("/login");
  if (!response.ok) throw new ApiError(response.status, await faultOf(response));
  return response;
}

/** Give the JSON of a reply; what broke off on the way or is no JSON is told in our words. */
async function read(response) {
  try {
    return await response.json();
  } catch {
    throw new ApiError(response.status, "The server’s answer could not be read.");
  }
}

async function reached(path, init) {
  try {
    return await fetch(path, init);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Unreachable();
  }
}

async function faultOf(response) {
  try {
    const { error, details, incident } = await response.json();
    const fields = Object.entries(details ?? {}).map(([name, faults]) => `${name}: ${faults.join(", ")}`);
    return [error, ...fields, incident ? `(incident ${incident})` : ""].filter(Boolean).join(" · ");
  } catch {
    return `The server answered ${response.status}.`;
  }
}

/** Read server-sent events out of a response: `[name, data]`, comments left out. */
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    rest += value;
    let end;
    while ((end = rest.indexOf("\n\n")) >= 0) {
      const block = rest.slice(0, end);
      rest = rest.slice(end + 2);
      const name = /^event: (.*)$/m.exec(block)?.[1];
      const data = /^data: (.*)$/m.exec(block)?.[1];
      if (name && data) yield [name, JSON.parse(data)];
    }
  }
}
