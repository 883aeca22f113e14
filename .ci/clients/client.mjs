// The clients of Node.js against a node: fetch, http and http2.

import assert from "node:assert/strict";
import http from "node:http";
import http2 from "node:http2";

const url = process.argv[2];
const large = "0123456789abcdef".repeat(1 << 18);

const hello = await fetch(`${url}/http-probe/hello`);
assert.equal(await hello.text(), "hello\n");

const echoed = await fetch(`${url}/http-probe/echo`, { method: "POST", body: large });
assert.ok((await echoed.text()).endsWith(large));

const chunks = new ReadableStream({
  start(controller) {
    for (let at = 0; at < large.length; at += 100_000) {
      controller.enqueue(new TextEncoder().encode(large.slice(at, at + 100_000)));
    }
    controller.close();
  },
});
const streamed = await fetch(`${url}/http-probe/echo`, { method: "PUT", body: chunks, duplex: "half" });
assert.ok((await streamed.text()).endsWith(large));

const drip = await fetch(`${url}/drip/`);
const arrivals = [];
for await (const _ of drip.body) arrivals.push(performance.now());
assert.ok(arrivals.length >= 5, `${arrivals.length} chunks`);
assert.ok(arrivals.at(-1) - arrivals[0] > 200, "they came in one piece");

const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
const get = (path, headers) =>
  new Promise((resolve, reject) => {
    const request = http.get(`${url}${path}`, { agent, headers }, (response) => {
      let body = "";
      response.setEncoding("utf8").on("data", (text) => (body += text));
      response.on("end", () => resolve({ body, response, reused: request.reusedSocket }));
    });
    request.on("error", reject);
  });
await get("/http-probe/hello");
const again = await get("/http-probe/trailers", { TE: "trailers" });
assert.ok(again.reused);
assert.equal(again.response.trailers["x-trailer"], "after the body");
agent.destroy();

const session = http2.connect(url);
const stream = session.request({ ":path": "/http-probe/echo", ":method": "POST" });
let body = "";
stream.setEncoding("utf8").on("data", (text) => (body += text));
stream.end(large);
await new Promise((resolve, reject) => stream.on("end", resolve).on("error", reject));
assert.ok(body.endsWith(large));
session.close();

console.log("fetch, http and http2");
