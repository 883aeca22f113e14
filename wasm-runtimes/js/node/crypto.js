// node:crypto, by the engine's native digests and the Web Cryptography API. All functions are
// synchronous inside; those with a callback call it later.
const { Buffer } = require("node:buffer");
const { Transform } = require("node:stream");
const { native } = host;
const web = globalThis.crypto;
const HASHES = {
  md5: "MD5", sha1: "SHA-1", sha224: "SHA-224", sha256: "SHA-256", sha384: "SHA-384", sha512: "SHA-512",
  "sha512-256": "SHA-512/256", "sha512/256": "SHA-512/256",
};
const hashName = (name) => HASHES[String(name).toLowerCase().replace(/^rsa-/, "").replace(/^sha-/, "sha")];
const fail = (kind, message, code) => { throw Object.assign(new kind(message), { code }); };

function bytesOf(data, encoding, name = "data") {
  if (typeof data === "string") return Buffer.from(data, encoding === "buffer" ? undefined : encoding);
  if (data instanceof KeyObject) return data.export();
  if (data instanceof ArrayBuffer) return new Uint8Array(data);
  if (ArrayBuffer.isView(data)) return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  return fail(TypeError, `The "${name}" argument must be of type string or an instance of Buffer, TypedArray, or DataView`, "ERR_INVALID_ARG_TYPE");
}
const output = (bytes, encoding) => (encoding === undefined || encoding === "buffer" ? bytes : bytes.toString(encoding));
const asBuffer = (data) => Buffer.from(data);

function digestOf(name, data) {
  const made = hashName(name) === undefined ? undefined : native.digest(hashName(name), data);
  return made === undefined ? fail(Error, `Digest method not supported: ${name}`, "ERR_CRYPTO_INVALID_DIGEST") : asBuffer(made);
}
function hmacOf(name, key, data) {
  const made = hashName(name) === undefined ? undefined : native.hmac(hashName(name), key, data);
  return made === undefined ? fail(Error, `Invalid digest: ${name}`, "ERR_CRYPTO_INVALID_DIGEST") : asBuffer(made);
}

