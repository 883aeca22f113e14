// Random bytes, digests, HMAC and AES-GCM (Web Cryptography API). All of it is native.

const DIGESTS = ["SHA-1", "SHA-256", "SHA-384", "SHA-512"];
const BLOCKS = { "SHA-1": 64, "SHA-256": 64, "SHA-384": 128, "SHA-512": 128 };
const USAGES = { HMAC: ["sign", "verify"], "AES-GCM": ["encrypt", "decrypt", "wrapKey", "unwrapKey"] };

const refused = (name, message) => new DOMException(message, name);

// The name of an algorithm, and what was said beside it.
function algorithm(given, known) {
  const asked = typeof given === "string" ? { name: given } : given;
  const name = known.find((one) => one.toLowerCase() === String(asked?.name).toLowerCase());
  if (name === undefined) throw refused("NotSupportedError", `${String(asked?.name)} is not supported here: ${known.join(", ")} are`);
  return { ...asked, name };
}

let keyBytes;

class CryptoKey {
  #bytes;
  #told;
  constructor(mark, bytes, told) {
    if (mark !== token) throw new TypeError("CryptoKey is not to be constructed");
    this.#bytes = bytes;
    this.#told = told;
  }
  static inside() { keyBytes = (key) => key.#bytes; }
  get type() { return "secret"; }
  get extractable() { return this.#told.extractable; }
  get algorithm() { return this.#told.algorithm; }
  get usages() { return [...this.#told.usages]; }
}
CryptoKey.inside();
delete CryptoKey.inside;

function makeKey(bytes, asked, extractable, usages) {
  const allowed = USAGES[asked.name];
  usages = [...new Set(usages)];
  const other = usages.find((usage) => !allowed.includes(usage));
  if (other !== undefined) throw refused("SyntaxError", `a key of ${asked.name} is not for ${other}`);
  if (usages.length === 0) throw refused("SyntaxError", "a secret key is for something");
  const told = { name: asked.name, length: bytes.length * 8 };
  if (asked.name === "HMAC") told.hash = { name: algorithm(asked.hash, DIGESTS).name };
  else if (![16, 24, 32].includes(bytes.length)) throw refused("DataError", "a key of AES has 128, 192 or 256 bits");
  if (bytes.length === 0) throw refused("DataError", "the key is empty");
  return new CryptoKey(token, bytes, { algorithm: told, extractable: !!extractable, usages });
}

function mayUse(key, usage, name) {
  if (!(key instanceof CryptoKey)) throw new TypeError("this is no CryptoKey");
  if (key.algorithm.name !== name || !key.usages.includes(usage)) throw refused("InvalidAccessError", `the key is not for ${usage} with ${name}`);
  return keyBytes(key);
}

const BASE64URL = { "+": "-", "/": "_", "=": "" };

function toBase64Url(bytes) {
  return btoa(native.latin1(bytes)).replace(/[+/=]/g, (mark) => BASE64URL[mark]);
}

function fromBase64Url(text) {
  try {
    return Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (character) => character.charCodeAt(0));
  } catch {
    throw refused("DataError", "the key is not base64url");
  }
}

function gcm(asked) {
  if (asked.iv === undefined) throw new TypeError("AES-GCM takes an iv");
  const tag = asked.tagLength ?? 128;
  if (tag !== 128) throw refused("OperationError", "tags of 128 bits are supported here, no others");
  const iv = bytesOf(asked.iv);
  if (iv.length !== 12) throw refused("OperationError", "an iv of 96 bits is supported here, no others");
  return { iv, data: asked.additionalData === undefined ? new Uint8Array() : bytesOf(asked.additionalData) };
}

class SubtleCrypto {
  constructor(mark) { if (mark !== token) throw new TypeError("SubtleCrypto is not to be constructed"); }
  async digest(asked, data) {
    return native.digest(algorithm(asked, DIGESTS).name, bytesOf(data));
  }
  async importKey(format, data, asked, extractable, usages) {
    asked = algorithm(asked, Object.keys(USAGES));
    if (format === "raw") return makeKey(copyOf(data), asked, extractable, usages);
    if (format !== "jwk") throw refused("NotSupportedError", `keys are imported as raw and jwk, not as ${String(format)}`);
    if (data?.kty !== "oct" || typeof data.k !== "string") throw refused("DataError", "a secret key in JSON has the kty oct, and k");
    if (data.ext === false && extractable) throw refused("DataError", "the key says that it is not to be extracted");
    return makeKey(fromBase64Url(data.k), asked, extractable, usages);
  }
  async exportKey(format, key) {
    if (!(key instanceof CryptoKey)) throw new TypeError("this is no CryptoKey");
    if (!key.extractable) throw refused("InvalidAccessError", "the key is not to be extracted");
    const bytes = keyBytes(key);
    if (format === "raw") return bytes.slice().buffer;
    if (format !== "jwk") throw refused("NotSupportedError", `keys are exported as raw and jwk, not as ${String(format)}`);
    const { name, hash } = key.algorithm;
    const alg = name === "HMAC" ? "HS" + hash.name.slice(4) : `A${bytes.length * 8}GCM`;
    return { kty: "oct", k: toBase64Url(bytes), alg, key_ops: key.usages, ext: true };
  }
  async generateKey(asked, extractable, usages) {
    asked = algorithm(asked, Object.keys(USAGES));
    const bits = asked.length ?? (asked.name === "HMAC" ? BLOCKS[algorithm(asked.hash, DIGESTS).name] * 8 : undefined);
    if (!Number.isInteger(bits) || bits <= 0 || bits % 8 !== 0 || bits > 1 << 16) throw refused("OperationError", "a key's length is a number of bits, a multiple of 8");
    return makeKey(native.entropy(bits / 8), asked, extractable, usages);
  }
  async sign(asked, key, data) {
    const bytes = mayUse(key, "sign", algorithm(asked, ["HMAC"]).name);
    return native.hmac(key.algorithm.hash.name, bytes, bytesOf(data));
  }
  async verify(asked, key, signature, data) {
    const bytes = mayUse(key, "verify", algorithm(asked, ["HMAC"]).name);
    return native.isHmac(key.algorithm.hash.name, bytes, bytesOf(data), bytesOf(signature));
  }
  async encrypt(asked, key, data) {
    asked = algorithm(asked, ["AES-GCM"]);
    const bytes = mayUse(key, "encrypt", asked.name);
    const { iv, data: beside } = gcm(asked);
    return native.seal(bytes, iv, beside, bytesOf(data));
  }
  async decrypt(asked, key, data) {
    asked = algorithm(asked, ["AES-GCM"]);
    const bytes = mayUse(key, "decrypt", asked.name);
    const { iv, data: beside } = gcm(asked);
    const opened = native.open(bytes, iv, beside, bytesOf(data));
    if (opened === undefined) throw refused("OperationError", "this was not encrypted with that key, or was changed since");
    return opened;
  }
}
for (const name of ["deriveBits", "deriveKey", "wrapKey", "unwrapKey"]) {
  SubtleCrypto.prototype[name] = async () => {
    throw refused("NotSupportedError", `subtle.${name} is not supported here`);
  };
}

const subtle = new SubtleCrypto(token);

class Crypto {
  constructor(mark) { if (mark !== token) throw new TypeError("Crypto is not to be constructed"); }
  get subtle() { return subtle; }
  getRandomValues(into) {
    if (!ArrayBuffer.isView(into) || into instanceof DataView || into instanceof Float16Array || into instanceof Float32Array || into instanceof Float64Array) {
      throw refused("TypeMismatchError", "random values are for arrays of integers");
    }
    if (into.byteLength > 65536) throw refused("QuotaExceededError", "at most 65536 bytes at once");
    viewOf(into).set(native.entropy(into.byteLength));
    return into;
  }
  randomUUID() {
    const bytes = native.entropy(16);
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    const hex = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
    return hex.replace(/^(.{8})(.{4})(.{4})(.{4})/, "$1-$2-$3-$4-");
  }
}
const crypto = new Crypto(token);
