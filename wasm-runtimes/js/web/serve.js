// What scripts find, how their handler is found, and how it is called.

class Performance extends EventTarget {
  get timeOrigin() { return native.origin(); }
  now() { return native.now(); }
  toJSON() { return { timeOrigin: this.timeOrigin }; }
}

const listeners = { error: [], fetch: [], unhandledrejection: [] };

function addEventListener(type, listener) {
  if (!Object.hasOwn(listeners, type)) return log(1, `no events of the type ${String(type)} come here: fetch does`);
  if (typeof listener !== "function" && typeof listener?.handleEvent !== "function") throw new TypeError("a listener is a function");
  if (!listeners[type].includes(listener)) listeners[type].push(listener);
}

function removeEventListener(type, listener) {
  if (!Object.hasOwn(listeners, type)) return;
  const at = listeners[type].indexOf(listener);
  if (at >= 0) listeners[type].splice(at, 1);
}

function call(listener, event) {
  return typeof listener === "function" ? listener.call(globalThis, event) : listener.handleEvent(event);
}

// ---- what outlives the response

let waiting = 0;
let isAnswered = false;

function endIfAllIsDone() {
  native.end(isAnswered && waiting === 0);
}

function waitUntil(promise) {
  waiting++;
  endIfAllIsDone();
  const settled = () => {
    waiting--;
    endIfAllIsDone();
  };
  Promise.resolve(promise).then(settled, (error) => {
    reportError(error);
    settled();
  });
}

class ExecutionContext {
  waitUntil(promise) { waitUntil(promise); }
  passThroughOnException() {}
  get props() { return {}; }
}

