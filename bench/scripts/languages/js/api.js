// Parses about 10 KB of JSON, transforms it and serialises it again.
export async function answer(request) {
  const { orders } = await request.json();
  const customers = {};
  for (const { id, customer, items } of orders) {
    const total = items.reduce((sum, item) => sum + item.price * item.quantity, 0);
    const entry = (customers[customer] ??= { orders: [], total: 0 });
    entry.orders.push({ id, total, items: items.map((item) => item.name.toUpperCase()) });
    entry.total += total;
  }
  return new Response(JSON.stringify({ customers }), {
    headers: { "content-type": "application/json" },
  });
}
