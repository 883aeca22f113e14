// Looks up in a table, TABLE, which stands before this file; see run.
function build() {
  const index = new Map();
  for (const line of TABLE.split("\n")) {
    const [key, name, value] = line.split(",");
    index.set(key, { name, value: Number(value) });
  }
  return index;
}

const index = IN_REQUEST ? undefined : build();

addEventListener("fetch", (event) => {
  const found = (index ?? build()).get("k12345");
  event.respondWith(new Response(JSON.stringify(found)));
});
