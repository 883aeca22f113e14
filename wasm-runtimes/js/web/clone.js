// structuredClone (HTML Standard, section 2.7).

const ERRORS = { Error, EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError };

function structuredClone(value, options) {
  if (arguments.length === 0) throw new TypeError("structuredClone takes a value");
  const transferred = new Set(options?.transfer ?? []);
  const done = new Map();
  const refuse = (what) => {
    throw new DOMException(`${what} cannot be cloned`, "DataCloneError");
  };
  const clone = (from) => {
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
      return made(new from.constructor(clone(from.buffer), at, length));
    }
    if (from instanceof Map) {
      const copy = made(new Map());
      for (const [key, one] of [...from]) copy.set(clone(key), clone(one));
      return copy;
    }
    if (from instanceof Set) {
      const copy = made(new Set());
      for (const one of [...from]) copy.add(clone(one));
      return copy;
    }
    if (from instanceof DOMException) return made(new DOMException(from.message, from.name));
    if (from instanceof Error) {
      const kind = Object.hasOwn(ERRORS, from.name) ? ERRORS[from.name] : Error;
      const copy = made(new kind(from.message));
      Object.defineProperty(copy, "stack", { value: from.stack, writable: true, configurable: true });
      if ("cause" in from) Object.defineProperty(copy, "cause", { value: clone(from.cause), writable: true, configurable: true });
      return copy;
    }
    if (from instanceof File) return made(new File([from], from.name, { type: from.type, lastModified: from.lastModified }));
    if (from instanceof Blob) return made(from.slice(0, from.size, from.type));
    const isArray = Array.isArray(from);
    if (!isArray && Object.prototype.toString.call(from) !== "[object Object]") refuse(`an object of ${from.constructor?.name ?? "a kind of its own"}`);
    for (const kind of [Promise, WeakMap, WeakSet, WeakRef, Body, Headers, URL, URLSearchParams, FormData, EventTarget, Event, ReadableStream, WritableStream, TransformStream]) {
      if (from instanceof kind) refuse(`an object of ${kind.name}`);
    }
    const copy = made(isArray ? new Array(from.length) : {});
    for (const key of Object.keys(from)) {
      Object.defineProperty(copy, key, { value: clone(from[key]), writable: true, enumerable: true, configurable: true });
    }
    return copy;
  };
  for (const item of transferred) {
    if (!(item instanceof ArrayBuffer) || item.detached) refuse("what is to be transferred");
  }
  const copy = clone(value);
  // What was not met goes, too.
  for (const buffer of transferred) if (!buffer.detached) buffer.transfer();
  return copy;
}
