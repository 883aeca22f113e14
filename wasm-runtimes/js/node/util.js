// node:util.
const custom = Symbol.for("nodejs.util.inspect.custom");
const promisified = Symbol.for("nodejs.util.promisify.custom");
const invalid = (name, expected, value) => Object.assign(
  new TypeError(`The "${name}" argument must be ${expected}. Received ${value === null ? "null" : typeof value}`),
  { code: "ERR_INVALID_ARG_TYPE" },
);

// ---- inspect

const NAME = /^[A-Za-z_$][\w$]*$/;
const COLORS = { string: 32, number: 33, bigint: 33, boolean: 33, undefined: 90, null: 1, symbol: 32, special: 36, date: 35, regexp: 31 };
const DEFAULTS = {
  showHidden: false, depth: 2, colors: false, customInspect: true, showProxy: false, maxArrayLength: 100, maxStringLength: 10000,
  breakLength: 80, compact: 3, sorted: false, getters: false, numericSeparator: false,
};

function quoted(text) {
  const mark = !text.includes("'") ? "'" : !text.includes('"') ? '"' : !text.includes("`") ? "`" : "'";
  const escaped = text.replace(/[\\\n\r\t\b\f\v\0-\x1f\x7f]/g, (one) => {
    const known = { "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b", "\f": "\\f", "\v": "\\v" }[one];
    return known ?? `\\x${one.charCodeAt(0).toString(16).toUpperCase().padStart(2, "0")}`;
  });
  return mark + (mark === "'" ? escaped.replace(/'/g, "\\'") : escaped) + mark;
}

function constructorName(value) {
  for (let object = value; object !== null; object = Object.getPrototypeOf(object)) {
    const property = Object.getOwnPropertyDescriptor(object, "constructor");
    if (typeof property?.value === "function" && property.value.name !== "") return property.value.name;
  }
  return null;
}

function inspect(value, options = {}, ...rest) {
  if (typeof options === "boolean" || rest.length > 0) options = { showHidden: options === true, depth: rest[0], colors: rest[1] };
  const settings = { ...DEFAULTS, ...inspect.defaultOptions };
  for (const [name, one] of Object.entries(options ?? {})) if (one !== undefined) settings[name] = one;
  if (settings.depth === null) settings.depth = Infinity;
  return show(value, settings, 0, []);
}

function show(value, settings, level, parents) {
  const color = (text, kind) => (settings.colors && COLORS[kind] !== undefined ? `\x1b[${COLORS[kind]}m${text}\x1b[${kind === "null" ? 22 : 39}m` : text);
  switch (typeof value) {
    case "string": {
      const cut = value.length > settings.maxStringLength ? value.slice(0, settings.maxStringLength) : value;
      const more = value.length - cut.length;
      return color(quoted(cut), "string") + (more > 0 ? `... ${more} more character${more > 1 ? "s" : ""}` : "");
    }
    case "bigint": return color(`${value}n`, "bigint");
    case "number": return color(Object.is(value, -0) ? "-0" : String(value), "number");
    case "symbol": return color(String(value), "symbol");
    case "boolean": case "undefined": return color(String(value), typeof value);
    case "object": if (value === null) return color("null", "null");
  }
  if (settings.customInspect && typeof value[custom] === "function" && value[custom] !== inspect) {
    const given = value[custom](settings.depth - level, { ...settings, stylize: color, depth: settings.depth - level }, inspect);
    if (given !== value) return typeof given === "string" ? given.replaceAll("\n", "\n" + "  ".repeat(level)) : show(given, settings, level, parents);
  }
  if (parents.includes(value)) return color("[Circular *1]", "special");

  const name = constructorName(value);
  const tag = Object.prototype.toString.call(value).slice(8, -1);
  const isArray = Array.isArray(value);
  const isTyped = ArrayBuffer.isView(value) && !(value instanceof DataView);
  let keys = settings.showHidden ? Reflect.ownKeys(value) : Reflect.ownKeys(value).filter((key) => Object.prototype.propertyIsEnumerable.call(value, key));
  if (isArray || isTyped) keys = keys.filter((key) => typeof key === "symbol" || !/^(?:0|[1-9]\d*)$/.test(key) && (key !== "length" || settings.showHidden));
  if (value instanceof String) keys = keys.filter((key) => typeof key === "symbol" || !/^\d+$/.test(key) && key !== "length");
  if (value instanceof Error) keys = keys.filter((key) => !["stack", "message", "name"].includes(key));
  if (settings.sorted) keys.sort(typeof settings.sorted === "function" ? settings.sorted : undefined);

  let head = "";
  let marks = ["{", "}"];
  const label = (kind, size) => (name === null ? `[${kind}${size === undefined ? "" : `(${size})`}: null prototype] ` : `${name}${size === undefined ? "" : `(${size})`} `);
  const none = () => [];
  let items = none;
  const next = (one) => show(one, settings, level + 1, [...parents, value]);
  const limited = (list, make) => {
    const limit = settings.maxArrayLength ?? Infinity;
    const shown = [...list.slice(0, limit)].map(make);
    const more = list.length - shown.length;
    if (more > 0) shown.push(`... ${more} more item${more > 1 ? "s" : ""}`);
    return shown;
  };
  if (isArray) {
    head = name === "Array" ? "" : label("Array", value.length);
    marks = ["[", "]"];
    items = () => {
      const shown = [];
      let holes = 0;
      const flush = () => {
        if (holes > 0) shown.push(color(`<${holes} empty item${holes > 1 ? "s" : ""}>`, "undefined"));
        holes = 0;
      };
      let count = 0;
      for (let at = 0; at < value.length && count < settings.maxArrayLength; at++) {
        if (!Object.hasOwn(value, at)) holes++;
        else {
          flush();
          shown.push(next(value[at]));
          count++;
        }
      }
      flush();
      const more = value.length - Math.max(count, Math.min(value.length, settings.maxArrayLength));
      if (more > 0) shown.push(`... ${more} more item${more > 1 ? "s" : ""}`);
      return shown;
    };
  } else if (isTyped) {
    head = label(tag, value.length);
    marks = ["[", "]"];
    items = () => limited(value, (one) => color(typeof one === "bigint" ? `${one}n` : String(one), "number"));
  } else if (value instanceof Map) {
    head = label("Map", value.size);
    items = () => limited([...Map.prototype.entries.call(value)], ([key, one]) => `${next(key)} => ${next(one)}`);
  } else if (value instanceof Set) {
    head = label("Set", value.size);
    items = () => limited([...Set.prototype.values.call(value)], next);
  } else if (value instanceof Error) {
    const told = host.describe(value);
    head = level > 0 && keys.length === 0 ? `[${told.split("\n")[0]}]` : told.replaceAll("\n", "\n" + "  ".repeat(level));
    if (keys.length === 0) return head;
    head += " ";
  } else if (value instanceof Date) {
    head = color(Number.isNaN(value.getTime()) ? "Invalid Date" : value.toISOString(), "date");
  } else if (value instanceof RegExp) {
    head = color(String(value), "regexp");
  } else if (typeof value === "function") {
    const isClass = /^class\b/.test(Function.prototype.toString.call(value));
    const parent = isClass ? Object.getPrototypeOf(value)?.name : undefined;
    const kind = isClass ? "class" : tag === "Function" ? "Function" : tag;
    head = isClass
      ? `[class ${value.name || "(anonymous)"}${parent ? ` extends ${parent}` : ""}]`
      : `[${kind}${value.name === "" ? " (anonymous)" : `: ${value.name}`}]`;
    head = color(head, "special");
  } else if (value instanceof Promise) {
    head = "Promise ";
    items = () => [color(`<${host.promiseState(value)}>`, "special")];
  } else if (value instanceof WeakMap || value instanceof WeakSet) {
    head = `${tag} `;
    items = () => [color("<items unknown>", "special")];
  } else if (value instanceof ArrayBuffer) {
    head = "ArrayBuffer ";
    items = () => [`byteLength: ${color(value.byteLength, "number")}`];
  } else if (value instanceof Number || value instanceof String || value instanceof Boolean) {
    head = `[${tag}: ${show(value.valueOf(), settings, level, parents)}]`;
  } else if (value instanceof URL) {
    head = `${name} `;
    items = () => ["href", "origin", "protocol", "host", "pathname", "search", "hash"].map((key) => `${key}: ${next(value[key])}`);
  } else if (value instanceof Headers || value instanceof URLSearchParams || value instanceof FormData) {
    head = `${name} `;
    items = () => [...value].map(([key, one]) => `${quoted(key)} => ${next(one)}`);
  } else {
    head = name === "Object" ? (tag === "Object" ? "" : `Object [${tag}] `) : name === null ? "[Object: null prototype] " : tag !== "Object" && tag !== name ? `${name} [${tag}] ` : `${name} `;
    if (tag === "Arguments") [head, marks, items] = ["[Arguments] ", ["[", "]"], () => limited([...value], next)];
  }
  const isBare = value instanceof Date || value instanceof RegExp || typeof value === "function"
    || value instanceof Number || value instanceof String || value instanceof Boolean;
  if (isBare && keys.length === 0) return head;
  if (isBare) head += " ";
  if (keys.length === 0 && (isArray ? value.length === 0 : items === none)) return `${head}${marks[0]}${marks[1]}`;
  if (level > settings.depth) return color(isArray ? "[Array]" : `[${name ?? "Object: null prototype"}]`, "special");

  settings.deepest = level;
  const shown = items();
  for (const key of keys) {
    const property = Object.getOwnPropertyDescriptor(value, key);
    if (property === undefined) continue;
    const label = typeof key === "symbol" ? `[${color(String(key), "symbol")}]` : NAME.test(key) ? key : color(quoted(key), "string");
    const kind = property.get === undefined ? (property.set === undefined ? "" : "[Setter]") : property.set === undefined ? "[Getter]" : "[Getter/Setter]";
    const told = kind !== "" ? color(kind, "special") : next(property.value);
    shown.push(property.enumerable ? `${label}: ${told}` : `[${label}]: ${told}`);
  }
  if (shown.length === 0) return `${head}${marks[0]}${marks[1]}`;
  const indent = "  ".repeat(level + 1);
  // As Node.js does: at most three levels on a line, which is not too long.
  const length = shown.reduce((sum, one) => sum + one.length, 0) + 2 * shown.length + 2 * level + marks[0].length + head.length + 10;
  const isShort = settings.compact !== false && settings.deepest - level < Number(settings.compact) && length <= settings.breakLength;
  if (settings.breakLength === Infinity || isShort && !shown.some((one) => one.includes("\n"))) {
    return `${head}${marks[0]} ${shown.join(", ")} ${marks[1]}`;
  }
  return `${head}${marks[0]}\n${indent}${shown.join(`,\n${indent}`)}\n${"  ".repeat(level)}${marks[1]}`;
}
inspect.custom = custom;
inspect.defaultOptions = { ...DEFAULTS };
inspect.colors = Object.assign(Object.create(null), { reset: [0, 0], bold: [1, 22], red: [31, 39], green: [32, 39], yellow: [33, 39], blue: [34, 39], magenta: [35, 39], cyan: [36, 39], white: [37, 39], gray: [90, 39], grey: [90, 39] });
inspect.styles = Object.assign(Object.create(null), { string: "green", number: "yellow", boolean: "yellow", special: "cyan" });

// ---- format

function formatWithOptions(options, ...values) {
  const [first] = values;
  let at = 0;
  let text = "";
  if (typeof first === "string") {
    at = 1;
    text = values.length === 1 ? first : first.replace(/%[sdifjoOc%]/g, (mark) => {
      if (mark === "%%") return "%";
      if (at >= values.length) return mark;
      const value = values[at++];
      switch (mark) {
        case "%s": {
          if (typeof value === "bigint") return `${value}n`;
          if (Object.is(value, -0)) return "-0";
          if (typeof value !== "object" || value === null) return String(value);
          const own = value.toString !== Object.prototype.toString && value.toString !== Error.prototype.toString && !Array.isArray(value);
          return own && !(value instanceof Date) && typeof value.toString === "function" ? String(value) : inspect(value, { ...options, depth: 0, colors: false, compact: 3 });
        }
        case "%d": return typeof value === "bigint" ? `${value}n` : typeof value === "symbol" ? "NaN" : String(Number(value));
        case "%i": return typeof value === "bigint" ? `${value}n` : typeof value === "symbol" ? "NaN" : String(parseInt(value, 10));
        case "%f": return typeof value === "symbol" ? "NaN" : String(parseFloat(value));
        case "%j":
          try {
            return JSON.stringify(value);
          } catch (error) {
            if (/circular/i.test(error.message)) return "[Circular]";
            throw error;
          }
        case "%o": return inspect(value, { ...options, showHidden: true, showProxy: true, depth: 4 });
        case "%O": return inspect(value, options);
        default: return "";
      }
    });
  }
  for (; at < values.length; at++) {
    const value = values[at];
    if (at > 0) text += " ";
    text += typeof value === "string" ? value : inspect(value, options);
  }
  return text;
}
const format = (...values) => formatWithOptions({}, ...values);

// ---- functions

function promisify(original) {
  if (typeof original !== "function") throw invalid("original", "of type function", original);
  const own = original[promisified];
  if (own !== undefined) {
    if (typeof own !== "function") throw invalid("util.promisify.custom", "of type function", own);
    return Object.defineProperty(own, promisified, { value: own, configurable: true });
  }
  function promised(...values) {
    return new Promise((resolve, reject) => {
      Reflect.apply(original, this, [...values, (error, ...results) => (error ? reject(error) : resolve(results[0]))]);
    });
  }
  Object.setPrototypeOf(promised, Object.getPrototypeOf(original));
  Object.defineProperty(promised, promisified, { value: promised, configurable: true });
  return Object.defineProperties(promised, Object.getOwnPropertyDescriptors(original));
}
promisify.custom = promisified;

function callbackify(original) {
  if (typeof original !== "function") throw invalid("original", "of type function", original);
  return function (...values) {
    const done = values.pop();
    if (typeof done !== "function") throw invalid("last argument", "of type function", done);
    Reflect.apply(original, this, values).then(
      (value) => queueMicrotask(() => done(null, value)),
      (reason) => queueMicrotask(() => done(reason || Object.assign(new Error("Promise was rejected with a falsy value"), { code: "ERR_FALSY_VALUE_REJECTION", reason }))),
    );
  };
}

const warned = new Set();
function deprecate(original, message, code) {
  let isWarned = false;
  function deprecated(...values) {
    if (!isWarned) {
      isWarned = true;
      if (code === undefined || !warned.has(code)) {
        warned.add(code);
        console.warn(`DeprecationWarning: ${code === undefined ? "" : `[${code}] `}${message}`);
      }
    }
    return new.target ? Reflect.construct(original, values, new.target) : Reflect.apply(original, this, values);
  }
  Object.setPrototypeOf(deprecated, original);
  if (original.prototype) deprecated.prototype = original.prototype;
  return deprecated;
}

function inherits(constructor, parent) {
  if (typeof constructor !== "function") throw invalid("ctor", "of type function", constructor);
  if (typeof parent !== "function") throw invalid("superCtor", "of type function", parent);
  if (parent.prototype === undefined) throw invalid("superCtor.prototype", "of type object", undefined);
  Object.defineProperty(constructor, "super_", { value: parent, writable: true, configurable: true });
  Object.setPrototypeOf(constructor.prototype, parent.prototype);
}

function debuglog(section) {
  const wanted = (process.env.NODE_DEBUG ?? "").split(",").some((one) => one.toLowerCase() === section.toLowerCase());
  const log = (...values) => {
    if (wanted) console.error(`${section.toUpperCase()} 1: ${format(...values)}`);
  };
  return Object.defineProperty(log, "enabled", { value: wanted });
}

// ---- types

const tagOf = Object.getOwnPropertyDescriptor(Object.getPrototypeOf(Uint8Array.prototype), Symbol.toStringTag).get;
const typed = (value) => (ArrayBuffer.isView(value) ? Reflect.apply(tagOf, value, []) : undefined);
const object = (tag) => (value) => typeof value === "object" && value !== null && Object.prototype.toString.call(value) === `[object ${tag}]`;
// Returns whether a method of that class accepts the value, which a value with another prototype cannot pretend.
const accepts = (method) => (value) => {
  try {
    Reflect.apply(method, value, []);
    return true;
  } catch {
    return false;
  }
};
const getter = (prototype, name) => Object.getOwnPropertyDescriptor(prototype, name).get;
const types = {
  isAnyArrayBuffer: (value) => value instanceof ArrayBuffer || types.isSharedArrayBuffer(value),
  isArgumentsObject: object("Arguments"),
  isArrayBuffer: accepts(getter(ArrayBuffer.prototype, "byteLength")),
  isArrayBufferView: ArrayBuffer.isView,
  isAsyncFunction: (value) => typeof value === "function" && /^Async(Generator)?Function$/.test(Object.prototype.toString.call(value).slice(8, -1)),
  isBigInt64Array: (value) => typed(value) === "BigInt64Array",
  isBigIntObject: (value) => typeof value === "object" && accepts(BigInt.prototype.valueOf)(value),
  isBigUint64Array: (value) => typed(value) === "BigUint64Array",
  isBooleanObject: (value) => typeof value === "object" && accepts(Boolean.prototype.valueOf)(value),
  isBoxedPrimitive: (value) => ["isNumberObject", "isStringObject", "isBooleanObject", "isBigIntObject", "isSymbolObject"].some((name) => types[name](value)),
  isCryptoKey: (value) => value instanceof CryptoKey,
  isDataView: (value) => value instanceof DataView,
  isDate: accepts(Date.prototype.getTime),
  isExternal: () => false,
  isFloat32Array: (value) => typed(value) === "Float32Array",
  isFloat64Array: (value) => typed(value) === "Float64Array",
  isGeneratorFunction: (value) => typeof value === "function" && /GeneratorFunction$/.test(Object.prototype.toString.call(value).slice(8, -1)),
  isGeneratorObject: object("Generator"),
  isInt8Array: (value) => typed(value) === "Int8Array",
  isInt16Array: (value) => typed(value) === "Int16Array",
  isInt32Array: (value) => typed(value) === "Int32Array",
  isKeyObject: () => false,
  isMap: accepts(getter(Map.prototype, "size")),
  isMapIterator: object("Map Iterator"),
  isModuleNamespaceObject: object("Module"),
  isNativeError: (value) => (Error.isError ?? ((one) => one instanceof Error))(value),
  isNumberObject: (value) => typeof value === "object" && accepts(Number.prototype.valueOf)(value),
  isPromise: (value) => value instanceof Promise,
  isProxy: () => false,
  isRegExp: (value) => value instanceof RegExp,
  isSet: accepts(getter(Set.prototype, "size")),
  isSetIterator: object("Set Iterator"),
  isSharedArrayBuffer: (value) => typeof SharedArrayBuffer === "function" && value instanceof SharedArrayBuffer,
  isStringObject: (value) => typeof value === "object" && accepts(String.prototype.valueOf)(value),
  isSymbolObject: (value) => typeof value === "object" && accepts(Symbol.prototype.valueOf)(value),
  isTypedArray: (value) => typed(value) !== undefined,
  isUint8Array: (value) => typed(value) === "Uint8Array",
  isUint8ClampedArray: (value) => typed(value) === "Uint8ClampedArray",
  isUint16Array: (value) => typed(value) === "Uint16Array",
  isUint32Array: (value) => typed(value) === "Uint32Array",
  isWeakMap: (value) => value instanceof WeakMap,
  isWeakSet: (value) => value instanceof WeakSet,
};

// ---- equality

function equals(a, b, isStrict, seen) {
  if (isStrict ? Object.is(a, b) : a == b || (Number.isNaN(a) && Number.isNaN(b))) return true;
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return false;
  if (isStrict && Object.getPrototypeOf(a) !== Object.getPrototypeOf(b)) return false;
  const tag = Object.prototype.toString.call(a);
  if (tag !== Object.prototype.toString.call(b) || Array.isArray(a) !== Array.isArray(b)) return false;
  if (seen.some(([one, other]) => one === a && other === b)) return true;
  seen = [...seen, [a, b]];
  const same = (one, other) => equals(one, other, isStrict, seen);
  if (a instanceof Date && (!(b instanceof Date) || !Object.is(a.getTime(), b.getTime()))) return false;
  if (a instanceof RegExp && (!(b instanceof RegExp) || String(a) !== String(b) || a.lastIndex !== b.lastIndex)) return false;
  if (a instanceof Error && (!(b instanceof Error) || a.message !== b.message || a.name !== b.name || !same(a.cause, b.cause))) return false;
  if (types.isBoxedPrimitive(a) && (!types.isBoxedPrimitive(b) || !Object.is(a.valueOf(), b.valueOf()))) return false;
  if (a instanceof ArrayBuffer) return b instanceof ArrayBuffer && same(new Uint8Array(a), new Uint8Array(b));
  if (ArrayBuffer.isView(a)) {
    if (!ArrayBuffer.isView(b) || a.byteLength !== b.byteLength) return false;
    const bytes = [a, b].map((view) => new Uint8Array(view.buffer, view.byteOffset, view.byteLength));
    return bytes[0].every((byte, at) => byte === bytes[1][at]);
  }
  if (a instanceof Set) {
    if (!(b instanceof Set) || a.size !== b.size) return false;
    const rest = [...b].filter((one) => !a.has(one));
    for (const one of a) {
      if (b.has(one)) continue;
      const at = rest.findIndex((other) => same(one, other));
      if (at < 0) return false;
      rest.splice(at, 1);
    }
  } else if (a instanceof Map) {
    if (!(b instanceof Map) || a.size !== b.size) return false;
    const rest = [...b].filter(([key]) => !a.has(key));
    for (const [key, one] of a) {
      if (b.has(key)) {
        if (!same(one, b.get(key))) return false;
        continue;
      }
      const at = rest.findIndex(([otherKey, other]) => same(key, otherKey) && same(one, other));
      if (at < 0) return false;
      rest.splice(at, 1);
    }
  } else if (a instanceof WeakMap || a instanceof WeakSet || a instanceof Promise) {
    return false;
  }
  const keysOf = (value) => Reflect.ownKeys(value).filter((key) => (isStrict || typeof key === "string") && Object.prototype.propertyIsEnumerable.call(value, key));
  const keys = keysOf(a);
  if (keys.length !== keysOf(b).length || Array.isArray(a) && a.length !== b.length) return false;
  return keys.every((key) => Object.prototype.propertyIsEnumerable.call(b, key) && same(a[key], b[key]));
}
const isDeepStrictEqual = (a, b) => equals(a, b, true, []);

// ---- arguments

function parseArgs({ args = process.argv.slice(2), options = {}, strict = true, allowPositionals = !strict } = {}) {
  const values = Object.create(null);
  const positionals = [];
  const fail = (message, code) => { throw Object.assign(new TypeError(message), { code }); };
  const set = (name, value) => {
    const option = options[name];
    if (strict && option === undefined) fail(`Unknown option '--${name}'`, "ERR_PARSE_ARGS_UNKNOWN_OPTION");
    if (strict && option.type === "string" && typeof value !== "string") fail(`Option '--${name} <value>' argument missing`, "ERR_PARSE_ARGS_INVALID_OPTION_VALUE");
    if (strict && option.type === "boolean" && typeof value === "string") fail(`Option '--${name}' does not take an argument`, "ERR_PARSE_ARGS_INVALID_OPTION_VALUE");
    if (option?.multiple) (values[name] ??= []).push(value);
    else values[name] = value;
  };
  const longName = (short) => Object.keys(options).find((name) => options[name].short === short) ?? short;
  for (let at = 0; at < args.length; at++) {
    const arg = args[at];
    const takes = (name) => options[name]?.type === "string" && at + 1 < args.length && !args[at + 1].startsWith("-");
    if (arg === "--") {
      positionals.push(...args.slice(at + 1));
      break;
    }
    if (arg.startsWith("--")) {
      const [, name, , value] = /^--([^=]*)(=([^]*))?$/.exec(arg);
      set(name, value ?? (takes(name) ? args[++at] : true));
    } else if (/^-[^-]/.test(arg)) {
      for (let index = 1; index < arg.length; index++) {
        const name = longName(arg[index]);
        if (options[name]?.type === "string") {
          set(name, index + 1 < arg.length ? arg.slice(index + 1) : takes(name) ? args[++at] : true);
          break;
        }
        set(name, true);
      }
    } else {
      if (!allowPositionals) fail(`Unexpected argument '${arg}'`, "ERR_PARSE_ARGS_UNEXPECTED_POSITIONAL");
      positionals.push(arg);
    }
  }
  for (const [name, option] of Object.entries(options)) if (values[name] === undefined && option.default !== undefined) values[name] = option.default;
  return { values, positionals };
}

const stripVTControlCharacters = (text) => String(text).replace(/[\x1b\x9b](?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])?/g, "");
const styleText = (formats, text) => [formats].flat().reduceRight((styled, one) => {
  const [on, off] = inspect.colors[one] ?? (() => { throw invalid("format", "a known style", one); })();
  return `\x1b[${on}m${styled}\x1b[${off}m`;
}, text);

module.exports = {
  TextDecoder, TextEncoder, callbackify, debug: debuglog, debuglog, deprecate, format, formatWithOptions, inherits, inspect,
  isArray: Array.isArray, isDeepStrictEqual, parseArgs, promisify, stripVTControlCharacters, styleText, types,
  toUSVString: (text) => String(text).toWellFormed(),
  aborted: (signal) => new Promise((resolve) => (signal.aborted ? resolve() : signal.addEventListener("abort", () => resolve(), { once: true }))),
  parseEnv: (text) => Object.fromEntries([...text.matchAll(/^\s*(?:export\s+)?([\w.-]+)\s*=[ \t]*(?:"([^"]*)"|'([^']*)'|([^\n#]*))/gm)].map(([, name, a, b, c]) => [name, a?.replaceAll("\\n", "\n") ?? b ?? c.trim()])),
  _extend: (target, source) => Object.assign(target, source),
  isBoolean: (value) => typeof value === "boolean", isBuffer: (value) => require("node:buffer").Buffer.isBuffer(value),
  isDate: types.isDate, isError: types.isNativeError, isFunction: (value) => typeof value === "function", isNull: (value) => value === null,
  isNullOrUndefined: (value) => value === null || value === undefined, isNumber: (value) => typeof value === "number",
  isObject: (value) => typeof value === "object" && value !== null, isPrimitive: (value) => Object(value) !== value, isRegExp: types.isRegExp,
  isString: (value) => typeof value === "string", isSymbol: (value) => typeof value === "symbol", isUndefined: (value) => value === undefined,
};
// For node:assert.
Object.defineProperty(module.exports, "isDeepLooseEqual", { value: (a, b) => equals(a, b, false, []) });
