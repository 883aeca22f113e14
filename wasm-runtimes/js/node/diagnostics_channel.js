// node:diagnostics_channel.
const channels = new Map();
class Channel {
  #subscribers = [];
  #stores = new Map();
  constructor(name) { this.name = name; }
  get hasSubscribers() { return this.#subscribers.length > 0 || this.#stores.size > 0; }
  subscribe(run) { this.#subscribers = [...this.#subscribers, run]; }
  unsubscribe(run) {
    const rest = this.#subscribers.filter((one) => one !== run);
    const had = rest.length < this.#subscribers.length;
    this.#subscribers = rest;
    return had;
  }
  bindStore(store, transform = (data) => data) { this.#stores.set(store, transform); }
  unbindStore(store) { return this.#stores.delete(store); }
  publish(message) {
    for (const run of this.#subscribers) {
      try {
        run(message, this.name);
      } catch (error) {
        reportError(error);
      }
    }
  }
  runStores(data, run, receiver, ...values) {
    const inner = () => {
      this.publish(data);
      return Reflect.apply(run, receiver, values);
    };
    let all = inner;
    for (const [store, transform] of this.#stores) {
      const next = all;
      all = () => store.run(transform(data), next);
    }
    return all();
  }
}
function channel(name) {
  if (!channels.has(name)) channels.set(name, new Channel(name));
  return channels.get(name);
}
const EVENTS = ["start", "end", "asyncStart", "asyncEnd", "error"];
class TracingChannel {
  constructor(names) {
    for (const event of EVENTS) this[event] = typeof names === "string" ? channel(`tracing:${names}:${event}`) : names[event];
  }
  get hasSubscribers() { return EVENTS.some((event) => this[event].hasSubscribers); }
  subscribe(handlers) { for (const event of EVENTS) if (handlers[event]) this[event].subscribe(handlers[event]); }
  unsubscribe(handlers) { return EVENTS.every((event) => !handlers[event] || this[event].unsubscribe(handlers[event])); }
  traceSync(run, context = {}, receiver, ...values) {
    return this.start.runStores(context, () => {
      try {
        return (context.result = Reflect.apply(run, receiver, values));
      } catch (error) {
        context.error = error;
        this.error.publish(context);
        throw error;
      } finally {
        this.end.publish(context);
      }
    });
  }
  tracePromise(run, context = {}, receiver, ...values) {
    const settle = () => {
      this.asyncStart.publish(context);
      this.asyncEnd.publish(context);
    };
    return this.start.runStores(context, () => {
      try {
        return Promise.resolve(Reflect.apply(run, receiver, values)).then((result) => {
          context.result = result;
          settle();
          return result;
        }, (error) => {
          context.error = error;
          this.error.publish(context);
          settle();
          throw error;
        });
      } catch (error) {
        context.error = error;
        this.error.publish(context);
        throw error;
      } finally {
        this.end.publish(context);
      }
    });
  }
}
module.exports = {
  Channel, channel,
  hasSubscribers: (name) => channels.get(name)?.hasSubscribers ?? false,
  subscribe: (name, run) => channel(name).subscribe(run),
  unsubscribe: (name, run) => channel(name).unsubscribe(run),
  tracingChannel: (names) => new TracingChannel(names),
};
