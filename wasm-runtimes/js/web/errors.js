// Events of errors that no code caught (HTML Standard, section 8.1.4).

const { Event, dictionary } = shared;

class ErrorEvent extends Event {
  #options;
  constructor(type, options = {}) {
    super(type, options);
    const { message = "", filename = "", lineno = 0, colno = 0, error } = dictionary(options);
    this.#options = { message: String(message), filename: String(filename), lineno: lineno >>> 0, colno: colno >>> 0, error };
  }
  get message() { return this.#options.message; }
  get filename() { return this.#options.filename; }
  get lineno() { return this.#options.lineno; }
  get colno() { return this.#options.colno; }
  get error() { return this.#options.error; }
}

class PromiseRejectionEvent extends Event {
  #promise;
  #reason;
  constructor(type, options) {
    super(type, options);
    const { promise, reason } = dictionary(options);
    if (typeof promise !== "object" || promise === null) throw new TypeError("a PromiseRejectionEvent has a promise");
    this.#promise = promise;
    this.#reason = reason;
  }
  get promise() { return this.#promise; }
  get reason() { return this.#reason; }
}

return { ErrorEvent, PromiseRejectionEvent };
