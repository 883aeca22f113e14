// Events and abort signals (DOM Standard, sections 2 and 3).

let isTrusted;

class Event {
  #type;
  #options;
  #time = native.now();
  #target = null;
  #isUnderWay = false;
  #isPrevented = false;
  #isStopped = false;
  #isEnded = false;
  #isPassive = false;
  #isTrusted = false;
  constructor(type, options = {}) {
    if (arguments.length === 0) throw new TypeError("an Event has a type");
    options = dictionary(options);
    this.#type = String(type);
    this.#options = { bubbles: !!options.bubbles, cancelable: !!options.cancelable, composed: !!options.composed };
    Object.defineProperty(this, "isTrusted", { get: isTrusted, enumerable: true });
  }
  get type() { return this.#type; }
  get bubbles() { return this.#options.bubbles; }
  get cancelable() { return this.#options.cancelable; }
  get composed() { return this.#options.composed; }
  get defaultPrevented() { return this.#isPrevented; }
  get returnValue() { return !this.#isPrevented; }
  set returnValue(value) { if (!value) this.preventDefault(); }
  get cancelBubble() { return this.#isStopped; }
  set cancelBubble(value) { if (value) this.#isStopped = true; }
  get target() { return this.#target; }
  get srcElement() { return this.#target; }
  get currentTarget() { return this.#isUnderWay ? this.#target : null; }
  get eventPhase() { return this.#isUnderWay ? 2 : 0; }
  get timeStamp() { return this.#time; }
  composedPath() { return this.#isUnderWay ? [this.#target] : []; }
  preventDefault() { if (this.#options.cancelable && !this.#isPassive) this.#isPrevented = true; }
  stopPropagation() { this.#isStopped = true; }
  stopImmediatePropagation() { this.#isStopped = this.#isEnded = true; }
  // Only for this file and those behind it.
  static inside() {
    isTrusted = { get isTrusted() { return this.#isTrusted; } };
    isTrusted = Object.getOwnPropertyDescriptor(isTrusted, "isTrusted").get;
    return {
      trust(event) { event.#isTrusted = true; return event; },
      begin(event, target) {
        if (event.#isUnderWay) throw new DOMException("the event is under way", "InvalidStateError");
        event.#target = target;
        event.#isUnderWay = true;
        // Whoever stopped it before it began.
        event.#isEnded ||= event.#isStopped;
      },
      hasEnded: (event) => event.#isEnded,
      setPassive(event, isPassive) { event.#isPassive = isPassive; },
      end(event) { event.#isUnderWay = event.#isStopped = event.#isEnded = false; },
    };
  }
}
const { trust, begin, hasEnded, setPassive, end } = Event.inside();
delete Event.inside;
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

// What a listener is added or removed with.
function listenerOptions(options) {
  const given = typeof options === "object" && options !== null ? options : { capture: options };
  const { capture = false, once = false, passive = false, signal } = given;
  if (signal !== undefined && !(signal instanceof AbortSignal)) throw new TypeError("the signal is no AbortSignal");
  return { capture: !!capture, once: !!once, passive: !!passive, signal };
}

class EventTarget {
  #listeners = new Map();
  addEventListener(type, listener, options) {
    const { capture, once, passive, signal } = listenerOptions(options);
    if (listener === null || listener === undefined) return;
    if (typeof listener !== "function" && typeof listener !== "object") throw new TypeError("the listener is neither function nor object");
    if (signal?.aborted) return;
    type = String(type);
    const list = this.#listeners.get(type) ?? [];
    if (list.some((entry) => entry.listener === listener && entry.capture === capture)) return;
    this.#listeners.set(type, [...list, { listener, capture, once, passive }]);
    signal?.addEventListener("abort", () => this.removeEventListener(type, listener, capture), { once: true });
  }
  removeEventListener(type, listener, options) {
    const capture = !!(typeof options === "object" && options !== null ? options.capture : options);
    type = String(type);
    const list = this.#listeners.get(type);
    const others = list?.filter((entry) => entry.listener !== listener || entry.capture !== capture);
    if (list !== undefined) this.#listeners.set(type, others);
  }
  dispatchEvent(event) {
    if (!(event instanceof Event)) throw new TypeError("what is dispatched is no Event");
    begin(event, this);
    const list = this.#listeners.get(event.type) ?? [];
    this.#call(list.filter((entry) => entry.capture), event);
    const handler = this["on" + event.type];
    if (typeof handler === "function" && !hasEnded(event)) report(() => handler.call(this, event));
    this.#call(list.filter((entry) => !entry.capture), event);
    end(event);
    return !event.defaultPrevented;
  }
  #call(list, event) {
    for (const entry of list) {
      if (hasEnded(event)) break;
      // Another listener may have removed it.
      if (!this.#listeners.get(event.type).includes(entry)) continue;
      const { listener, capture, once, passive } = entry;
      if (once) this.removeEventListener(event.type, listener, capture);
      setPassive(event, passive);
      report(() => (typeof listener === "function" ? listener.call(this, event) : listener.handleEvent(event)));
      setPassive(event, false);
    }
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

// Listeners of `error` receive it first, and may prevent that.
function reportError(error) {
  if (!isReporting && listeners.error.length > 0) {
    const { message = "", fileName: filename, lineNumber: lineno, columnNumber: colno } = error instanceof Error ? error : { message: inspect(error) };
    const event = trust(new (part("errors").ErrorEvent)("error", { cancelable: true, error, message, filename, lineno, colno }));
    isReporting = true;
    for (const listener of listeners.error) report(() => call(listener, event));
    isReporting = false;
    if (event.defaultPrevented) return;
  }
  log(1, "Uncaught " + describe(error));
}

// An error of a listener of `error` is only logged.
let isReporting = false;

const inner = Symbol("inner");

class AbortSignal extends EventTarget {
  #aborted = false;
  #reason = undefined;
  // What it is of, and what is of it, where signals are put together.
  #sources = null;
  #dependents = [];
  // What built-in code does on an abort, as a linked list.
  #steps = null;
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
    if (!all.every((one) => one instanceof AbortSignal)) throw new TypeError("AbortSignal.any takes signals");
    const first = all.find((one) => one.aborted);
    if (first !== undefined) {
      AbortSignal.#abort(signal, first.reason);
      return signal;
    }
    signal.#sources = new Set(all.flatMap((one) => (one.#sources === null ? [one] : [...one.#sources])));
    for (const source of signal.#sources) source.#dependents.push(signal);
    return signal;
  }
  static #abort(signal, reason) {
    if (signal.#aborted) return;
    reason = reason === undefined ? new DOMException("it was aborted", "AbortError") : reason;
    // All are before any listener hears of it.
    const all = [signal, ...signal.#dependents.filter((one) => !one.#aborted)];
    for (const one of all) {
      one.#aborted = true;
      one.#reason = reason;
    }
    for (const one of all) {
      let next = one.#steps;
      one.#steps = null;
      for (; next !== null; next = next.next) next.run(reason);
      one.dispatchEvent(trust(new Event("abort")));
    }
  }
  // Only for built-in code. Scripts cannot change what these do.
  static inside() {
    return {
      abortSignal: AbortSignal.#abort,
      isAborted: (signal) => signal.#aborted,
      reasonOf: (signal) => signal.#reason,
      // Calls `run` with the reason when the signal is aborted, before any listener.
      follow(signal, run) { signal.#steps = { run, next: signal.#steps }; },
      unfollow(signal, run) {
        let before = null;
        for (let step = signal.#steps; step !== null; before = step, step = step.next) {
          if (step.run !== run) continue;
          if (before === null) signal.#steps = step.next;
          else before.next = step.next;
          return;
        }
      },
    };
  }
}
const { abortSignal, isAborted, reasonOf, follow, unfollow } = AbortSignal.inside();
delete AbortSignal.inside;

class AbortController {
  #signal = new AbortSignal(inner);
  get signal() { return this.#signal; }
  abort(reason) { abortSignal(this.#signal, reason); }
}
