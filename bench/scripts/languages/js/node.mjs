// Serves a script of this folder natively: node.mjs FILE. Prints its port.
import { createServer } from "node:http";
import { readFileSync } from "node:fs";
import { runInThisContext } from "node:vm";

let listener;
globalThis.addEventListener = (_, added) => (listener = added);
runInThisContext(readFileSync(process.argv[2], "utf8"));

const server = createServer(async (incoming, outgoing) => {
  const pieces = [];
  for await (const piece of incoming) pieces.push(piece);
  const { method, headers } = incoming;
  const body = pieces.length ? Buffer.concat(pieces) : undefined;
  const request = new Request(`http://${headers.host}${incoming.url}`, { method, headers, body });
  const answer = await new Promise((respondWith) => listener({ request, respondWith }));
  outgoing.writeHead(answer.status, Object.fromEntries(answer.headers));
  outgoing.end(Buffer.from(await answer.arrayBuffer()));
});
server.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}/`));
