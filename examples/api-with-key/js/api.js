// Stands before an API that wants a key: `GET /ID` answers with the API's item of this id, and
// whoever asks needs no key.

import { get } from "wasi:config/store@0.2.0-draft-2024-09-27";

// Milliseconds for the whole of what the API is asked, where the configuration's `timeout_ms`
// says nothing.
const TIMEOUT = 5000;

// So many bytes an item has at most.
const LARGEST_ITEM = 1 << 20;

// What the client gets in place of an item. Why is for the function's log, and never has the key.
class Refusal extends Error {
  constructor(status, text, headers = {}) {
    super(text);
    Object.assign(this, { status, headers });
  }
}

const badGateway = () => new Refusal(502, "the API gives no answer that is one");

addEventListener("fetch", (event) => event.respondWith(answer(event.request)));

async function answer(request) {
  const headers = { "content-type": "application/json", "cache-control": "no-store" };
  try {
    return new Response(await item(request), { headers });
  } catch (refusal) {
    if (!(refusal instanceof Refusal)) throw refusal;
    const body = `${JSON.stringify({ error: refusal.message })}\n`;
    return new Response(body, { status: refusal.status, headers: { ...headers, ...refusal.headers } });
  }
}

async function item(request) {
  if (request.method !== "GET") {
    throw new Refusal(405, "only GET is answered", { allow: "GET" });
  }
  // The key opens all of the API, so a client chooses an id and no path.
  const id = new URL(request.url).pathname.slice(1);
  if (!/^[A-Za-z0-9_-]{1,64}$/.test(id)) {
    throw new Refusal(404, "an id has 1 to 64 letters, digits, '-' and '_'");
  }
  const milliseconds = Number(get("timeout_ms") ?? TIMEOUT);
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => {
      console.error(`the API has not answered within ${milliseconds} ms`);
      reject(new Refusal(504, "the API takes too long"));
    }, milliseconds);
  });
  try {
    return await Promise.race([ask(id, request), late]);
  } finally {
    clearTimeout(timer);
  }
}

async function ask(id, request) {
  const headers = { authorization: `Bearer ${setting("api_key")}`, accept: "application/json" };
  // The API's part of a trace belongs to that of the request.
  for (const name of ["traceparent", "tracestate"]) {
    const value = request.headers.get(name);
    if (value !== null) headers[name] = value;
  }
  let answer;
  try {
    answer = await fetch(`${setting("api_url").replace(/\/+$/, "")}/${id}`, { headers });
  } catch (error) {
    if (error instanceof Refusal) throw error;
    console.error(`the API was not reached: ${error.message}`);
    throw badGateway();
  }
  if (answer.status === 200) return read(answer.body);
  if (answer.status === 404) throw new Refusal(404, "the API has no such item");
  console.error(`the API answers ${answer.status}`);
  if (answer.status === 429 || answer.status === 503) {
    const time = answer.headers.get("retry-after");
    throw new Refusal(503, "the API is asked too often", time === null ? {} : { "retry-after": time });
  }
  // 401 and 403 too: that the key is refused is not the client's fault.
  throw badGateway();
}

// All of the body, before anything is answered: one that breaks off is a 502, and no half item.
async function read(body) {
  const pieces = [];
  let length = 0;
  try {
    for (const reader = body.getReader(); ; ) {
      const { done, value } = await reader.read();
      if (done) break;
      length += value.length;
      if (length > LARGEST_ITEM) throw new Error("it is too large");
      pieces.push(value);
    }
  } catch (error) {
    console.error(`the API's answer broke off: ${error.message}`);
    throw badGateway();
  }
  return new Blob(pieces);
}

// A value of the configuration, or a secret: it is for the command line to say which.
function setting(key) {
  const value = get(key);
  if (value === undefined) {
    console.error(`misconfigured: ${key} is not set`);
    throw new Refusal(500, "the function is misconfigured");
  }
  return value;
}
