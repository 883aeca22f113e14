// Turns CSV (RFC 4180) into a JSON value for each line, while it comes: no body is too long.

/** Fields and lines of CSV, whatever pieces it comes in. */
class Rows {
  #field = "";
  #row = [];
  #isQuoted = false;
  #wasQuote = false;

  *take(text) {
    for (const character of text) {
      if (this.#isQuoted && !this.#wasQuote) {
        if (character === '"') this.#wasQuote = true;
        else this.#field += character;
        continue;
      }
      if (this.#wasQuote) {
        this.#wasQuote = false;
        if (character === '"') {
          this.#field += character;
          continue;
        }
        this.#isQuoted = false;
      }
      if (character === '"' && this.#field === "") this.#isQuoted = true;
      else if (character === ",") this.#endField();
      else if (character === "\n") yield this.#endRow();
      else if (character !== "\r") this.#field += character;
    }
  }

  *end() {
    if (this.#field !== "" || this.#row.length > 0) yield this.#endRow();
  }

  #endField() {
    this.#row.push(this.#field);
    this.#field = "";
  }

  #endRow() {
    this.#endField();
    const row = this.#row;
    this.#row = [];
    return row;
  }
}

function toJson() {
  const rows = new Rows();
  let names;
  const write = (row, to) => {
    if (names === undefined) names = row;
    else to.enqueue(JSON.stringify(Object.fromEntries(names.map((name, index) => [name, row[index] ?? null]))) + "\n");
  };
  return new TransformStream({
    transform(text, to) {
      for (const row of rows.take(text)) write(row, to);
    },
    flush(to) {
      for (const row of rows.end()) write(row, to);
    },
  });
}

export default {
  fetch(request) {
    if (request.method !== "POST") return new Response("POST some CSV\n", { status: 405, headers: { allow: "POST" } });
    const lines = request.body
      .pipeThrough(new TextDecoderStream())
      .pipeThrough(toJson())
      .pipeThrough(new TextEncoderStream());
    return new Response(lines, { headers: { "content-type": "application/x-ndjson" } });
  },
};
