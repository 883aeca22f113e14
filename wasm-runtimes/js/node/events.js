// node:events. npm's events, with what later versions of Node.js added.
const EventEmitter = require("events/");
const errorMonitor = Symbol("events.errorMonitor");
const captureRejectionSymbol = Symbol.for("nodejs.rejection");
const slowEmit = EventEmitter.prototype.emit;

EventEmitter.prototype.emit = function emit(type, ...values) {
  if (type === "error" && this._events?.[errorMonitor] !== undefined) slowEmit.call(this, errorMonitor, ...values);
  return slowEmit.call(this, type, ...values);
};

const aborted = (signal) => Object.assign(new Error("The operation was aborted", { cause: signal.reason }), { name: "AbortError", code: "ABORT_ERR" });

function add(emitter, type, listener) {
  if (typeof emitter.on === "function") emitter.on(type, listener);
  else emitter.addEventListener(type, listener);
}
function remove(emitter, type, listener) {
  if (typeof emitter.off === "function") emitter.off(type, listener);
  else emitter.removeEventListener(type, listener);
}

function once(emitter, type, { signal } = {}) {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(aborted(signal));
    const isEmitter = typeof emitter.on === "function";
    const end = () => {
      remove(emitter, type, arrived);
      if (isEmitter && type !== "error") remove(emitter, "error", failed);
      signal?.removeEventListener("abort", stopped);
    };
    const arrived = (...values) => { end(); resolve(values); };
    const failed = (error) => { end(); reject(error); };
    const stopped = () => { end(); reject(aborted(signal)); };
    add(emitter, type, arrived);
    if (isEmitter && type !== "error") add(emitter, "error", failed);
    signal?.addEventListener("abort", stopped);
  });
}

function on(emitter, type, { signal, close = [] } = {}) {
  if (signal?.aborted) throw aborted(signal);
  const events = [];
  const waiting = [];
  let error;
  let isEnded = false;
  const arrived = (...values) => {
    const next = waiting.shift();
    if (next !== undefined) next.resolve({ value: values, done: false });
    else events.push(values);
  };
  const failed = (reason) => {
    const next = waiting.shift();
    if (next !== undefined) next.reject(reason);
    else error = { reason };
    iterator.return();
  };
  const stopped = () => failed(aborted(signal));
  const ended = () => iterator.return();
  const iterator = {
    next() {
      if (events.length > 0) return Promise.resolve({ value: events.shift(), done: false });
      if (error !== undefined) {
        const { reason } = error;
        error = undefined;
        return Promise.reject(reason);
      }
      if (isEnded) return Promise.resolve({ value: undefined, done: true });
      return new Promise((resolve, reject) => waiting.push({ resolve, reject }));
    },
    return() {
      if (!isEnded) {
        isEnded = true;
        remove(emitter, type, arrived);
        if (type !== "error") remove(emitter, "error", failed);
        for (const other of close) remove(emitter, other, ended);
        signal?.removeEventListener("abort", stopped);
        for (const next of waiting.splice(0)) next.resolve({ value: undefined, done: true });
      }
      return Promise.resolve({ value: undefined, done: true });
    },
    throw(reason) {
      failed(reason);
      return Promise.resolve({ value: undefined, done: true });
    },
    [Symbol.asyncIterator]() { return this; },
  };
  add(emitter, type, arrived);
  if (type !== "error") add(emitter, "error", failed);
  for (const other of close) add(emitter, other, ended);
  signal?.addEventListener("abort", stopped);
  return iterator;
}

function addAbortListener(signal, listener) {
  if (signal.aborted) queueMicrotask(() => listener(new Event("abort")));
  else signal.addEventListener("abort", listener, { once: true });
  return { [Symbol.dispose ?? Symbol.for("Symbol.dispose")]() { signal.removeEventListener("abort", listener); } };
}

class EventEmitterAsyncResource extends EventEmitter {
  #resource;
  constructor(options = {}) {
    super();
    const { AsyncResource } = require("node:async_hooks");
    this.#resource = new AsyncResource(options.name ?? new.target.name);
  }
  emit(type, ...values) { return this.#resource.runInAsyncScope(() => super.emit(type, ...values)); }
  emitDestroy() {}
  get asyncResource() { return this.#resource; }
}

const extras = {
  EventEmitter, EventEmitterAsyncResource, addAbortListener, captureRejectionSymbol, errorMonitor, on, once,
  captureRejections: false,
  usingDomains: false,
  getEventListeners: (emitter, type) => (typeof emitter.listeners === "function" ? emitter.listeners(type) : []),
  getMaxListeners: (emitter) => emitter.getMaxListeners?.() ?? EventEmitter.defaultMaxListeners,
  listenerCount: (emitter, type) => emitter.listenerCount?.(type) ?? 0,
  setMaxListeners(count = EventEmitter.defaultMaxListeners, ...emitters) {
    if (emitters.length === 0) EventEmitter.defaultMaxListeners = count;
    for (const emitter of emitters) emitter.setMaxListeners?.(count);
  },
};
module.exports = Object.assign(EventEmitter, extras);
