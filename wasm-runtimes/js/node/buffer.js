// node:buffer. npm's buffer, with native conversions of texts, and base64url.
const base = require("buffer/");
const { Buffer } = base;
const { prototype } = Buffer;
const { from: slowFrom, isEncoding, byteLength } = Buffer;
const { toString: slowToString, write: slowWrite } = prototype;
const { encode } = host.native;
const decoder = new TextDecoder("utf-8", { ignoreBOM: true });

const name = (encoding) => (encoding === undefined || encoding === null || encoding === "" ? "utf8" : String(encoding).toLowerCase());

// Characters that are not base64 are ignored, and the text ends at the first `=`.
function fromBase64(text) {
  const clean = text.replace(/=[^]*$/, "").replace(/-/g, "+").replace(/_/g, "/").replace(/[^A-Za-z0-9+/]/g, "");
  return Uint8Array.fromBase64(clean.length % 4 === 1 ? clean.slice(0, -1) : clean);
}

// Returns the bytes of a text, or undefined if the encoding has no native conversion.
function encoded(text, encoding) {
  switch (name(encoding)) {
    case "utf8": case "utf-8": return encode(text.toWellFormed());
    case "base64": case "base64url": return fromBase64(text);
    case "hex": {
      const digits = /^(?:[0-9a-f]{2})*/i.exec(text)[0];
      return Uint8Array.fromHex(digits);
    }
    default: return undefined;
  }
}

const asBuffer = (bytes) => Object.setPrototypeOf(bytes, prototype);

Buffer.from = function from(value, encoding, length) {
  if (typeof value === "string") {
    const bytes = encoded(value, encoding);
    if (bytes !== undefined) return asBuffer(bytes);
  }
  return slowFrom(value, encoding, length);
};

for (const name of ["alloc", "allocUnsafe", "allocUnsafeSlow"]) {
  const slow = Buffer[name];
  Buffer[name] = function (size, ...rest) {
    if (typeof size === "number" && !(size >= 0 && size <= base.kMaxLength)) {
      throw Object.assign(new RangeError(`The value of "size" is out of range. It must be >= 0 && <= ${base.kMaxLength}. Received ${size}`), { code: "ERR_OUT_OF_RANGE" });
    }
    return slow(size, ...rest);
  };
}

Buffer.isEncoding = (encoding) => typeof encoding === "string" && (encoding.toLowerCase() === "base64url" || isEncoding(encoding));

Buffer.byteLength = function (value, encoding) {
  if (typeof value !== "string") return byteLength(value, encoding);
  return encoded(value, encoding)?.length ?? byteLength(value, encoding);
};

prototype.toString = prototype.toLocaleString = function toString(encoding, start, end) {
  const length = this.length;
  const from = Math.min(Math.max(Math.trunc(start) || 0, 0), length);
  const to = end === undefined ? length : Math.min(Math.max(Math.trunc(end) || 0, 0), length);
  if (to <= from) return "";
  const bytes = () => new Uint8Array(this.buffer, this.byteOffset + from, to - from);
  switch (name(encoding)) {
    case "utf8": case "utf-8": return decoder.decode(bytes());
    case "latin1": case "binary": return host.native.latin1(bytes());
    case "base64": return bytes().toBase64();
    case "base64url": return bytes().toBase64({ alphabet: "base64url", omitPadding: true });
    case "hex": return bytes().toHex();
    default: return slowToString.call(this, encoding, from, to);
  }
};

prototype.write = function write(text, offset, length, encoding) {
  if (typeof offset === "string") [offset, length, encoding] = [0, undefined, offset];
  else if (typeof length === "string") [length, encoding] = [undefined, length];
  const bytes = typeof text === "string" ? encoded(text, encoding) : undefined;
  if (bytes === undefined) return slowWrite.call(this, text, offset ?? 0, length ?? this.length - (offset ?? 0), encoding);
  const at = Math.trunc(offset ?? 0);
  if (at < 0 || at > this.length) throw Object.assign(new RangeError(`The value of "offset" is out of range: ${at}`), { code: "ERR_OUT_OF_RANGE" });
  let count = Math.min(bytes.length, this.length - at, length ?? Infinity);
  // A character is not cut in two.
  if (name(encoding).startsWith("utf")) while (count < bytes.length && count > 0 && (bytes[count] & 0xc0) === 0x80) count--;
  this.set(bytes.subarray(0, count), at);
  return count;
};

prototype.inspect = undefined;
delete prototype.inspect;
Object.defineProperty(prototype, Symbol.for("nodejs.util.inspect.custom"), {
  value() {
    const shown = Array.from(this.subarray(0, 50), (byte) => byte.toString(16).padStart(2, "0"));
    const more = this.length - shown.length;
    return `<Buffer${shown.map((hex) => " " + hex).join("")}${more > 0 ? ` ... ${more} more byte${more > 1 ? "s" : ""}` : ""}>`;
  },
  configurable: true,
  writable: true,
});

Buffer.poolSize = 8192;
Buffer.copyBytesFrom = (view, offset = 0, length = view.length - offset) => {
  const part = view.subarray(offset, offset + length);
  return Buffer.from(part.buffer.slice(part.byteOffset, part.byteOffset + part.byteLength));
};
// Data that JSON made of a buffer, and parts of buffers, are of the class of scripts.
Object.defineProperty(Buffer, "name", { value: "Buffer", configurable: true });

function isUtf8(value) {
  try {
    new TextDecoder("utf-8", { fatal: true }).decode(value);
    return true;
  } catch {
    return false;
  }
}
const isAscii = (value) => new Uint8Array(value.buffer ?? value, value.byteOffset ?? 0, value.byteLength).every((byte) => byte < 0x80);

function transcode(source, from, to) {
  return Buffer.from(Buffer.from(source).toString(from), to);
}

const constants = { MAX_LENGTH: base.kMaxLength, MAX_STRING_LENGTH: (1 << 30) - 1 };
module.exports = {
  Buffer, SlowBuffer: base.SlowBuffer, INSPECT_MAX_BYTES: 50, kMaxLength: base.kMaxLength,
  kStringMaxLength: constants.MAX_STRING_LENGTH, constants, Blob, File, atob, btoa, isUtf8, isAscii, transcode,
};