class FetchEvent extends Event {
  #request;
  #answer = undefined;
  constructor(type, { request } = {}) {
    super(type, { cancelable: true });
    if (!(request instanceof Request)) throw new TypeError("a FetchEvent has a request");
    this.#request = request;
  }
  get request() { return this.#request; }
  get clientId() { return ""; }
  respondWith(answer) {
    if (this.#answer !== undefined) throw new DOMException("it was responded to already", "InvalidStateError");
    this.#answer = Promise.resolve(answer);
    this.stopImmediatePropagation();
  }
  waitUntil(promise) { waitUntil(promise); }
  passThroughOnException() {}
  static answer(event) { return event.#answer; }
}
const answerTo = FetchEvent.answer;
delete FetchEvent.answer;

// ---- the handler

let handler;

// Finds the handler in what the first module exports; says what is wrong where there is none.
function adopt(module) {
  const main = module.default;
  if (typeof main === "function" && /^class\b/.test(Function.prototype.toString.call(main))) {
    return "its default export is a class: export an object of it, with new";
  }
  if (typeof main?.fetch === "function") {
    handler = (request, env, context) => main.fetch(request, env, context);
  } else if (typeof main === "function") {
    handler = main;
  } else if (typeof (module.handler ?? main?.handler) === "function") {
    handler = lambdaHandler(module.handler ?? main.handler);
  } else if (listeners.fetch.length > 0) {
    handler = (request) => {
      const event = new FetchEvent("fetch", { request });
      begin(event, globalThis);
      for (const listener of listeners.fetch) {
        if (hasEnded(event)) break;
        call(listener, event);
      }
      end(event);
      const answer = answerTo(event);
      if (answer === undefined) throw new TypeError("no listener called event.respondWith");
      return answer;
    };
  } else {
    return "there is nothing to call: a script exports { fetch(request) { … } } as its default, exports a function named handler (AWS Lambda), or calls addEventListener(\"fetch\", …)";
  }
  return undefined;
}

// ---- one request

function failed(error) {
  log(1, "Uncaught " + describe(error));
  let why = UNTOLD;
  try {
    why = (error instanceof Error ? native.explain(String(error).toWellFormed()) : inspect(error).toWellFormed());
  } catch {
    // It says no more.
  }
  native.fail(why);
  isAnswered = true;
  endIfAllIsDone();
}

const gone = () => new DOMException("the client went away", "AbortError");

// Sends a stream, which may be the body of a call's response.
async function send(response, source, call) {
  let reader;
  let isBegun = false;
  try {
    reader = source.getReader();
    const fields = headOf(response);
    isBegun = native.respond(response.status, call === null ? sendable(fields) : decodedFields(fields, call));
    if (!isBegun) return void (await reader.cancel(gone()));
    for (;;) {
      const { done, value } = await reader.read();
      if (done) break;
      let left = typeof value === "string" ? native.encode(value.toWellFormed()) : bytesOf(value);
      while (left.length > 0) {
        const count = native.send(left);
        if (count < 0) return void (await reader.cancel(gone()));
        if (count === 0) await native.sendable();
        left = left.subarray(count);
      }
    }
    native.finish();
  } catch (error) {
    reader?.cancel(error).catch(() => {});
    if (!isBegun) return failed(error);
    native.cut();
    reportError(error);
  }
}

// Sends the body of an outbound call's response as the server sent it, without a copy in this
// engine.
async function relay(response, call) {
  let isBegun = false;
  try {
    call.check();
    isBegun = native.respond(response.status, headOf(response));
    while (isBegun) {
      call.check();
      const state = call.relay();
      if (state === 0) break;
      if (state === 1) await call.readable();
      if (state === 2) await native.sendable();
      // The client went away.
      if (state === 3) return call.close();
    }
    call.close();
    native.finish();
  } catch (error) {
    call.close();
    if (!isBegun) return failed(error);
    native.cut();
    reportError(error);
  }
}

// Whether a call's body goes on as the server sent it: the fields still name its codings, and the
// client accepts these.
function isRelayed(response, call) {
  return call.codings === null || (describes(headOf(response), call) && native.accepts(call.codings));
}

function answer(response) {
  try {
    if (!(response instanceof Response)) {
      throw new TypeError(`a handler gives a Response, not ${response === undefined ? "nothing" : inspect(response, 0)}`);
    }
    if (response.status === 0) throw new TypeError("the handler gave Response.error()");
    const source = sourceOf(response);
    if (source instanceof Incoming || source instanceof ReadableStream) {
      const call = callOf(source);
      const sent = call !== null && isRelayed(response, call)
        ? relay(response, call) : send(response, source instanceof Incoming ? source.stream() : source, call);
      sent.catch(reportError).then(() => {
        isAnswered = true;
        endIfAllIsDone();
      });
      return;
    }
    native.respond(response.status, sendable(headOf(response)), source);
  } catch (error) {
    return failed(error);
  }
  isAnswered = true;
  endIfAllIsDone();
}

function dispatch(method, url = undefined) {
  isAnswered = false;
  beginIncoming();
  let given;
  try {
    given = handler(new Request(token, method, url), env, new ExecutionContext());
  } catch (error) {
    return failed(error);
  }
  if (given instanceof Response) answer(given);
  else Promise.resolve(given).then(answer, failed);
}

// Goes through a request that nobody sent: what it leaves is where the first real one finds it.
function warmUp() {
  const before = handler;
  handler = (request) => new Response(request.url);
  dispatch("GET", "http://localhost/");
  handler = before;
}

// Reports a rejection that no handler handles. While the deployment runs the script, returns whether
// the rejection fails the deployment: then no listener prevented it, and it is not logged.
function unhandled(promise, reason, isStarting) {
  let event;
  for (const listener of listeners.unhandledrejection) {
    event ??= trust(new (part("errors").PromiseRejectionEvent)("unhandledrejection", { cancelable: true, promise, reason }));
    report(() => call(listener, event));
  }
  if (event?.defaultPrevented) return false;
  if (isStarting) return true;
  log(1, "Uncaught (in promise) " + describe(reason));
  return false;
}

// The object by which a module of `node/` uses the engine.
function nodeHost(name) {
  return {
    name, native, describe, carryContexts, env: () => env,
    builtinModules: native.builtinModules, commonjs: native.commonjs, main: native.main, promiseState: native.promiseState,
  };
}

const things = {
  AbortController, AbortSignal, Blob, Cache, CacheStorage, Crypto, CustomEvent, Event, EventTarget, FetchEvent, File, FormData,
  Headers, Performance, Request, Response, TextDecoder, TextDecoderStream, TextEncoder, TextEncoderStream,
  URL, URLSearchParams, ...streams,
  addEventListener, caches, clearInterval, clearTimeout, console, crypto, fetch, navigator: { userAgent: "faasw" },
  performance: new Performance(), queueMicrotask, removeEventListener, reportError, self: globalThis,
  setInterval, setTimeout, structuredClone,
};
for (const [name, value] of Object.entries(things)) expose(globalThis, name, value);
exposeParts();
Math.random = () => native.random();

// The engine has no time zones. A date in another one than the script asks for would be wrong without
// a sign.
const UTC = /^(?:(?:etc\/)?(?:gmt|greenwich|uct|universal|utc|zulu)|[+-]00(?::?00)?)$/i;
for (const name of ["toLocaleString", "toLocaleDateString", "toLocaleTimeString"]) {
  const inUtc = Date.prototype[name];
  const { [name]: value } = {
    [name](_locales = undefined, options = undefined) {
      const zone = options?.timeZone;
      if (zone !== undefined && !UTC.test(String(zone))) throw new RangeError(`the time zone ${String(zone)} is not available: ${native.withoutIntl}`);
      return Reflect.apply(inUtc, this, []);
    },
  };
  Object.defineProperty(Date.prototype, name, { value, writable: true, configurable: true, enumerable: false });
}

// Globals of Node.js. Their modules are evaluated when a script first reads one of them.
for (const [name, module, member] of [
  ["Buffer", "node:buffer", "Buffer"],
  ["process", "node:process", undefined],
  ["setImmediate", "node:timers", "setImmediate"],
  ["clearImmediate", "node:timers", "clearImmediate"],
]) {
  const define = (value) => Object.defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: false });
  const get = () => {
    const exports = native.builtin(module);
    const value = member === undefined ? exports : exports[member];
    define(value);
    return value;
  };
  Object.defineProperty(globalThis, name, { get, set: define, configurable: true, enumerable: false });
}
Object.defineProperty(globalThis, "global", { value: globalThis, writable: true, configurable: true, enumerable: false });

const prepare = (name) => void part(name);

return { adopt, api, configure, dispatch, describe, frames, nodeHost, prepare, runTimer, unhandled, warmUp };
