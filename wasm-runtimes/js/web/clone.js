// structuredClone (HTML Standard, section 2.7). Buffers and message ports can be transferred.

const ERRORS = { Error, EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError };

function structuredClone(value, options) {
  if (arguments.length === 0) throw new TypeError("structuredClone takes a value");
  return clone(value, [...(options?.transfer ?? [])], "structuredClone").copy;
}

// Clones a value. Returns the copy, and the ports that the transferred ones became, in their order.
function clone(value, transfer, caller) {
  const transferred = new Set(transfer);
  if (transferred.size !== transfer.length) throw new DOMException(`${caller} cannot transfer a value twice`, "DataCloneError");
  const { isPort, isDetached, transferPort } = loadedParts.messages ?? {};
  const done = new Map();
  const refuse = (what) => {
    throw new DOMException(`${what} cannot be cloned`, "DataCloneError");
  };
  const copyOne = (from) => {
    if (typeof from === "symbol") refuse("a symbol");
    if (typeof from === "function") refuse("a function");
    if (typeof from !== "object" || from === null) return from;
    if (done.has(from)) return done.get(from);
    const made = (copy) => {
      done.set(from, copy);
      return copy;
    };
    if (from instanceof Boolean || from instanceof Number || from instanceof String || from instanceof BigInt) return made(Object(from.valueOf()));
    if (from instanceof Date) return made(new Date(from.getTime()));
    if (from instanceof RegExp) return made(new RegExp(from.source, from.flags));
    if (from instanceof ArrayBuffer) return made(transferred.has(from) ? from.transfer() : from.slice(0));
    if (ArrayBuffer.isView(from)) {
      const at = from.byteOffset;
      const length = from instanceof DataView ? from.byteLength : from.length;
      return made(new from.constructor(copyOne(from.buffer), at, length));
    }
    if (from instanceof Map) {
      const copy = made(new Map());
      for (const [key, one] of [...from]) copy.set(copyOne(key), copyOne(one));
      return copy;
    }
    if (from instanceof Set) {
      const copy = made(new Set());
      for (const one of [...from]) copy.add(copyOne(one));
      return copy;
    }
    if (from instanceof DOMException) return made(new DOMException(from.message, from.name));
    if (from instanceof Error) {
      const kind = Object.hasOwn(ERRORS, from.name) ? ERRORS[from.name] : Error;
      const copy = made(new kind(from.message));
      Object.defineProperty(copy, "stack", { value: from.stack, writable: true, configurable: true });
      if ("cause" in from) Object.defineProperty(copy, "cause", { value: copyOne(from.cause), writable: true, configurable: true });
      return copy;
    }
    if (loadedParts.subtle?.isKey(from)) return made(loadedParts.subtle.copyOfKey(from));
    if (from instanceof File) return made(new File([from], from.name, { type: from.type, lastModified: from.lastModified }));
    if (from instanceof Blob) return made(from.slice(0, from.size, from.type));
    const isArray = Array.isArray(from);
    if (!isArray && Object.prototype.toString.call(from) !== "[object Object]") refuse(`an object of ${from.constructor?.name ?? "a kind of its own"}`);
    for (const kind of [Promise, WeakMap, WeakSet, WeakRef, Body, Headers, URL, URLSearchParams, FormData, EventTarget, Event, ReadableStream, WritableStream, TransformStream]) {
      if (from instanceof kind) refuse(`an object of ${kind.name}`);
    }
    const copy = made(isArray ? new Array(from.length) : {});
    for (const key of Object.keys(from)) {
      Object.defineProperty(copy, key, { value: copyOne(from[key]), writable: true, enumerable: true, configurable: true });
    }
    return copy;
  };
  const ports = [];
  for (const item of transferred) {
    const canGo = isPort?.(item) ? !isDetached(item) : item instanceof ArrayBuffer && !item.detached;
    if (!canGo) refuse("a value of the transfer list");
    if (isPort?.(item)) ports.push(item);
  }
  // Ports are transferred last, because cloning may fail: until then new ones take their places.
  const places = new Map(ports.map((port) => [port, transferPort.prepare(port)]));
  for (const [port, place] of places) done.set(port, place);
  const copy = copyOne(value);
  // What the value does not have is transferred, too.
  for (const item of transferred) if (item instanceof ArrayBuffer && !item.detached) item.transfer();
  for (const [port, place] of places) transferPort.finish(port, place);
  return { copy, ports: [...places.values()] };
}
