// What errors and values look like in the log (Console Standard, section 2).

// The frames of a script, without those of what is built in, nor what was between those.
function frames(stack) {
  const lines = String(stack ?? "").split("\n").filter((line) => line.trim() !== "" && !line.includes("faasw:"));
  while (lines.at(-1)?.endsWith("(native)")) lines.pop();
  return lines.join("\n").toWellFormed();
}

const UNTOLD = "an error that cannot be told";

// Errors within errors are told some levels deep.
function describe(error, depth = 8) {
  try {
    // Where there was no room for an error, this is what was thrown.
    if (error === null && native.ranOut()) return "InternalError: out of memory";
    if (!(error instanceof Error)) return inspect(error).toWellFormed();
    // Other errors map their stack themselves.
    const stack = frames(error instanceof DOMException ? native.mapStack(error.stack) : error.stack);
    let text = native.explain(String(error).toWellFormed()) + (stack === "" ? "" : "\n" + stack);
    if (depth > 0 && error.cause !== undefined) text += "\n  caused by " + describe(error.cause, depth - 1);
    if (depth > 0 && error instanceof AggregateError) {
      text += error.errors.slice(0, 8).map((one) => "\n  with " + describe(one, 0)).join("");
    }
    return text.toWellFormed();
  } catch {
    return UNTOLD;
  }
}

function log(stream, text) {
  native.log(stream, text.toWellFormed());
}

const NAME = /^[A-Za-z_$][\w$]*$/;

function inspect(value, depth = 3, seen = []) {
  switch (typeof value) {
    case "string": return seen.length === 0 && depth === 3 ? value : JSON.stringify(value);
    case "bigint": return value + "n";
    case "symbol": return String(value);
    case "function": {
      const kind = Function.prototype.toString.call(value).startsWith("class") ? "class" : "Function";
      return value.name === "" ? `[${kind}]` : `[${kind}: ${value.name}]`;
    }
    case "object": break;
    default: return Object.is(value, -0) ? "-0" : String(value);
  }
  if (value === null) return "null";
  if (value instanceof Error) return describe(value);
  if (value instanceof Date) return Number.isNaN(value.getTime()) ? "Invalid Date" : value.toISOString();
  if (value instanceof RegExp) return String(value);
  if (seen.includes(value)) return "[Circular]";
  const name = Object.getPrototypeOf(value) === null ? "null" : (value.constructor?.name ?? "Object");
  if (depth < 0) return Array.isArray(value) ? "[Array]" : `[${name}]`;
  const inside = [...seen, value];
  const show = (one) => inspect(one, depth - 1, inside);
  const list = (items, left, right) => (items.length === 0 ? left + right : `${left} ${items.join(", ")} ${right}`);
  const cut = (items) => (items.length > 100 ? [...items.slice(0, 100).map(show), `... ${items.length - 100} more`] : items.map(show));
  if (Array.isArray(value)) return list(cut(value), "[", "]");
  if (ArrayBuffer.isView(value) && !(value instanceof DataView)) {
    return `${name}(${value.length}) ` + list(cut([...value]), "[", "]");
  }
  if (value instanceof ArrayBuffer) return `ArrayBuffer(${value.byteLength})`;
  if (value instanceof Map) {
    return `Map(${value.size}) ` + list([...value].map(([key, one]) => `${show(key)} => ${show(one)}`), "{", "}");
  }
  if (value instanceof Set) return `Set(${value.size}) ` + list([...value].map(show), "{", "}");
  if (value instanceof Headers || value instanceof URLSearchParams || value instanceof FormData) {
    return `${name} ` + list([...value].map(([key, one]) => `${JSON.stringify(key)}: ${show(one)}`), "{", "}");
  }
  if (value instanceof URL) return `URL { ${value.href} }`;
  if (value instanceof Request) return `Request { ${value.method} ${value.url} }`;
  if (value instanceof Response) return `Response { ${value.status} }`;
  if (value instanceof Promise) return "Promise {}";
  const entries = Reflect.ownKeys(value)
    .filter((key) => Object.prototype.propertyIsEnumerable.call(value, key))
    .map((key) => {
      const label = typeof key === "symbol" ? `[${String(key)}]` : NAME.test(key) ? key : JSON.stringify(key);
      const property = Object.getOwnPropertyDescriptor(value, key);
      return `${label}: ${property.get !== undefined ? "[Getter]" : show(property.value)}`;
    });
  return (name === "Object" ? "" : name + " ") + list(entries, "{", "}");
}

function format(values) {
  const [first, ...rest] = values;
  let text = "";
  if (typeof first === "string" && rest.length > 0 && first.includes("%")) {
    text = first.replace(/%[sdifoOc%]/g, (mark) => {
      if (mark === "%%") return "%";
      if (rest.length === 0) return mark;
      const value = rest.shift();
      switch (mark) {
        case "%s": return typeof value === "object" ? inspect(value, 1) : String(value);
        case "%d": return typeof value === "symbol" ? "NaN" : String(Number(value));
        case "%i": return typeof value === "symbol" ? "NaN" : String(parseInt(value, 10));
        case "%f": return typeof value === "symbol" ? "NaN" : String(parseFloat(value));
        case "%c": return "";
        default: return inspect(value);
      }
    });
  } else if (values.length > 0) {
    text = inspect(first);
  }
  return [text, ...rest.map((value) => inspect(value))].join(" ");
}

const console = (() => {
  const counts = new Map();
  const timers = new Map();
  let indent = "";
  const write = (stream, values) => {
    let text;
    try {
      text = format(values);
    } catch {
      text = "a value that cannot be shown";
    }
    log(stream, indent === "" ? text : text.replace(/^/gm, indent));
  };
  const since = (label) => {
    const began = timers.get(label);
    return began === undefined ? `there is no timer ${label}` : `${label}: ${(native.now() - began).toFixed(3)} ms`;
  };
  const namespace = Object.create({});
  Object.defineProperty(namespace, Symbol.toStringTag, { value: "console", configurable: true });
  return Object.assign(namespace, {
    log: (...values) => write(0, values),
    info: (...values) => write(0, values),
    debug: (...values) => write(0, values),
    warn: (...values) => write(1, values),
    error: (...values) => write(1, values),
    dir: (value) => write(0, [value]),
    dirxml: (...values) => write(0, values),
    table: (value) => write(0, [value]),
    trace: (...values) => {
      write(1, ["Trace:", ...values]);
      log(1, frames(new Error().stack));
    },
    assert: (holds, ...values) => {
      if (holds) return;
      if (typeof values[0] === "string") values[0] = "Assertion failed: " + values[0];
      else values.unshift("Assertion failed");
      write(1, values);
    },
    count: (label = "default") => {
      label = String(label);
      counts.set(label, (counts.get(label) ?? 0) + 1);
      write(0, [`${label}: ${counts.get(label)}`]);
    },
    countReset: (label = "default") => void counts.delete(String(label)),
    group: (...values) => {
      if (values.length > 0) write(0, values);
      indent += "  ";
    },
    groupCollapsed: (...values) => console.group(...values),
    groupEnd: () => void (indent = indent.slice(2)),
    time: (label = "default") => void timers.set(String(label), native.now()),
    timeLog: (label = "default", ...values) => write(0, [since(String(label)), ...values]),
    timeEnd: (label = "default") => {
      label = String(label);
      write(0, [since(label)]);
      timers.delete(label);
    },
    clear: () => {},
  });
})();
