// Outbound calls (Fetch Standard, section 4). `src/outbound.rs` sends a request and receives its
// response; the rules are here.

// What scripts may replace on the prototypes.
const { apply } = Reflect;
const { get: weakGet, set: weakSet } = WeakMap.prototype;
const { register } = FinalizationRegistry.prototype;
const { deref } = WeakRef.prototype;
const { btoa } = globalThis;

// More redirects than this are an error.
const REDIRECTS = 20;

const isRedirect = (status) => status === 301 || status === 302 || status === 303 || status === 307 || status === 308;

// The calls whose bodies untouched streams are.
const callsOfStreams = new WeakMap();

// A response that nothing refers to any more closes its call: few calls may be open at once.
const unreachable = new FinalizationRegistry((number) => native.callClose(number));

// How many calls have begun, and how many had when garbage was last collected to close some.
let begun = 0;
let begunAtCollection = 0;

// The call behind a source of a body: null if there is none, or a script has read of it.
function callOf(source) {
  if (source instanceof Call) return source;
  if (!(source instanceof ReadableStream) || source.locked || source._disturbed) return null;
  return apply(weakGet, callsOfStreams, [source]) ?? null;
}

// Whether these fields describe the body of a call's response as the server sent it.
const describes = (fields, call) => call.codings === codingsOf(fields);

// Returns the fields to send with a call's body that is decoded.
const decodedFields = (fields, call) => describes(fields, call)
  ? fields.filter((pair) => pair[0] !== "content-encoding" && pair[0] !== "content-length")
  : sendable(fields);

// The content codings that fields name, or null.
function codingsOf(fields) {
  let codings = null;
  for (let at = 0; at < fields.length; at++) {
    if (fields[at][0] === "content-encoding") codings = codings === null ? fields[at][1] : codings + ", " + fields[at][1];
  }
  return codings;
}

// One call of `fetch`, and the body of its response. Redirects give it a new native part.
class Call extends Incoming {
  // The number of the native part, or 0.
  #number = 0;
  #origin = "";
  // The error for the script, made where it called `fetch`, so that it has the script's stack.
  #error;
  #hasFailed = false;
  #failure;
  #signal;
  // Where the response's body goes, if it is a stream.
  #controller = null;
  // The source of the request's body, if it is a stream.
  #reader = null;
  #abort;
  // The content codings of the response's body, if reading decodes them. `relay` does not.
  codings = null;

