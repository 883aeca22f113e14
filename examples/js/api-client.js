// Gives clients one part of an API without giving them its key: GET /ID returns the item ID.

const json = { "content-type": "application/json" };

export default {
  async fetch(request, env) {
    const id = new URL(request.url).pathname.slice(1);
    // An id, and no path: the key may give access to more than items.
    if (!/^[\w-]{1,64}$/.test(id)) return Response.json({ error: "no such item" }, { status: 404 });

    const response = await fetch(`${env.API_URL}/items/${id}`, {
      headers: { authorization: `Bearer ${env.API_KEY}`, accept: "application/json" },
      signal: AbortSignal.timeout(5000),
    });
    if (response.status === 404) return Response.json({ error: "no such item" }, { status: 404 });
    if (!response.ok) {
      console.error(`the API answered ${response.status}`);
      return Response.json({ error: "the API does not work" }, { status: 502 });
    }
    return new Response(response.body, { headers: json });
  },
};
