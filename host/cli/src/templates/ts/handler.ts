// What is out here runs once, when the function is deployed.
const GREETINGS: ReadonlyMap<string, string> = new Map([
  ["en", "Hello"],
  ["de", "Hallo"],
  ["fr", "Bonjour"],
]);

interface Env {
  LANG?: string;
}

export default {
  // Each request runs this, in a fork of what was there then.
  fetch(request: Request, env: Env): Response {
    const { searchParams } = new URL(request.url);
    const greeting = GREETINGS.get(searchParams.get("lang") ?? env.LANG ?? "en") ?? "Hello";
    return new Response(`${greeting}, ${searchParams.get("name") ?? "you"}!\n`);
  },
};
