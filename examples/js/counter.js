// Counts the visits of each path in the function's own key-value store.

export default {
  async fetch(request, env) {
    const { pathname } = new URL(request.url);
    if (request.method === "DELETE") {
      await env.default.delete(`visits:${pathname}`);
      return new Response(null, { status: 204 });
    }
    if (pathname === "/") {
      const { keys } = await env.default.list({ prefix: "visits:" });
      const visits = await env.default.get(keys.map((key) => key.name), "json");
      return Response.json(Object.fromEntries(visits));
    }
    // Atomic: requests at the same time are all counted.
    const visits = await env.default.increment(`visits:${pathname}`);
    return new Response(`visit ${visits} of ${pathname}\n`);
  },
};
