import { Hono } from "hono";
import { secureHeaders } from "hono/secure-headers";

import { Bookmarks, type Store } from "./bookmarks.js";
import { draft } from "./draft.js";
import { page } from "./page.js";

interface Env {
  Bindings: { default: Store };
}

const app = new Hono<Env>();

app.use(secureHeaders());

app.get("/", async (c) => {
  const prefix = c.req.header("x-forwarded-prefix") ?? "";
  return c.html(page(await new Bookmarks(c.env.default).list(), prefix));
});

app.get("/bookmarks", async (c) => c.json(await new Bookmarks(c.env.default).list()));

app.post("/bookmarks", async (c) => {
  const isForm = c.req.header("content-type")?.startsWith("application/x-www-form-urlencoded");
  const sent = isForm ? await c.req.parseBody() : await c.req.json().catch(() => null);
  const parsed = draft.safeParse(sent);
  if (!parsed.success) {
    const errors = parsed.error.issues.map(({ path, message }) => ({ path: path.join("."), message }));
    return c.json({ errors }, 422);
  }
  const saved = await new Bookmarks(c.env.default).add(parsed.data);
  // The prefix of the function's URL keeps the redirect inside the function.
  if (isForm) return c.redirect(`${c.req.header("x-forwarded-prefix") ?? ""}/`, 303);
  return c.json(saved, 201);
});

app.delete("/bookmarks/:id{[0-9]+}", async (c) => {
  const existed = await new Bookmarks(c.env.default).delete(Number(c.req.param("id")));
  return existed ? c.body(null, 204) : c.json({ error: "no such bookmark" }, 404);
});

app.notFound((c) => c.json({ error: "no such page" }, 404));

export default app;
