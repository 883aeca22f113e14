// A page from a template. Templates are taken apart once, when the function is deployed.

import layout from "./layout.html";
import { compile, raw } from "./template.js";

const page = compile(layout);

export default {
  fetch(request) {
    const { searchParams } = new URL(request.url);
    const names = searchParams.getAll("name");
    const items = names.map((name) => compile("<li>{{name}}</li>")({ name })).join("");
    const body = page({
      title: names.length === 0 ? "Nobody" : `${names.length} of us`,
      items: raw(items),
    });
    return new Response(body, { headers: { "content-type": "text/html; charset=utf-8" } });
  },
};
