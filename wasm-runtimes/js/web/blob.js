// Blobs, files and forms (File API; XMLHttpRequest Standard, section 4).

let blobBytes;

function joined(parts) {
  if (parts.length === 1) return parts[0];
  const all = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

function streamOf(bytes) {
  return new ReadableStream({
    type: "bytes",
    start(controller) {
      if (bytes.length > 0) controller.enqueue(bytes.slice());
      controller.close();
    },
  });
}

class Blob {
  #bytes;
  #type;
  constructor(parts = [], options = {}) {
    const iterator = typeof parts === "object" && parts !== null ? parts[Symbol.iterator] : undefined;
    if (typeof iterator !== "function") throw new TypeError("a Blob is made of a list of parts");
    const given = [];
    // One after the other: converting one may change those behind it.
    for (const part of { [Symbol.iterator]: () => iterator.call(parts) }) {
      const isBytes = part instanceof Blob || part instanceof ArrayBuffer || ArrayBuffer.isView(part);
      given.push(isBytes ? part : usv(part));
    }
    options = dictionary(options);
    const endings = options.endings === undefined ? "transparent" : String(options.endings);
    if (endings !== "transparent" && endings !== "native") throw new TypeError(`no endings are ${endings}`);
    const type = options.type === undefined ? "" : String(options.type);
    this.#bytes = joined(given.map((part) => {
      if (typeof part === "string") return native.encode(endings === "native" ? part.replace(/\r\n?/g, "\n") : part);
      return part instanceof Blob ? part.#bytes : copyOf(part);
    }).concat(new Uint8Array()));
    this.#type = /^[\x20-\x7e]*$/.test(type) ? type.toLowerCase() : "";
  }
  static inside() { blobBytes = (blob) => blob.#bytes; }
  get size() { return this.#bytes.length; }
  get type() { return this.#type; }
  slice(start = 0, end = this.size, type = "") {
    const part = new Blob([], { type });
    part.#bytes = this.#bytes.subarray(...[start, end].map((at) => (at < 0 ? Math.max(this.size + at, 0) : Math.min(at, this.size))));
    return part;
  }
  async arrayBuffer() { return this.#bytes.slice().buffer; }
  async bytes() { return this.#bytes.slice(); }
  async text() { return native.decode(this.#bytes, "utf-8", false, false); }
  stream() { return streamOf(this.#bytes); }
}
Blob.inside();
delete Blob.inside;

class File extends Blob {
  #name;
  #modified;
  constructor(parts, name, options = {}) {
    if (arguments.length < 2) throw new TypeError("a File has parts and a name");
    super(parts, options);
    this.#name = usv(name);
    this.#modified = Number(options?.lastModified ?? Date.now());
  }
  get name() { return this.#name; }
  get lastModified() { return this.#modified; }
  get webkitRelativePath() { return ""; }
}

class FormData {
  #pairs = new Pairs([]);
  constructor(form) {
    if (form !== undefined) throw new TypeError("there are no HTML forms to make FormData of");
  }
  static #value(value, file) {
    if (!(value instanceof Blob)) {
      if (file !== undefined) throw new TypeError("a value with a file's name is a Blob");
      return usv(value);
    }
    if (value instanceof File && file === undefined) return value;
    return new File([value], file ?? "blob", { type: value.type, lastModified: value.lastModified });
  }
  append(name, value, file) {
    if (arguments.length < 2) throw new TypeError("append takes a name and a value");
    this.#pairs.append(usv(name), FormData.#value(value, file));
  }
  delete(name) { this.#pairs.delete(usv(name)); }
  get(name) { return this.#pairs.get(usv(name)) ?? null; }
  getAll(name) { return this.#pairs.getAll(usv(name)); }
  has(name) { return this.#pairs.has(usv(name)); }
  set(name, value, file) {
    if (arguments.length < 2) throw new TypeError("set takes a name and a value");
    this.#pairs.set(usv(name), FormData.#value(value, file));
  }
  forEach(run, self) { forEachOf(this, run, self); }
  entries() { return this.#pairs.entries(); }
  keys() { return this.#pairs.keys(); }
  values() { return this.#pairs.values(); }
}
FormData.prototype[Symbol.iterator] = FormData.prototype.entries;

// A form as multipart/form-data (RFC 7578; HTML Standard, section 4.10.21.8).
function multipart(form) {
  const boundary = "----faasw" + native.random().toString(36).slice(2) + native.random().toString(36).slice(2);
  const lines = (text) => text.replace(/\r\n?|\n/g, "\r\n");
  const escaped = (name) => name.replace(/\r/g, "%0D").replace(/\n/g, "%0A").replace(/"/g, "%22");
  const parts = [];
  for (const [name, value] of form) {
    const head = `--${boundary}\r\nContent-Disposition: form-data; name="${escaped(lines(name))}"`;
    if (typeof value === "string") {
      parts.push(native.encode(`${head}\r\n\r\n${lines(value)}\r\n`));
    } else {
      const type = value.type === "" ? "application/octet-stream" : value.type;
      parts.push(native.encode(`${head}; filename="${escaped(value.name)}"\r\nContent-Type: ${type}\r\n\r\n`));
      parts.push(blobBytes(value), native.encode("\r\n"));
    }
  }
  parts.push(native.encode(`--${boundary}--\r\n`));
  return { bytes: joined(parts), type: `multipart/form-data; boundary=${boundary}` };
}

function formOf(bytes, type) {
  const form = new FormData();
  const essence = type.split(";", 1)[0].trim().toLowerCase();
  if (essence === "application/x-www-form-urlencoded") {
    for (const [name, value] of native.parseForm(native.decode(bytes, "utf-8", false, true))) form.append(name, value);
    return form;
  }
  const boundary = /;\s*boundary=(?:"([^"]*)"|([^;\s]*))/i.exec(type);
  const parts = essence === "multipart/form-data" && boundary !== null ? native.parseMultipart(bytes, boundary[1] ?? boundary[2]) : undefined;
  if (parts === undefined) throw new TypeError("the body is no form");
  for (const [name, file, kind, content] of parts) {
    if (file === undefined) form.append(name, native.decode(content, "utf-8", false, true));
    else form.append(name, new File([content], file, { type: kind ?? "text/plain" }));
  }
  return form;
}
