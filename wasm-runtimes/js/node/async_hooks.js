// node:async_hooks. A context is a Map of the values of all AsyncLocalStorages. QuickJS carries it
// through promises and `await` (modules.py), and the timers through callbacks.
const { asyncContext, setAsyncContext } = host.native;

function runIn(context, run, receiver, values) {
  const before = asyncContext();
  setAsyncContext(context);
  try {
    return Reflect.apply(run, receiver, values);
  } finally {
    setAsyncContext(before);
  }
}
function bind(run) {
  const context = asyncContext();
  return function (...values) { return runIn(context, run, this, values); };
}
host.carryContexts((run) => (asyncContext() === undefined ? run : bind(run)));

class AsyncLocalStorage {
  #default;
  constructor({ defaultValue, name = "" } = {}) {
    this.#default = defaultValue;
    this.name = name;
  }
  static bind(run) { return bind(run); }
  static snapshot() {
    const context = asyncContext();
    return (run, ...values) => runIn(context, run, undefined, values);
  }
  #with(store) {
    const context = new Map(asyncContext());
    context.set(this, store);
    return context;
  }
  run(store, run, ...values) { return runIn(this.#with(store), run, undefined, values); }
  exit(run, ...values) {
    const context = new Map(asyncContext());
    context.delete(this);
    return runIn(context.size === 0 ? undefined : context, run, undefined, values);
  }
  enterWith(store) { setAsyncContext(this.#with(store)); }
  getStore() {
    const context = asyncContext();
    return context !== undefined && context.has(this) ? context.get(this) : this.#default;
  }
  disable() {
    const context = new Map(asyncContext());
    context.delete(this);
    setAsyncContext(context.size === 0 ? undefined : context);
  }
}

let lastId = 1;
class AsyncResource {
  #context = asyncContext();
  #id = ++lastId;
  constructor(type) {
    if (typeof type !== "string") throw Object.assign(new TypeError('The "type" argument must be of type string'), { code: "ERR_INVALID_ARG_TYPE" });
    this.type = type;
  }
  static bind(run, type = run.name || "bound-anonymous-fn", receiver = undefined) { return new AsyncResource(type).bind(run, receiver); }
  runInAsyncScope(run, receiver, ...values) { return runIn(this.#context, run, receiver, values); }
  bind(run, receiver) {
    const resource = this;
    return function (...values) { return resource.runInAsyncScope(run, receiver ?? this, ...values); };
  }
  emitDestroy() { return this; }
  asyncId() { return this.#id; }
  triggerAsyncId() { return 1; }
}

module.exports = {
  AsyncLocalStorage, AsyncResource,
  asyncWrapProviders: Object.create(null),
  createHook: () => ({ enable() { return this; }, disable() { return this; } }),
  executionAsyncId: () => 1, executionAsyncResource: () => ({}), triggerAsyncId: () => 0,
};
