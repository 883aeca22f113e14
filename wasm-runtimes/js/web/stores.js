// Key-value stores, with the methods of Workers KV and two atomic ones.

const VALUE_TYPES = ["text", "json", "arrayBuffer", "stream"];

// Options of `put` that no store can keep.
const UNKEPT = ["expiration", "expirationTtl", "metadata"];

function keyOf(key) {
  if (typeof key === "string") return key.toWellFormed();
  if (typeof key === "number" || typeof key === "bigint") return String(key);
  throw new TypeError(`the key of a store is a string, not ${inspect(key, 0)}`);
}

function valueType(options) {
  const type = (typeof options === "string" ? options : options?.type) ?? "text";
  if (!VALUE_TYPES.includes(type)) throw new TypeError(`values are read as ${VALUE_TYPES.join(", ")}, not as ${inspect(type, 0)}`);
  return type;
}

function valueAs(type, value) {
  if (value === undefined) return null;
  switch (type) {
    case "json": return JSON.parse(value);
    case "arrayBuffer": return value.buffer;
    case "stream": return streamOf(value);
    default: return value;
  }
}

// What is stored: a string or bytes.
function storable(value) {
  if (typeof value === "string") return value.toWellFormed();
  if (value instanceof ArrayBuffer || ArrayBuffer.isView(value)) return bytesOf(value);
  throw new TypeError(`a value is a string, an ArrayBuffer, a view of one or a ReadableStream, not ${inspect(value, 0)}`);
}

// Ends a stream that is larger than any value.
async function storableOf(stream) {
  const parts = [new Uint8Array()];
  let size = 0;
  const reader = stream.getReader();
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return joined(parts);
    const part = typeof value === "string" ? native.encode(value.toWellFormed()) : copyOf(value);
    size += part.length;
    if (size > native.storeValueMax) {
      const error = new Error(`a value has ${native.storeValueMax} bytes at most, and the stream has more`);
      reader.cancel(error).catch(() => {});
      throw error;
    }
    parts.push(part);
  }
}

class KeyValueStore {
  #name;
  constructor(token, name) {
    if (token !== inner) throw new TypeError("stores are found in env, or opened by kv.open");
    this.#name = name;
  }
  // At the top level of a script this throws at once: there, a rejection that nobody awaits would
  // only be logged, and the script deployed.
  #soon(run) {
    native.storeCheck(this.#name);
    return new Promise((resolve) => resolve(run(this.#name)));
  }
  // Several keys give a Map.
  get(key, options = undefined) {
    return this.#soon((store) => {
      const type = valueType(options);
      const asText = type === "text" || type === "json";
      if (!Array.isArray(key)) return valueAs(type, native.storeGet(store, [keyOf(key)], asText)[0]);
      const keys = [...key].map(keyOf);
      const values = native.storeGet(store, keys, asText);
      return new Map(keys.map((one, at) => [one, valueAs(type, values[at])]));
    });
  }
  async getWithMetadata(key, options = undefined) {
    const found = (value) => ({ value, metadata: null, cacheStatus: null });
    const given = await this.get(key, options);
    return Array.isArray(key) ? new Map([...given].map(([one, value]) => [one, found(value)])) : found(given);
  }
  put(key, value, options = undefined) {
    return this.#soon(async (store) => {
      for (const name of UNKEPT) {
        const given = options?.[name];
        if (given !== undefined && given !== null) throw new TypeError(`put cannot keep the option ${name}: values have no expiry and no metadata`);
      }
      key = keyOf(key);
      native.storeSet(store, key, value instanceof ReadableStream ? await storableOf(value) : storable(value));
    });
  }
  delete(key) { return this.#soon((store) => native.storeDelete(store, keyOf(key))); }
  list(options = undefined) {
    return this.#soon((store) => {
      const { prefix, limit, cursor } = dictionary(options);
      const count = limit === undefined || limit === null ? 1000 : Number(limit);
      if (!Number.isInteger(count) || count < 1 || count > 1000) throw new RangeError(`the limit of a list is 1 to 1000, not ${inspect(limit, 0)}`);
      const behind = cursor === undefined || cursor === null || cursor === "" ? null : usv(cursor);
      const [names, isComplete] = native.storeList(store, usv(prefix ?? ""), count, behind);
      const keys = names.map((name) => ({ name }));
      if (isComplete) return { keys, list_complete: true, cacheStatus: null };
      return { keys, list_complete: false, cursor: names.at(-1), cacheStatus: null };
    });
  }
  // Adds to the number of a key, a missing key being 0, and gives the sum.
  increment(key, delta = 1) {
    return this.#soon((store) => {
      if (typeof delta !== "bigint" && !Number.isSafeInteger(delta)) throw new TypeError(`a number is incremented by an integer, not by ${inspect(delta, 0)}`);
      const sum = native.storeIncrement(store, keyOf(key), String(delta));
      return typeof delta === "bigint" ? BigInt(sum) : Number(sum);
    });
  }
  // Sets a key only if it has the expected value; null stands for a missing key. Gives whether it did.
  compareAndSet(key, expected, value) {
    return this.#soon((store) => {
      const before = expected === null || expected === undefined ? null : storable(expected);
      return native.storeCompareAndSet(store, keyOf(key), before, storable(value));
    });
  }
}
Object.defineProperty(KeyValueStore.prototype, Symbol.toStringTag, { value: "KeyValueStore", configurable: true });
