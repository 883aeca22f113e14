// Requests and responses, and their bodies (Fetch Standard, sections 5.2 to 5.5).

const METHOD = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
const token = Symbol("token");

// Of what kind a body is, as its source has it:
//   null         there is none
//   a string     text
//   Uint8Array   bytes
//   Incoming     what the client of a request sends, or a server that a script calls (Call)
//   ReadableStream

// What the client of one request sends. A script may keep one from a warm-up, and it has ended.
class Incoming {
  check() {
    if (this !== incoming) throw new TypeError("this request has ended: what was not read of it is gone");
  }
  // The next piece: null at the end, undefined if nothing has arrived.
  piece() { return native.receivePiece(); }
  readable() { return native.receivable(); }
  // Receives the whole rest, which `received` or `receivedText` then returns. The caller checks first.
  async receive() {
    while (!native.receive()) {
      await native.receivable();
      this.check();
    }
  }
  received() { return native.received(); }
  receivedText() { return native.receivedText(); }
  stream() { return receiver(this); }
}

// Of the request under way.
let incoming;

function beginIncoming() { incoming = new Incoming(); }

function extract(value) {
  if (value instanceof Incoming) return { source: value, type: null };
  if (typeof value === "string") return { source: value.toWellFormed(), type: "text/plain;charset=UTF-8" };
  if (value === null || value === undefined) return { source: null, type: null };
  if (value instanceof ReadableStream) {
    if (value.locked || value._disturbed) throw new TypeError("the stream of a body was read already, or somebody reads it");
    return { source: value, type: null };
  }
  if (value instanceof URLSearchParams) {
    return { source: value.toString(), type: "application/x-www-form-urlencoded;charset=UTF-8" };
  }
  if (value instanceof FormData) {
    const { bytes, type } = multipart(value);
    return { source: bytes, type };
  }
  if (value instanceof Blob) return { source: blobBytes(value), type: value.type === "" ? null : value.type };
  if (value instanceof ArrayBuffer || ArrayBuffer.isView(value)) return { source: copyOf(value), type: null };
  if (typeof value[Symbol.asyncIterator] === "function") return { source: ReadableStream.from(value), type: null };
  return { source: usv(value), type: "text/plain;charset=UTF-8" };
}

function receiver(source) {
  return new ReadableStream({
    __proto__: null,
    type: "bytes",
    async pull(controller) {
      for (;;) {
        source.check();
        const piece = source.piece();
        if (piece === null) {
          controller.close();
          controller.byobRequest?.respond(0);
          return;
        }
        if (piece !== undefined) return controller.enqueue(piece);
        await source.readable();
      }
    },
  });
}

async function drained(stream) {
  const parts = [new Uint8Array()];
  const reader = stream.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return joined(parts);
    if (!(value instanceof Uint8Array)) throw new TypeError("a body's stream has something that is no Uint8Array");
    parts.push(value);
  }
}

let sourceOf;
let hasBody;
let typeOf;

