// A form that takes a file.

const escape = (text) => text.replace(/[&<>"]/g, (character) => `&#${character.charCodeAt(0)};`);

const page = (result = "") =>
  new Response(
    `<!doctype html>
<meta charset="utf-8">
<title>Upload</title>
<form method="post" enctype="multipart/form-data">
  <input name="note"> <input type="file" name="file" required> <button>Send</button>
</form>
${result}
`,
    { headers: { "content-type": "text/html; charset=utf-8" } },
  );

export default {
  async fetch(request) {
    if (request.method !== "POST") return page();

    let form;
    try {
      form = await request.formData();
    } catch {
      return new Response("the body is no form\n", { status: 400 });
    }
    const file = form.get("file");
    if (!(file instanceof File)) return new Response("the form has no file\n", { status: 400 });

    const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", await file.arrayBuffer()));
    const hex = Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
    const note = escape(String(form.get("note") ?? ""));
    return page(`<p>${escape(file.name)}: ${file.size} bytes, SHA-256 ${hex}. ${note}</p>`);
  },
};
