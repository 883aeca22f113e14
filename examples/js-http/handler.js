// A function in JavaScript, as service workers write it.

// Stays at 1: every request meets the state that the build left.
let count = 0;

addEventListener("fetch", (event) => event.respondWith(answer(event.request)));

async function answer(request) {
  count += 1;
  const url = new URL(request.url);
  const lines = [
    `${request.method} ${url.pathname}${url.search}`,
    `x-echo ${request.headers.get("x-echo") ?? ""}`,
    `random ${crypto.randomUUID()}`,
    `count ${count}`,
    "",
    "",
  ];
  // Bytes, not text: the body need not be UTF-8.
  const body = await request.arrayBuffer();
  return new Response(new Blob([lines.join("\n"), body]), {
    headers: { "content-type": "text/plain; charset=utf-8" },
  });
}