// The parts are digested together at the end.
class Parts extends Transform {
  #parts = [];
  #isDone = false;
  _transform(chunk, encoding, done) {
    this.update(chunk, encoding);
    done();
  }
  _flush(done) {
    this.push(this.digest());
    done();
  }
  update(data, encoding) {
    if (this.#isDone) fail(Error, "Digest already called", "ERR_CRYPTO_HASH_FINALIZED");
    this.#parts.push(Buffer.from(bytesOf(data, encoding)));
    return this;
  }
  digest(encoding) {
    if (this.#isDone) fail(Error, "Digest already called", "ERR_CRYPTO_HASH_FINALIZED");
    this.#isDone = true;
    return output(this._digest(this.#all()), encoding);
  }
  #all() { return this.#parts.length === 1 ? this.#parts[0] : Buffer.concat(this.#parts); }
  _partsFor(other) { other.#parts = [...this.#parts]; return other; }
}
class Hash extends Parts {
  #name;
  constructor(name) {
    super();
    this.#name = name;
    digestOf(name, new Uint8Array());
  }
  _digest(data) { return digestOf(this.#name, data); }
  copy() { return this._partsFor(new Hash(this.#name)); }
}
class Hmac extends Parts {
  #name;
  #key;
  constructor(name, key) {
    super();
    this.#name = name;
    this.#key = bytesOf(key, undefined, "key");
    hmacOf(name, this.#key, new Uint8Array());
  }
  _digest(data) { return hmacOf(this.#name, this.#key, data); }
}

class KeyObject {
  #bytes;
  constructor(type, bytes) {
    if (type !== "secret") fail(Error, "only secret keys are supported by node:crypto here: use crypto.subtle for pairs of keys", "ERR_FEATURE_UNAVAILABLE_ON_PLATFORM");
    this.#bytes = bytes;
  }
  get type() { return "secret"; }
  get symmetricKeySize() { return this.#bytes.length; }
  export({ format = "buffer" } = {}) {
    return format === "jwk" ? { kty: "oct", k: this.#bytes.toString("base64url") } : this.#bytes;
  }
  equals(other) { return other instanceof KeyObject && this.#bytes.equals(other.#bytes); }
}

function checkSize(size) {
  if (!Number.isInteger(size) || size < 0 || size > 0x7fffffff) fail(RangeError, `The value of "size" is out of range: ${size}`, "ERR_OUT_OF_RANGE");
}
function entropy(size) {
  const bytes = Buffer.alloc(size);
  for (let at = 0; at < size; at += 65536) web.getRandomValues(bytes.subarray(at, Math.min(size, at + 65536)));
  return bytes;
}
// Calls back later with the result of a function.
function later(done, run) {
  let outcome;
  try {
    outcome = [null, run()];
  } catch (error) {
    outcome = [error];
  }
  setTimeout(() => done(...outcome), 0);
}
function randomBytes(size, done) {
  checkSize(size);
  return done === undefined ? entropy(size) : later(done, () => entropy(size));
}
function randomFillSync(view, offset = 0, size = view.byteLength - offset) {
  const bytes = new Uint8Array(view.buffer ?? view, (view.byteOffset ?? 0) + offset, size);
  bytes.set(entropy(size));
  return view;
}
function randomInt(low, high, done) {
  if (high === undefined || typeof high === "function") [low, high, done] = [0, low, high];
  if (!Number.isSafeInteger(low) || !Number.isSafeInteger(high) || high <= low || high - low >= 2 ** 48) fail(RangeError, 'The value of "max" is out of range', "ERR_OUT_OF_RANGE");
  const range = high - low;
  const limit = 2 ** 48 - (2 ** 48 % range);
  let value;
  do value = entropy(6).readUIntBE(0, 6); while (value >= limit);
  value = low + (value % range);
  return done === undefined ? value : later(done, () => value);
}
function timingSafeEqual(a, b) {
  const [one, other] = [bytesOf(a), bytesOf(b)];
  if (one.length !== other.length) fail(RangeError, "Input buffers must have the same byte length", "ERR_CRYPTO_TIMING_SAFE_EQUAL_LENGTH");
  let difference = 0;
  for (let at = 0; at < one.length; at++) difference |= one[at] ^ other[at];
  return difference === 0;
}

// Primitives of the engine that derive keys.
function primitive(name) {
  const run = native.crypto?.()[name];
  return run ?? fail(Error, `crypto.${name} is not supported here`, "ERR_FEATURE_UNAVAILABLE_ON_PLATFORM");
}
function derived(made, what) {
  return made === undefined ? fail(RangeError, `${what} does not take these arguments`, "ERR_CRYPTO_INVALID_KEYLEN") : asBuffer(made);
}
function known(name) {
  return hashName(name) ?? fail(TypeError, `Invalid digest: ${name}`, "ERR_CRYPTO_INVALID_DIGEST");
}
const pbkdf2Sync = (password, salt, rounds, length, hash) => derived(primitive("pbkdf2")(known(hash), bytesOf(password), bytesOf(salt), rounds, length), "pbkdf2");
function hkdfSync(hash, key, salt, info, length) {
  const made = derived(primitive("hkdf")(known(hash), bytesOf(key), bytesOf(salt), bytesOf(info), length), "hkdf");
  return made.buffer.slice(made.byteOffset, made.byteOffset + made.byteLength);
}
function scryptSync(password, salt, length, options = {}) {
  const cost = options.N ?? options.cost ?? 16384;
  const block = options.r ?? options.blockSize ?? 8;
  const parallel = options.p ?? options.parallelization ?? 1;
  const memory = Math.min(options.maxmem ?? 32 << 20, 0x7fffffff);
  const made = primitive("scrypt")(bytesOf(password), bytesOf(salt), [cost, block, parallel, memory], length);
  return made === undefined ? fail(RangeError, "Invalid scrypt params", "ERR_CRYPTO_INVALID_SCRYPT_PARAMS") : asBuffer(made);
}

const CIPHERS = /^(?:id-)?aes-?(128|192|256)-(gcm|cbc|ctr)$/i;
function cipherOf(name, key, iv) {
  const [, bits, mode] = CIPHERS.exec(name) ?? fail(Error, `Unknown cipher ${name}: aes-128, aes-192 and aes-256 with gcm, cbc and ctr are supported here`, "ERR_CRYPTO_UNKNOWN_CIPHER");
  key = bytesOf(key);
  iv = bytesOf(iv);
  if (key.length * 8 !== Number(bits)) fail(RangeError, "Invalid key length", "ERR_CRYPTO_INVALID_KEYLEN");
  if (mode.toLowerCase() !== "gcm" && iv.length !== 16 || iv.length === 0) fail(TypeError, "Invalid initialization vector", "ERR_CRYPTO_INVALID_IV");
  return { mode: mode.toLowerCase(), key, iv };
}
// NIST SP 800-38D permits tags of these lengths, in bytes.
const TAG_LENGTHS = [4, 8, 12, 13, 14, 15, 16];
function checkTagLength(length) {
  if (TAG_LENGTHS.includes(length)) return;
  fail(TypeError, `Invalid authentication tag length: ${length}`, "ERR_CRYPTO_INVALID_AUTH_TAG");
}
// The data are kept and processed by `final`, which returns all of the result.
class Cipher extends Transform {
  #cipher;
  #parts = [];
  #beside = [];
  #tag;
  // The option authTagLength; undefined if the script does not set it.
  #tagLength;
  #encrypts;
  constructor(encrypts, name, key, iv, { authTagLength } = {}) {
    super();
    this.#encrypts = encrypts;
    this.#cipher = cipherOf(name, key, iv);
    if (this.#cipher.mode !== "gcm" || authTagLength === undefined) return;
    checkTagLength(authTagLength);
    this.#tagLength = authTagLength;
  }
  _transform(chunk, encoding, done) {
    this.update(chunk, encoding);
    done();
  }
  _flush(done) {
    try {
      this.push(this.final());
      done();
    } catch (error) {
      done(error);
    }
  }
  update(data, inputEncoding, outputEncoding) {
    this.#parts.push(Buffer.from(bytesOf(data, inputEncoding)));
    return output(Buffer.alloc(0), outputEncoding);
  }
  final(encoding) {
    const { mode, key, iv } = this.#cipher;
    const data = Buffer.concat(this.#parts);
    let made;
    if (mode === "gcm") {
      const beside = Buffer.concat(this.#beside);
      if (this.#encrypts) {
        const length = this.#tagLength ?? 16;
        made = asBuffer(primitive("seal")(key, iv, beside, data, length));
        this.#tag = made.subarray(-length);
        made = made.subarray(0, -length);
      } else {
        if (this.#tag === undefined) fail(Error, "Unsupported state or unable to authenticate data");
        made = primitive("open")(key, iv, beside, Buffer.concat([data, this.#tag]), this.#tag.length);
      }
    } else if (mode === "cbc") {
      made = primitive(this.#encrypts ? "encryptCbc" : "decryptCbc")(key, iv, data);
    } else {
      made = primitive("ctr")(key, iv, 128, data);
    }
    if (made === undefined) {
      if (mode === "gcm") fail(Error, "Unsupported state or unable to authenticate data");
      fail(Error, "bad decrypt", "ERR_OSSL_BAD_DECRYPT");
    }
    return output(asBuffer(made), encoding);
  }
  setAAD(data) { this.#beside.push(Buffer.from(bytesOf(data))); return this; }
  setAuthTag(tag) {
    const bytes = Buffer.from(bytesOf(tag));
    checkTagLength(bytes.length);
    if (this.#tagLength !== undefined && bytes.length !== this.#tagLength) {
      fail(TypeError, `Invalid authentication tag length: ${bytes.length}`, "ERR_CRYPTO_INVALID_AUTH_TAG");
    }
    this.#tag = bytes;
    return this;
  }
  getAuthTag() { return this.#tag ?? fail(Error, "Invalid state for operation getAuthTag", "ERR_CRYPTO_INVALID_STATE"); }
  setAutoPadding(pads = true) {
    if (!pads && this.#cipher.mode === "cbc") fail(Error, "AES-CBC without padding is not supported here", "ERR_FEATURE_UNAVAILABLE_ON_PLATFORM");
    return this;
  }
}

module.exports = {
  webcrypto: web, subtle: web.subtle, getRandomValues: (view) => web.getRandomValues(view), randomUUID: () => web.randomUUID(),
  Hash, Hmac, KeyObject, randomBytes, pseudoRandomBytes: randomBytes, randomFillSync, randomInt, timingSafeEqual, pbkdf2Sync, hkdfSync, scryptSync,
  createHash: (name) => new Hash(name),
  createHmac: (name, key) => new Hmac(name, key),
  hash: (name, data, encoding = "hex") => output(digestOf(name, bytesOf(data)), encoding),
  createSecretKey: (key, encoding) => new KeyObject("secret", Buffer.from(bytesOf(key, encoding))),
  createCipheriv: (name, key, iv, options) => new Cipher(true, name, key, iv, options),
  createDecipheriv: (name, key, iv, options) => new Cipher(false, name, key, iv, options),
  randomFill: (view, ...rest) => later(rest.pop(), () => randomFillSync(view, ...rest)),
  pbkdf2: (...values) => later(values.pop(), () => pbkdf2Sync(...values)),
  hkdf: (...values) => later(values.pop(), () => hkdfSync(...values)),
  scrypt: (...values) => later(values.pop(), () => scryptSync(...values)),
  getHashes: () => ["md5", "sha1", "sha224", "sha256", "sha384", "sha512", "sha512-256"],
  getCiphers: () => ["gcm", "cbc", "ctr"].flatMap((mode) => [128, 192, 256].map((bits) => `aes-${bits}-${mode}`)),
  getCurves: () => [], constants: {}, getFips: () => 0,
};
for (const name of [
  "createSign", "createVerify", "sign", "verify", "createPrivateKey", "createPublicKey", "createDiffieHellman", "createECDH", "diffieHellman",
  "generateKeyPair", "generateKeyPairSync", "generateKey", "generateKeySync", "generatePrime", "generatePrimeSync", "checkPrime",
  "publicEncrypt", "publicDecrypt", "privateEncrypt", "privateDecrypt", "X509Certificate",
]) {
  module.exports[name] = () => fail(Error, `crypto.${name} is not supported here: use crypto.subtle`, "ERR_FEATURE_UNAVAILABLE_ON_PLATFORM");
}
