// Counts hits: `GET /NAME` adds one to that name's number and answers with it.

import { increment } from "wasi:keyvalue/atomics@0.2.0-draft2";
import { open } from "wasi:keyvalue/store@0.2.0-draft2";

// The function's own store, which needs no grant.
const STORE = "default";

addEventListener("fetch", (event) => event.respondWith(answer(event.request)));

function answer(request) {
  if (request.method !== "GET") {
    return text(405, "only GET counts", { allow: "GET" });
  }
  const name = new URL(request.url).pathname.slice(1);
  if (!/^[A-Za-z0-9._-]{1,64}$/.test(name)) {
    return text(404, "a name has 1 to 64 letters, digits, '-', '_' and '.'");
  }
  try {
    // One step for all instances: two requests at once get two numbers.
    const count = increment(open(STORE), name, 1n);
    return text(200, String(count));
  } catch (error) {
    // The function's log; a client need not know more than that it may try again.
    console.error(`${name} was not counted: ${JSON.stringify(error.payload) ?? error}`);
    return text(503, "the count is not available");
  }
}

function text(status, line, headers = {}) {
  return new Response(`${line}\n`, {
    status,
    // What a cache answers is not counted.
    headers: { "content-type": "text/plain; charset=utf-8", "cache-control": "no-store", ...headers },
  });
}
