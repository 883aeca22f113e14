// Renders a page from a template, which the top level compiles.
const TEMPLATE = `<!doctype html>
<title>{{title}}</title>
<h1>{{title}}</h1>
<ul>
{{#items}}  <li class="{{kind}}"><a href="/items/{{id}}">{{name}}</a>: {{price}}</li>
{{/items}}</ul>
`;
const ENTITIES = { "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" };
const escape = (value) => String(value).replace(/[&<>"]/g, (character) => ENTITIES[character]);

function compile(text) {
  const parts = [];
  const pattern = /\{\{#(\w+)\}\}([^]*?)\{\{\/\1\}\}|\{\{(\w+)\}\}/g;
  let end = 0;
  for (const match of text.matchAll(pattern)) {
    const before = text.slice(end, match.index);
    const [whole, list, body, name] = match;
    const each = list && compile(body);
    parts.push(() => before);
    parts.push(list ? (of) => of[list].map(each).join("") : (of) => escape(of[name]));
    end = match.index + whole.length;
  }
  const rest = text.slice(end);
  return (of) => parts.map((part) => part(of)).join("") + rest;
}

const page = compile(TEMPLATE);

export function answer() {
  const items = [];
  for (let id = 0; id < 50; id++) {
    items.push({ id, name: `Item <${id}>`, kind: id % 2 ? "odd" : "even", price: (id * 1.25).toFixed(2) });
  }
  const headers = { "content-type": "text/html; charset=utf-8" };
  return new Response(page({ title: "Items & more", items }), { headers });
}