class Body {
  #source;
  #stream;
  #isUsed = false;
  constructor(source) {
    this.#source = source;
    this.#stream = source instanceof ReadableStream ? source : null;
  }
  static inside() {
    // Takes a body as what it is made of, if nobody has touched it.
    sourceOf = (body) => {
      if (body.bodyUsed) throw new TypeError("the body was used already");
      if (body.#stream?.locked) throw new TypeError("somebody reads the body");
      body.#isUsed = body.#source !== null;
      return body.#stream ?? body.#source;
    };
    hasBody = (body) => body.#source !== null;
    typeOf = (body) => body.headers.get("content-type") ?? "";
  }
  get body() {
    if (this.#source === null) return null;
    if (this.#stream === null) {
      const source = this.#source;
      if (source instanceof Incoming) this.#stream = source.stream();
      else this.#stream = streamOf(typeof source === "string" ? native.encode(source) : source);
      if (this.#isUsed) this.#stream.getReader();
    }
    return this.#stream;
  }
  get bodyUsed() { return this.#isUsed || this.#stream?._disturbed === true; }
  // Fails if the rest of the body cannot come any more, before anything else happens.
  #check() { if (this.#source instanceof Incoming) this.#source.check(); }
  async #bytes() {
    this.#check();
    const source = sourceOf(this);
    if (source === null) return new Uint8Array();
    if (typeof source === "string") return native.encode(source);
    if (source instanceof Incoming) {
      await source.receive();
      return source.received();
    }
    return source instanceof ReadableStream ? drained(source) : copyOf(source);
  }
  async #text() {
    this.#check();
    const source = sourceOf(this);
    if (source === null) return "";
    if (typeof source === "string") return source.startsWith("\ufeff") ? source.slice(1) : source;
    if (source instanceof Incoming) {
      await source.receive();
      return source.receivedText();
    }
    return native.decode(source instanceof ReadableStream ? await drained(source) : source, "utf-8", false, false);
  }
  async arrayBuffer() {
    this.#check();
    const bytes = await this.#bytes();
    return bytes.byteLength === bytes.buffer.byteLength ? bytes.buffer : bytes.slice().buffer;
  }
  bytes() { return this.#bytes(); }
  async blob() {
    this.#check();
    return new Blob([await this.#bytes()], { type: typeOf(this) });
  }
  async formData() {
    this.#check();
    const type = typeOf(this);
    return formOf(await this.#bytes(), type);
  }
  async json() {
    this.#check();
    return JSON.parse(await this.#text());
  }
  text() { return this.#text(); }
  // Two bodies of one: this one, and what is given.
  fork() {
    if (this.bodyUsed || this.#stream?.locked) throw new TypeError("a body that is used cannot be cloned");
    if (this.#source === null) return null;
    if (this.#stream === null && !(this.#source instanceof Incoming) && !(this.#source instanceof ReadableStream)) return this.#source;
    const [one, other] = this.body.tee();
    this.#source = this.#stream = one;
    return other;
  }
}
Body.inside();
delete Body.inside;
const { fork } = Body.prototype;
delete Body.prototype.fork;

const HAS_NO_BODY = new Set(["GET", "HEAD"]);

// What a request's options can be (Fetch Standard, section 5.4).
const OPTIONS = {
  mode: ["same-origin", "no-cors", "cors", "navigate"],
  credentials: ["omit", "same-origin", "include"],
  cache: ["default", "no-store", "reload", "no-cache", "force-cache", "only-if-cached"],
  redirect: ["follow", "error", "manual"],
  priority: ["high", "low", "auto"],
  duplex: ["half"],
  referrerPolicy: [
    "", "no-referrer", "no-referrer-when-downgrade", "same-origin", "origin", "strict-origin", "origin-when-cross-origin",
    "strict-origin-when-cross-origin", "unsafe-url",
  ],
};

// Those of `init` that are given, each read once.
function optionsOf(init) {
  const options = {};
  for (const [name, values] of Object.entries(OPTIONS)) {
    const given = init[name];
    if (given === undefined) continue;
    const value = String(given);
    if (!values.includes(value)) throw new TypeError(`${JSON.stringify(value)} is no ${name} of a request`);
    options[name] = value;
  }
  // A document's, and no script's.
  if (options.mode === "navigate") throw new TypeError("a request is not made with the mode navigate");
  for (const name of ["referrer", "integrity"]) {
    const given = init[name];
    if (given !== undefined) options[name] = String(given);
  }
  const { keepalive } = init;
  if (keepalive !== undefined) options.keepalive = !!keepalive;
  return options;
}

let partsOf;

class Request extends Body {
  #method;
  #url;
  #headers;
  #incoming;
  #options;
  // The signal that it follows, and its own, which is made when a script wants it.
  #signal;
  #ownSignal;
  constructor(input, init = {}, url = undefined) {
    if (input === token) {
      // What came: `init` is its method, and its URL is asked for when somebody else does.
      super(HAS_NO_BODY.has(init) ? null : incoming);
      this.#incoming = incoming;
      this.#method = init;
      this.#url = url;
      return;
    }
    if (init === null) init = {};
    else if (typeof init !== "object" && typeof init !== "function") throw new TypeError("a request's second argument is an object");
    const { signal } = init;
    if (signal !== undefined && signal !== null && !(signal instanceof AbortSignal)) throw new TypeError("the signal is no AbortSignal");
    const options = optionsOf(init);
    const from = input instanceof Request ? input : null;
    const to = from === null ? new URL(input) : null;
    if (to !== null && (to.username !== "" || to.password !== "")) throw new TypeError("a request's URL has no user and no password");
    let method = init.method === undefined ? (from === null ? "GET" : from.#method) : String(init.method);
    if (init.method !== undefined && (!METHOD.test(method) || /^(?:connect|trace|track)$/i.test(method))) throw new TypeError(`${JSON.stringify(method)} is no method of a request`);
    if (/^(?:delete|get|head|options|post|put)$/i.test(method)) method = method.toUpperCase();
    const headers = new Headers(init.headers ?? (from === null ? undefined : from.headers));
    const given = init.body ?? null;
    if ((method === "GET" || method === "HEAD") && (given !== null || (from !== null && hasBody(from)))) {
      throw new TypeError(`a ${method} request has no body`);
    }
    let source = null;
    if (given !== null) {
      const extracted = extract(given);
      if (extracted.source instanceof ReadableStream && init.duplex !== "half") throw new TypeError("a request whose body is a stream says duplex: \"half\"");
      if (extracted.type !== null && !headers.has("content-type")) headers.append("content-type", extracted.type);
      source = extracted.source;
    } else if (from !== null) {
      source = sourceOf(from);
    }
    super(source);
    this.#method = method;
    this.#url = from === null ? to.href : from.#address();
    this.#headers = headers;
    this.#options = from === null ? options : { ...from.#options, ...options };
    // Null: it follows none, not that of the other request either.
    if (signal !== null) this.#signal = signal ?? from?.#signal;
  }
  static inside() {
    partsOf = (request) => ({
      method: request.#method,
      url: request.#address(),
      fields: fieldsOf(request.headers),
      redirect: request.#options?.redirect ?? "follow",
      cache: request.#options?.cache ?? "default",
      integrity: request.#options?.integrity ?? "",
      signal: request.#signal,
    });
  }
  get method() { return this.#method; }
  get url() { return this.#address(); }
  #address() {
    if (this.#url === undefined) {
      this.#incoming.check();
      this.#url = native.requestUrl();
    }
    return this.#url;
  }
  get headers() { return (this.#headers ??= lazyHeaders(this.#incoming)); }
  get signal() { return (this.#ownSignal ??= AbortSignal.any(this.#signal === undefined ? [] : [this.#signal])); }
  get redirect() { return this.#options?.redirect ?? "follow"; }
  get mode() { return this.#options?.mode ?? "cors"; }
  get credentials() { return this.#options?.credentials ?? "same-origin"; }
  get cache() { return this.#options?.cache ?? "default"; }
  get referrer() { return this.#options?.referrer ?? "about:client"; }
  get referrerPolicy() { return this.#options?.referrerPolicy ?? ""; }
  get integrity() { return this.#options?.integrity ?? ""; }
  get keepalive() { return this.#options?.keepalive ?? false; }
  get destination() { return ""; }
  get duplex() { return "half"; }
  clone() {
    const source = fork.call(this);
    const copy = new Request(this.url, { method: this.#method, headers: this.headers, signal: this.#signal });
    copy.#options = this.#options;
    return source === null ? copy : Request.#with(copy, source);
  }
  static #with(request, source) {
    const type = request.headers;
    const copy = new Request(request.url, { method: request.#method === "GET" || request.#method === "HEAD" ? "POST" : request.#method, headers: type, body: source, duplex: "half" });
    copy.#method = request.#method;
    copy.#options = request.#options;
    copy.#headers = type;
    copy.#signal = request.#signal;
    return copy;
  }
}

Request.inside();
delete Request.inside;

const NO_BODY = new Set([101, 103, 204, 205, 304]);

let headOf;
let responseOf;

class Response extends Body {
  #status = 200;
  #statusText = "";
  // Made when they are asked for, where there is none but the type.
  #headers = null;
  #contentType = null;
  #type = "default";
  // What only the answer to an outbound call has.
  #call = null;
  constructor(body = null, init = undefined) {
    const { source, type } = extract(body);
    super(source);
    this.#contentType = type;
    if (init === undefined || init === null) return;
    if (typeof init !== "object" && typeof init !== "function") throw new TypeError("a response's second argument is an object");
    if (init.status !== undefined) {
      const status = Math.trunc(Number(init.status)) || 0;
      if (status < 200 || status > 599) throw new RangeError(`${String(init.status)} is no status of a response: such are 200 to 599`);
      if (source !== null && NO_BODY.has(status)) throw new TypeError(`a response with the status ${status} has no body`);
      this.#status = status;
    }
    if (init.statusText !== undefined) {
      this.#statusText = String(init.statusText);
      if (!/^[\t\x20-\x7e\x80-\xff]*$/.test(this.#statusText)) throw new TypeError("a status text has characters that it cannot have");
    }
    if (init.headers !== undefined) {
      this.#headers = new Headers(init.headers);
      if (type !== null && !this.#headers.has("content-type")) fieldsOf(this.#headers).push(["content-type", type]);
    }
  }
  static inside() {
    headOf = (response) => {
      if (response.#headers !== null) return fieldsOf(response.#headers);
      return response.#contentType === null ? [] : [["content-type", response.#contentType]];
    };
    // The answer to an outbound call.
    responseOf = (status, statusText, fields, source, url, isRedirected) => {
      const response = new Response(source);
      response.#status = status;
      response.#statusText = statusText;
      response.#headers = headersOf(fields);
      response.#type = "basic";
      response.#call = { url, isRedirected };
      return response;
    };
  }
  static error() {
    const response = new Response();
    response.#status = 0;
    response.#type = "error";
    response.#headers = fix(new Headers());
    return response;
  }
  static json(value, init) {
    const text = JSON.stringify(value);
    if (text === undefined) throw new TypeError("this value is nothing in JSON");
    const headers = new Headers(init?.headers);
    if (!headers.has("content-type")) headers.append("content-type", "application/json");
    return new Response(text, { status: init?.status, statusText: init?.statusText, headers });
  }
  static redirect(url, status = 302) {
    if (![301, 302, 303, 307, 308].includes(status)) throw new RangeError(`${String(status)} is no status of a redirect`);
    const response = new Response(null, { status, headers: { location: new URL(url).href } });
    fix(response.#headers);
    return response;
  }
  get status() { return this.#status; }
  get statusText() { return this.#statusText; }
  get ok() { return this.#status >= 200 && this.#status < 300; }
  get headers() {
    if (this.#headers === null) {
      this.#headers = new Headers();
      if (this.#contentType !== null) fieldsOf(this.#headers).push(["content-type", this.#contentType]);
    }
    return this.#headers;
  }
  get type() { return this.#type; }
  get url() { return this.#call === null ? "" : this.#call.url; }
  get redirected() { return this.#call === null ? false : this.#call.isRedirected; }
  clone() {
    const source = fork.call(this);
    const copy = new Response(source);
    copy.#status = this.#status;
    copy.#statusText = this.#statusText;
    copy.#type = this.#type;
    copy.#call = this.#call;
    copy.#headers = new Headers(this.headers);
    if (isFixed(this.headers)) fix(copy.#headers);
    return copy;
  }
}
Response.inside();
delete Response.inside;
