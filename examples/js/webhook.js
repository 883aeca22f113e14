// Takes webhooks whose senders sign the body with a secret, as GitHub does:
// deploy with --env SECRET=...

const encoder = new TextEncoder();

async function isSigned(body, signature, secret) {
  const hex = /^sha256=([0-9a-f]{64})$/.exec(signature ?? "")?.[1];
  if (hex === undefined) return false;
  const code = Uint8Array.from(hex.match(/../g), (byte) => parseInt(byte, 16));
  const key = await crypto.subtle.importKey("raw", encoder.encode(secret), { name: "HMAC", hash: "SHA-256" }, false, [
    "verify",
  ]);
  return crypto.subtle.verify("HMAC", key, code, body);
}

export default {
  async fetch(request, env, ctx) {
    if (!env.SECRET) return new Response("there is no SECRET\n", { status: 500 });
    const body = await request.bytes();
    if (!(await isSigned(body, request.headers.get("x-hub-signature-256"), env.SECRET))) {
      return new Response("this is not signed by whom we know\n", { status: 401 });
    }
    const event = JSON.parse(new TextDecoder().decode(body));
    ctx.waitUntil(Promise.resolve().then(() => console.log(request.headers.get("x-github-event"), event.action)));
    return new Response(null, { status: 204 });
  },
};
