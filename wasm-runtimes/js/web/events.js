// Events and abort signals (DOM Standard, sections 2 and 3).

class Event {
  #type;
  #options;
  #prevented = false;
  #target = null;
  #time = native.now();
  stopped = false;
  constructor(type, options = {}) {
    if (arguments.length === 0) throw new TypeError("an Event has a type");
    this.#type = String(type);
    this.#options = { bubbles: !!options.bubbles, cancelable: !!options.cancelable, composed: !!options.composed };
    Object.defineProperty(this, "stopped", { enumerable: false });
  }
  get type() { return this.#type; }
  get bubbles() { return this.#options.bubbles; }
  get cancelable() { return this.#options.cancelable; }
  get composed() { return this.#options.composed; }
  get defaultPrevented() { return this.#prevented; }
  get target() { return this.#target; }
  get srcElement() { return this.#target; }
  get currentTarget() { return this.#target; }
  get eventPhase() { return this.#target === null ? 0 : 2; }
  get isTrusted() { return false; }
  get timeStamp() { return this.#time; }
  composedPath() { return this.#target === null ? [] : [this.#target]; }
  preventDefault() { if (this.#options.cancelable) this.#prevented = true; }
  stopPropagation() {}
  stopImmediatePropagation() { this.stopped = true; }
  static aim(event, target) { event.#target = target; }
}
const aim = Event.aim;
delete Event.aim;
for (const [phase, value] of Object.entries({ NONE: 0, CAPTURING_PHASE: 1, AT_TARGET: 2, BUBBLING_PHASE: 3 })) {
  Object.defineProperty(Event, phase, { value, enumerable: true });
  Object.defineProperty(Event.prototype, phase, { value, enumerable: true });
}

class CustomEvent extends Event {
  #detail;
  constructor(type, options = {}) {
    super(type, options);
    this.#detail = options.detail ?? null;
  }
  get detail() { return this.#detail; }
}

class EventTarget {
  #listeners = new Map();
  addEventListener(type, listener, options) {
    if (listener === null || listener === undefined) return;
    const { once = false, signal } = typeof options === "object" && options !== null ? options : {};
    if (signal?.aborted) return;
    type = String(type);
    const list = this.#listeners.get(type) ?? [];
    if (list.some((entry) => entry.listener === listener)) return;
    this.#listeners.set(type, [...list, { listener, once }]);
    signal?.addEventListener("abort", () => this.removeEventListener(type, listener), { once: true });
  }
  removeEventListener(type, listener) {
    type = String(type);
    const list = this.#listeners.get(type);
    if (list !== undefined) this.#listeners.set(type, list.filter((entry) => entry.listener !== listener));
  }
  dispatchEvent(event) {
    if (!(event instanceof Event)) throw new TypeError("what is dispatched is no Event");
    aim(event, this);
    const handler = this["on" + event.type];
    if (typeof handler === "function") report(() => handler.call(this, event));
    for (const entry of this.#listeners.get(event.type) ?? []) {
      if (event.stopped) break;
      const { listener, once } = entry;
      // Another listener may have removed it.
      if (!this.#listeners.get(event.type).includes(entry)) continue;
      if (once) this.removeEventListener(event.type, listener);
      report(() => (typeof listener === "function" ? listener.call(this, event) : listener.handleEvent(event)));
    }
    return !event.defaultPrevented;
  }
}

// An error of a listener is nobody's: it is logged.
function report(run) {
  try {
    run();
  } catch (error) {
    reportError(error);
  }
}

function reportError(error) {
  log(1, "Uncaught " + describe(error));
}

const inner = Symbol("inner");

class AbortSignal extends EventTarget {
  #aborted = false;
  #reason = undefined;
  onabort = null;
  constructor(token) {
    super();
    if (token !== inner) throw new TypeError("AbortSignal is not to be constructed");
    Object.defineProperty(this, "onabort", { enumerable: false });
  }
  get aborted() { return this.#aborted; }
  get reason() { return this.#reason; }
  throwIfAborted() { if (this.#aborted) throw this.#reason; }
  static abort(reason) {
    const signal = new AbortSignal(inner);
    AbortSignal.#abort(signal, reason);
    return signal;
  }
  static timeout(delay) {
    const signal = new AbortSignal(inner);
    setTimeout(() => AbortSignal.#abort(signal, new DOMException("the time is over", "TimeoutError")), delay);
    return signal;
  }
  static any(signals) {
    const signal = new AbortSignal(inner);
    const all = [...signals];
    const first = all.find((one) => one.aborted);
    if (first !== undefined) {
      AbortSignal.#abort(signal, first.reason);
    } else {
      for (const one of all) {
        one.addEventListener("abort", () => AbortSignal.#abort(signal, one.reason), { once: true });
      }
    }
    return signal;
  }
  static #abort(signal, reason) {
    if (signal.#aborted) return;
    signal.#aborted = true;
    signal.#reason = reason === undefined ? new DOMException("it was aborted", "AbortError") : reason;
    signal.dispatchEvent(new Event("abort"));
  }
  static abortOf() { return AbortSignal.#abort; }
}
const abortSignal = AbortSignal.abortOf();
delete AbortSignal.abortOf;

class AbortController {
  #signal = new AbortSignal(inner);
  get signal() { return this.#signal; }
  abort(reason) { abortSignal(this.#signal, reason); }
}
