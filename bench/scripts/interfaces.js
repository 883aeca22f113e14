// Measures the interfaces of scripts within one request: microseconds per call, once it is warm.

const ROUNDS = 20000;

const BOOKS = JSON.stringify(
  Array.from({ length: 200 }, (_, id) => ({ id, name: `name${id}`, tags: ["a", "b"], price: id * 1.5 })),
);
const PARSED = JSON.parse(BOOKS);

const CASES = {
  "an empty call": () => {},
  "new Response(text)": () => new Response("hello\n"),
  "new Response(text, { headers })": () => new Response("hello\n", { headers: { "content-type": "text/html" } }),
  "new Headers(object)": () => new Headers({ a: "b" }),
  "new URL(text)": () => new URL("http://localhost/a/b?c=d&e=f#g"),
  "url.searchParams.get(name)": () => new URL("http://localhost/a/b?c=d&e=f#g").searchParams.get("c"),
  "new TextEncoder().encode(text)": () => new TextEncoder().encode("hello world"),
  "Math.random()": () => Math.random(),
  "structuredClone(object)": () => structuredClone({ a: [1, 2] }),
};

function each(rounds, run) {
  const began = performance.now();
  for (let round = 0; round < rounds; round++) run();
  return ((performance.now() - began) * 1000) / rounds;
}

export default {
  fetch() {
    const lines = Object.entries(CASES).map(([name, run]) => [name, each(ROUNDS, run)]);
    lines.push([`JSON.parse of ${BOOKS.length} bytes`, each(200, () => JSON.parse(BOOKS))]);
    lines.push([`JSON.stringify to ${BOOKS.length} bytes`, each(200, () => JSON.stringify(PARSED))]);
    return new Response(lines.map(([name, time]) => `${time.toFixed(2).padStart(8)}  ${name}\n`).join(""));
  },
};
