export default {
  fetch: (request) => new Response(`Hello from ${request.url}\n`),
};
