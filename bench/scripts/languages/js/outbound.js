// Gets JSON from the upstream server whose port is the path, and answers with a summary of it.
export async function answer(request) {
  const port = request.url.slice(request.url.lastIndexOf("/") + 1);
  const response = await fetch(`http://127.0.0.1:${port}/orders`);
  const { orders } = await response.json();
  let total = 0;
  for (const { price, quantity } of orders) total += price * quantity;
  return new Response(JSON.stringify({ total, names: orders.map(({ name }) => name) }), {
    headers: { "content-type": "application/json" },
  });
}
