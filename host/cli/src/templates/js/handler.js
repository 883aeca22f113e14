// What is out here runs once, when the function is deployed.
const GREETINGS = new Map([["en", "Hello"], ["de", "Hallo"], ["fr", "Bonjour"]]);

export default {
  // Each request runs this, in a fork of what was there then.
  fetch(request, env) {
    const { searchParams } = new URL(request.url);
    const greeting = GREETINGS.get(searchParams.get("lang") ?? env.LANG ?? "en") ?? "Hello";
    return new Response(`${greeting}, ${searchParams.get("name") ?? "you"}!\n`);
  },
};