  constructor(error, signal) {
    super();
    this.#error = error;
    this.#signal = signal;
    if (signal === undefined) return;
    // A signal does not keep calls that nothing else refers to.
    const reference = new WeakRef(this);
    this.#abort = (reason) => Call.#abortBy(reference, reason);
    follow(signal, this.#abort);
  }

  static #abortBy(reference, reason) { apply(deref, reference, [])?.#end(true, reason); }

  // ---- as the source of a body

  check() {
    if (this.#hasFailed) throw this.#failure;
  }
  piece() {
    const piece = native.callRead(this.#number);
    if (typeof piece === "string") throw this.#fail(piece);
    if (piece === null) this.close();
    return piece;
  }
  readable() { return native.callReadable(this.#number); }
  async receive() {
    for (;;) {
      const state = native.callReceive(this.#number);
      if (state === null) return;
      if (state !== undefined) throw this.#fail(state);
      await native.callReadable(this.#number);
      this.check();
    }
  }
  received() {
    const bytes = native.callReceived(this.#number);
    this.close();
    return bytes;
  }
  receivedText() {
    const text = native.callReceivedText(this.#number);
    this.close();
    return text;
  }
  stream() {
    const call = this;
    const stream = new ReadableStream({
      __proto__: null,
      type: "bytes",
      start(controller) { call.#controller = controller; },
      async pull(controller) {
        for (;;) {
          call.check();
          const piece = call.piece();
          if (piece === null) {
            controller.close();
            controller.byobRequest?.respond(0);
            return;
          }
          if (piece !== undefined) return controller.enqueue(piece);
          await call.readable();
        }
      },
      cancel() { call.close(); },
    });
    apply(weakSet, callsOfStreams, [stream, call]);
    return stream;
  }
  relay() {
    const state = native.callRelay(this.#number);
    if (typeof state === "string") throw this.#fail(state);
    return state;
  }

  // ---- its end

  // Closes the call. What is not sent or received of it is gone.
  close() { this.#end(false); }
  #end(hasFailed, failure) {
    if (hasFailed && !this.#hasFailed) {
      this.#hasFailed = true;
      this.#failure = failure;
      try {
        this.#controller?.error(failure);
      } catch {
        // The stream has ended.
      }
    }
    if (this.#signal !== undefined) unfollow(this.#signal, this.#abort);
    this.#signal = undefined;
    this.#drop(failure);
  }
  #drop(reason) {
    const number = this.#number;
    this.#number = 0;
    if (number !== 0) native.callClose(number);
    const reader = this.#reader;
    this.#reader = null;
    reader?.cancel(reason).catch(() => {});
  }
  // Makes the error for the script: it says what failed, and its cause says why.
  #fail(text, cause = undefined) {
    if (this.#hasFailed) return this.#failure;
    const error = this.#error;
    if (cause === undefined) {
      cause = new Error(text);
      const code = /^[A-Za-z-]+(?=:)/.exec(text);
      if (code !== null) Object.defineProperty(cause, "code", { __proto__: null, value: code[0], writable: true, configurable: true, enumerable: true });
    }
    const define = (name, value) => Object.defineProperty(error, name, { __proto__: null, value, writable: true, configurable: true, enumerable: false });
    define("message", `cannot fetch ${this.#origin}: ${text}`);
    define("cause", cause);
    this.#end(true, error);
    return error;
  }

  // ---- the request

  async go({ method, url: href, fields, redirect, cache, integrity }, source) {
    fields = sendable(fields);
    let leftOut = 0;
    let isRedirected = false;
    for (let hops = 0; ; hops++) {
      const url = native.url(href);
      this.#origin = url[ORIGIN];
      if (url[PROTOCOL] === "data:" && !isRedirected) return this.#data(method, url);
      if (url[PROTOCOL] !== "http:" && url[PROTOCOL] !== "https:") {
        this.#origin = url[PROTOCOL];
        throw this.#fail("functions send requests to http: and https: only");
      }
      if (isRedirected && (url[USERNAME] !== "" || url[PASSWORD] !== "")) throw this.#fail("the redirect names a user or a password");
      const body = typeof source === "string" ? native.encode(source) : source;
      const isStreamed = body !== null && !(body instanceof Uint8Array);
      const begin = () => native.call(method, href, fields, isStreamed ? true : body, leftOut, cache);
      let number = begin();
      if (typeof number === "string" && number.startsWith("connection-limit-reached") && begun !== begunAtCollection) {
        begunAtCollection = begun;
        native.collect();
        // The calls that were found are closed meanwhile.
        await null;
        this.check();
        number = begin();
      }
      if (typeof number === "string") throw this.#fail(number);
      begun++;
      this.#number = number;
      apply(register, unreachable, [this, number]);
      if (body !== null) this.#upload(number, body, isStreamed).catch((error) => this.#fail("the request's body failed: " + described(error), error));

      let head;
      while ((head = native.callHead(number)) === undefined) {
        await native.callAnswered(number);
        this.check();
      }
      if (typeof head === "string") throw this.#fail(head);
      const status = head[0];
      if (isRedirect(status) && redirect !== "manual") {
        if (redirect === "error") throw this.#fail("the server redirected the request, whose redirect mode is \"error\"");
        const location = valueOf(head[1], "location");
        if (location !== null) {
          const target = native.redirected(href, location) ?? null;
          if (target === null) throw this.#fail("the redirect's location is not a URL");
          if (hops === REDIRECTS) throw this.#fail(`there were more than ${REDIRECTS} redirects`);
          if (status !== 303 && isStreamed) throw this.#fail("a request whose body is a stream cannot be redirected: its body cannot be sent again");
          if (method === "POST" ? status <= 303 : status === 303 && method !== "GET" && method !== "HEAD") {
            method = "GET";
            source = null;
            leftOut |= 1;
          }
          if (native.url(target)[ORIGIN] !== url[ORIGIN]) leftOut |= 2;
          this.#drop();
          href = target;
          isRedirected = true;
          continue;
        }
      }
      let answer = method === "HEAD" || NO_BODY.has(status) ? null : valueOf(head[1], "content-length") === "0" ? "" : this;
      if (answer === this) this.#decode(number, head[1]);
      if (integrity !== "" && answer !== null) {
        if (answer === this) await this.receive();
        answer = answer === this ? this.received() : new Uint8Array();
        if (!isIntact(answer, integrity)) throw this.#fail("the response does not have the digest that the request's integrity names");
      }
      if (answer !== this) this.close();
      return responseOf(status, native.callReason(status), head[1], answer, withoutFragment(url), isRedirected);
    }
  }
  // Has the response's body decoded. Its fields stay as the server sent them.
  #decode(number, fields) {
    const codings = codingsOf(fields);
    if (codings === null || !native.callDecode(number, codings)) return;
    this.codings = codings;
    for (let at = 0; at < fields.length; at++) {
      const name = fields[at][0];
      if (name === "content-encoding" || name === "content-length") fields[at][2] = CODED;
    }
  }
  #data(method, url) {
    this.#origin = "data:";
    const data = native.dataUrl(url[HREF]);
    if (data === null) throw this.#fail("the data: URL is invalid");
    this.close();
    return responseOf(200, "OK", [["content-type", data[0]]], method === "HEAD" ? null : data[1], withoutFragment(url), false);
  }
  // Sends the request's body. It may still be sent while the response arrives.
  async #upload(number, body, isStreamed) {
    if (!isStreamed) {
      if (!(await this.#send(number, body, native.callSent(number)))) return;
    } else if (body instanceof Incoming) {
      for (;;) {
        body.check();
        const piece = body.piece();
        if (piece === null) break;
        if (piece === undefined) await body.readable();
        else if (!(await this.#send(number, piece, 0))) return;
        if (this.#number !== number) return;
      }
    } else {
      const reader = (this.#reader = body.getReader());
      for (;;) {
        const { done, value } = await reader.read();
        if (this.#number !== number) return;
        if (done) break;
        if (!(value instanceof Uint8Array)) throw new TypeError("a body's stream has something that is no Uint8Array");
        if (!(await this.#send(number, value, 0))) {
          reader.cancel().catch(() => {});
          break;
        }
      }
      this.#reader = null;
    }
    native.callFinish(number);
  }
  // Sends the bytes behind the first `from`. Returns false if the server takes no more.
  async #send(number, bytes, from) {
    while (from < bytes.length) {
      if (this.#number !== number) return false;
      const count = native.callSend(number, bytes, from);
      if (count < 0) return false;
      from += count;
      if (count === 0) await native.callSendable(number);
    }
    return true;
  }
}

const STRENGTHS = ["sha256", "sha384", "sha512"];

// Whether the bytes have one of the strongest digests that the text names (Subresource Integrity,
// section 3.3).
function isIntact(bytes, text) {
  let strongest = -1;
  let isOne = false;
  const words = text.split(/[\t\n\f\r ]+/);
  for (let at = 0; at < words.length; at++) {
    const word = /^(sha256|sha384|sha512)-([A-Za-z0-9+/_-]+={0,2})(?:\?.*)?$/.exec(words[at]);
    if (word === null) continue;
    const strength = STRENGTHS.indexOf(word[1]);
    if (strength < strongest) continue;
    if (strength > strongest) isOne = false;
    strongest = strength;
    const digest = btoa(native.latin1(new Uint8Array(native.digest(`SHA-${word[1].slice(3)}`, bytes))));
    isOne ||= digest === word[2].replaceAll("-", "+").replaceAll("_", "/");
  }
  return strongest < 0 || isOne;
}

function valueOf(fields, name) {
  for (let at = 0; at < fields.length; at++) {
    if (fields[at][0] === name) return fields[at][1];
  }
  return null;
}

function withoutFragment(url) {
  const hash = url[HREF].indexOf("#");
  return hash < 0 ? url[HREF] : url[HREF].slice(0, hash);
}

function described(error) {
  try {
    return error instanceof Error ? error.message : inspect(error, 0);
  } catch {
    return UNTOLD;
  }
}

async function makeCall(error, input, init) {
  const request = new Request(input, init);
  const parts = partsOf(request);
  const source = sourceOf(request);
  const { signal } = parts;
  if (signal !== undefined && isAborted(signal)) {
    const reason = reasonOf(signal);
    if (source instanceof ReadableStream) source.cancel(reason).catch(() => {});
    throw reason;
  }
  const call = new Call(error, signal);
  try {
    return await call.go(parts, source);
  } catch (error) {
    // Its error is the reason of an abort if there was one meanwhile.
    call.close();
    call.check();
    throw error;
  }
}

const { fetch } = {
  fetch(input, init = undefined) {
    if (!native.mayCall()) throw new TypeError("fetch is only available while a request is answered: call it in the handler");
    if (arguments.length === 0) return Promise.reject(new TypeError("fetch takes a URL or a Request"));
    return makeCall(new TypeError(), input, init);
  },
};
