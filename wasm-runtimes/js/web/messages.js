// Message channels (HTML Standard, section 9.4).

const { Event, EventTarget, clone, dictionary, setTimer, token, trust, usv } = shared;

class MessageEvent extends Event {
  #data;
  #origin;
  #lastEventId;
  #source;
  #ports;
  constructor(type, options = {}) {
    super(type, options);
    const { data = null, origin = "", lastEventId = "", source = null, ports = [] } = dictionary(options);
    this.#data = data;
    this.#origin = usv(origin);
    this.#lastEventId = String(lastEventId);
    this.#source = source;
    this.#ports = Object.freeze([...ports]);
  }
  get data() { return this.#data; }
  get origin() { return this.#origin; }
  get lastEventId() { return this.#lastEventId; }
  get source() { return this.#source; }
  get ports() { return this.#ports; }
}

// What is behind a port. A transferred port hands its link to a new one.
class Link {
  other = null;
  // The port that has this end, and the messages that it has not delivered.
  port = null;
  queue = [];
  isStarted = false;
  isClosed = false;
  isScheduled = false;

  post(value, transfer) {
    const { copy, ports } = clone(value, transfer, "postMessage");
    const to = this.other;
    if (this.isClosed || to === null || to.isClosed) return;
    to.queue.push({ data: copy, ports });
    to.schedule();
  }

  // A task delivers one message.
  schedule() {
    if (!this.isStarted || this.isScheduled || this.queue.length === 0) return;
    this.isScheduled = true;
    setTimer(() => {
      this.isScheduled = false;
      if (!this.isStarted || this.port === null) return;
      const message = this.queue.shift();
      this.schedule();
      if (message !== undefined) this.port.dispatchEvent(trust(new MessageEvent("message", message)));
    }, 0, [], false);
  }

  close() {
    this.isClosed = true;
    if (this.other !== null) this.other.other = null;
    this.other = null;
  }
}

let linkOf;
let makePort;

class MessagePort extends EventTarget {
  #link;
  #handlers = { message: null, messageerror: null };
  constructor(mark, link) {
    if (mark !== token) throw new TypeError("MessagePort is not to be constructed");
    super();
    this.#link = link;
    if (link !== null) link.port = this;
  }
  static inside() {
    linkOf = (port) => port.#link;
    makePort = (link) => new MessagePort(token, link);
    return {
      // A port without an end, and how it takes the one of another port.
      prepare: () => new MessagePort(token, null),
      finish(port, place) {
        const link = port.#link;
        port.#link = null;
        place.#link = link;
        link.port = place;
        link.isStarted = false;
        if (place.#handlers.message !== null) place.start();
      },
    };
  }
  postMessage(value, options = undefined) {
    if (arguments.length === 0) throw new TypeError("postMessage takes a message");
    const transfer = transferIn(options);
    if (transfer.includes(this)) throw new DOMException("a port cannot transfer itself", "DataCloneError");
    if (this.#link === null) return void clone(value, transfer, "postMessage");
    this.#link.post(value, transfer);
  }
  start() {
    if (this.#link === null) return;
    this.#link.isStarted = true;
    this.#link.schedule();
  }
  close() { this.#link?.close(); }
  // In browsers and Node.js these decide whether a process stays; a request ends with its handler.
  ref() { return this; }
  unref() { return this; }
  get onmessage() { return this.#handlers.message; }
  set onmessage(handler) {
    this.#handlers.message = typeof handler === "function" ? handler : null;
    this.start();
  }
  get onmessageerror() { return this.#handlers.messageerror; }
  set onmessageerror(handler) { this.#handlers.messageerror = typeof handler === "function" ? handler : null; }
}
const transferPort = MessagePort.inside();
delete MessagePort.inside;

// The list of what is transferred: of an array, or of options.
function transferIn(options) {
  if (options === undefined || options === null) return [];
  if (typeof options !== "object") throw new TypeError("the second argument is a list, or options");
  if (typeof options[Symbol.iterator] === "function") return [...options];
  return [...(options.transfer ?? [])];
}

class MessageChannel {
  #ports;
  constructor() {
    const [one, other] = [new Link(), new Link()];
    one.other = other;
    other.other = one;
    this.#ports = [makePort(one), makePort(other)];
  }
  get port1() { return this.#ports[0]; }
  get port2() { return this.#ports[1]; }
}

const isPort = (value) => value instanceof MessagePort;
const isDetached = (port) => linkOf(port) === null;

return { MessageChannel, MessageEvent, MessagePort, isPort, isDetached, transferPort };
