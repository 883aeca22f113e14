// Forwards GET requests to an origin, and caches its responses for a minute.

const LIFETIME = 60_000;

// Larger responses are passed on, but not cached, in bytes.
const LARGEST = 256 << 10;

export default {
  async fetch(request, env, ctx) {
    if (request.method !== "GET") return new Response("only GET\n", { status: 405, headers: { allow: "GET" } });
    const { pathname, search } = new URL(request.url);
    const key = `page:${pathname}${search}`;

    const cached = await env.default.get(key, "json");
    if (cached !== null && Date.now() - cached.time < LIFETIME) {
      const headers = { "content-type": cached.type, "x-cache": "hit" };
      return new Response(cached.body, { headers });
    }

    const response = await fetch(env.ORIGIN + pathname + search);
    const type = response.headers.get("content-type") ?? "";
    const headers = { "content-type": type, "x-cache": "miss" };
    if (!response.ok || !type.startsWith("text/")) {
      return new Response(response.body, { status: response.status, headers });
    }
    const body = await response.text();
    if (body.length <= LARGEST) {
      // The client does not wait for this.
      ctx.waitUntil(env.default.put(key, JSON.stringify({ time: Date.now(), type, body })));
    }
    return new Response(body, { headers });
  },
};
