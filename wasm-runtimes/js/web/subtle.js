// `crypto.subtle` (Web Cryptography API; Secure Curves in the Web Cryptography API). The primitives
// are native (`src/crypto`). A key holds its material in the form that they take.

const { token, copyOf, bytesOf } = shared;
const primitives = native.crypto();

const HASHES = ["SHA-1", "SHA-256", "SHA-384", "SHA-512"];
// Bytes of a block of each hash, and of a coordinate of each curve.
const BLOCKS = { "SHA-1": 64, "SHA-256": 64, "SHA-384": 128, "SHA-512": 128 };
const CURVES = { "P-256": 32, "P-384": 48, "P-521": 66 };
const USAGES = ["encrypt", "decrypt", "sign", "verify", "deriveKey", "deriveBits", "wrapKey", "unwrapKey"];
const FORMATS = ["raw", "spki", "pkcs8", "jwk"];

const failure = (name, message) => new DOMException(message, name);

// The result of a primitive, or an exception if it has none.
function need(result, name, message) {
  if (result === undefined) throw failure(name, message);
  return result;
}

const arrayOf = (buffer) => new Uint8Array(buffer);
const isEqual = (one, other) => one.length === other.length && one.every((byte, at) => byte === other[at]);

// ---- arguments

function required(value, name) {
  if (value === undefined) throw new TypeError(`the algorithm needs a member ${name}`);
  return value;
}

function integer(value, name, most) {
  const number = Math.trunc(Number(required(value, name)));
  if (!(number >= 0 && number <= most)) throw new TypeError(`${name} is an integer from 0 to ${most}`);
  return number;
}

const optional = (value, name, most) => (value === undefined ? undefined : integer(value, name, most));
const bytesIn = (value, name) => copyOf(required(value, name));

function hashIn(value) {
  return { name: normalize("digest", required(value, "hash")).name };
}

function publicIn(value) {
  if (!(required(value, "public") instanceof CryptoKey)) throw new TypeError("public is a CryptoKey");
  return value;
}

// ---- algorithms

const none = () => ({});
const withHash = (given) => ({ hash: hashIn(given.hash) });
const withCurve = (given) => ({ namedCurve: String(required(given.namedCurve, "namedCurve")) });
const withLength = (given) => ({ length: integer(given.length, "length", 0xffff) });
const forHmac = (given) => ({ hash: hashIn(given.hash), length: optional(given.length, "length", 0xffffffff) });
const forRsa = (given) => {
  const publicExponent = required(given.publicExponent, "publicExponent");
  if (!(publicExponent instanceof Uint8Array)) throw new TypeError("publicExponent is a Uint8Array");
  return {
    modulusLength: integer(given.modulusLength, "modulusLength", 0xffffffff),
    publicExponent: publicExponent.slice(),
    hash: hashIn(given.hash),
  };
};
const forAgreement = (given) => ({ public: publicIn(given.public) });
const AES = ["AES-CBC", "AES-CTR", "AES-GCM", "AES-KW"];
const RSA = ["RSASSA-PKCS1-v1_5", "RSA-PSS", "RSA-OAEP"];
const EC = ["ECDSA", "ECDH"];
const OKP = ["Ed25519", "X25519"];
const each = (names, read) => Object.fromEntries(names.map((name) => [name, read]));
const ciphers = {
  "RSA-OAEP": (given) => ({ label: given.label === undefined ? new Uint8Array() : copyOf(given.label) }),
  "AES-CBC": (given) => ({ iv: bytesIn(given.iv, "iv") }),
  "AES-CTR": (given) => ({ counter: bytesIn(given.counter, "counter"), length: integer(given.length, "length", 255) }),
  "AES-GCM": (given) => ({
    iv: bytesIn(given.iv, "iv"),
    additionalData: given.additionalData === undefined ? new Uint8Array() : copyOf(given.additionalData),
    tagLength: optional(given.tagLength, "tagLength", 255) ?? 128,
  }),
};
const signatures = {
  "RSASSA-PKCS1-v1_5": none,
  "RSA-PSS": (given) => ({ saltLength: integer(given.saltLength, "saltLength", 0xffffffff) }),
  ECDSA: withHash,
  Ed25519: none,
  HMAC: none,
};

// Per operation, the algorithms that have it, and how their members are read.
const OPERATIONS = {
  digest: each(HASHES, none),
  generateKey: { ...each(RSA, forRsa), ...each(EC, withCurve), ...each(OKP, none), ...each(AES, withLength), HMAC: forHmac },
  importKey: {
    ...each(RSA, withHash), ...each(EC, withCurve), ...each(OKP, none), ...each(AES, none), HMAC: forHmac, PBKDF2: none, HKDF: none,
  },
  exportKey: each([...RSA, ...EC, ...OKP, ...AES, "HMAC"], none),
  keyLength: { ...each(AES, withLength), HMAC: forHmac, PBKDF2: none, HKDF: none },
  sign: signatures,
  verify: signatures,
  encrypt: ciphers,
  decrypt: ciphers,
  wrapKey: { "AES-KW": none },
  unwrapKey: { "AES-KW": none },
  deriveBits: {
    ECDH: forAgreement,
    X25519: forAgreement,
    HKDF: (given) => ({ hash: hashIn(given.hash), salt: bytesIn(given.salt, "salt"), info: bytesIn(given.info, "info") }),
    PBKDF2: (given) => ({
      salt: bytesIn(given.salt, "salt"),
      iterations: integer(given.iterations, "iterations", 0xffffffff),
      hash: hashIn(given.hash),
    }),
  },
};

function normalize(operation, given) {
  const members = typeof given === "object" && given !== null ? given : { name: given };
  const asked = String(required(members.name, "name")).toLowerCase();
  const known = OPERATIONS[operation];
  const name = Object.keys(known).find((one) => one.toLowerCase() === asked);
  if (name === undefined) {
    throw failure("NotSupportedError", `${String(members.name)} does not support ${operation}; these do: ${Object.keys(known).join(", ")}`);
  }
  return { name, ...known[name](members) };
}

// ---- keys

let materialOf;

class CryptoKey {
  #material;
  #type;
  #extractable;
  #algorithm;
  #usages;
  constructor(mark, type, material, algorithm, extractable, usages) {
    if (mark !== token) throw new TypeError("CryptoKey is not to be constructed");
    this.#type = type;
    this.#material = material;
    this.#algorithm = algorithm;
    this.#extractable = extractable;
    this.#usages = usages;
  }
  static inside() { materialOf = (key) => key.#material; }
  get type() { return this.#type; }
  get extractable() { return this.#extractable; }
  get algorithm() { return this.#algorithm; }
  get usages() { return this.#usages; }
}
CryptoKey.inside();
delete CryptoKey.inside;

const isKey = (value) => value instanceof CryptoKey;
const copyOfKey = (key) => new CryptoKey(token, key.type, materialOf(key), structuredClone(key.algorithm), key.extractable, [...key.usages]);

function keyIn(value, what = "the key") {
  if (!isKey(value)) throw new TypeError(`${what} is a CryptoKey`);
  return value;
}

function usagesIn(values) {
  const set = new Set();
  for (const value of values) {
    const usage = String(value);
    if (!USAGES.includes(usage)) throw new TypeError(`${usage} is not a usage of keys`);
    set.add(usage);
  }
  return USAGES.filter((usage) => set.has(usage));
}

// The usages that keys of an algorithm may have, per type.
function allowedUsages(name, type) {
  switch (name) {
    case "RSASSA-PKCS1-v1_5": case "RSA-PSS": case "ECDSA": case "Ed25519":
      return type === "public" ? ["verify"] : ["sign"];
    case "RSA-OAEP": return type === "public" ? ["encrypt", "wrapKey"] : ["decrypt", "unwrapKey"];
    case "ECDH": case "X25519": return type === "public" ? [] : ["deriveKey", "deriveBits"];
    case "HMAC": return ["sign", "verify"];
    case "AES-KW": return ["wrapKey", "unwrapKey"];
    case "PBKDF2": case "HKDF": return ["deriveKey", "deriveBits"];
    default: return ["encrypt", "decrypt", "wrapKey", "unwrapKey"];
  }
}

function checkUsages(name, types, usages) {
  const allowed = types.flatMap((type) => allowedUsages(name, type));
  const other = usages.find((usage) => !allowed.includes(usage));
  if (other !== undefined) throw failure("SyntaxError", `a ${types.join(" or ")} key of ${name} does not have the usage ${other}`);
}

function checkNotEmpty(type, usages) {
  if (type !== "public" && usages.length === 0) throw failure("SyntaxError", `a ${type} key needs a usage`);
}

function checkUse(key, name, usage) {
  if (key.algorithm.name !== name) throw failure("InvalidAccessError", `the key is for ${key.algorithm.name}, not for ${name}`);
  if (!key.usages.includes(usage)) throw failure("InvalidAccessError", `the key does not have the usage ${usage}`);
}

function checkType(key, type) {
  if (key.type !== type) throw failure("InvalidAccessError", `a ${type} key is needed, not a ${key.type} one`);
}

function checkCurve(name) {
  if (!Object.hasOwn(CURVES, name)) throw failure("NotSupportedError", `${name} is not a supported curve; these are: ${Object.keys(CURVES).join(", ")}`);
}

const invalid = (message = "the key's data is invalid") => failure("DataError", message);
const dataOf = (result) => arrayOf(need(result, "DataError", "the key's data is invalid"));

const rsaKey = (type, material, { name, hash }, extractable, usages) => {
  const [modulus, exponent] = need(primitives.numbersOfRsa(material, type === "private"), "DataError", "the key's data is invalid");
  const modulusLength = modulus.length * 8 + 24 - Math.clz32(modulus[0]);
  return new CryptoKey(token, type, material, { name, modulusLength, publicExponent: exponent, hash }, extractable, usages);
};

// ---- base64url and JSON Web Keys (RFC 7517, 7518, 8037)

const TO_URL = { "+": "-", "/": "_", "=": "" };
const toBase64Url = (bytes) => btoa(native.latin1(bytes)).replace(/[+/=]/g, (mark) => TO_URL[mark]);

function fromBase64Url(text) {
  if (typeof text !== "string" || !/^[\w-]*$/.test(text) || text.length % 4 === 1) throw invalid("a value of the key is not base64url");
  return Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (character) => character.charCodeAt(0));
}

function fixed(text, length) {
  const bytes = fromBase64Url(text);
  if (bytes.length !== length) throw invalid(`a value of the key has ${bytes.length} bytes instead of ${length}`);
  return bytes;
}

function checkJwk(jwk, kty, use, alg, extractable, usages) {
  if (jwk.kty !== kty) throw invalid(`the key's kty is ${String(jwk.kty)}, not ${kty}`);
  if (usages.length > 0 && jwk.use !== undefined && jwk.use !== use) throw invalid(`the key's use is ${String(jwk.use)}, not ${use}`);
  if (jwk.key_ops !== undefined) {
    const operations = Array.isArray(jwk.key_ops) ? jwk.key_ops : [];
    if (!Array.isArray(jwk.key_ops) || new Set(operations).size !== operations.length || !usages.every((usage) => operations.includes(usage))) {
      throw invalid("the key's key_ops do not have all usages");
    }
  }
  if (jwk.ext === false && extractable) throw invalid("the key's ext forbids that it is extractable");
  if (alg !== undefined && jwk.alg !== undefined && jwk.alg !== alg) throw invalid(`the key's alg is ${String(jwk.alg)}, not ${alg}`);
}

const useOf = (name) => (["RSA-OAEP", "ECDH", "X25519"].includes(name) || name.startsWith("AES") ? "enc" : "sig");
const algOf = ({ name, hash, length }) => {
  const bits = hash?.name.slice(4);
  switch (name) {
    case "HMAC": return `HS${bits}`;
    case "RSASSA-PKCS1-v1_5": return `RS${bits}`;
    case "RSA-PSS": return `PS${bits}`;
    case "RSA-OAEP": return bits === "1" ? "RSA-OAEP" : `RSA-OAEP-${bits}`;
    default: return `A${length}${name.slice(4)}`;
  }
};

const RSA_NUMBERS = ["n", "e", "d", "p", "q", "dp", "dq", "qi"];
const ES = { "P-256": "ES256", "P-384": "ES384", "P-521": "ES512" };

// ---- families of algorithms: how keys are made, read and written

const families = {
  rsa: {
    generate(algorithm, extractable, usages) {
      const { modulusLength, publicExponent } = algorithm;
      const message = "a modulus has 1024 to 8192 bits, and the public exponent is odd and from 3 to 2^33";
      const material = arrayOf(need(primitives.generateRsa(modulusLength, publicExponent), "OperationError", message));
      const described = { name: algorithm.name, modulusLength, publicExponent, hash: algorithm.hash };
      return pair(described, material, arrayOf(primitives.publicOfRsa(material)), extractable, usages);
    },
    spki: (der, algorithm, ...rest) => rsaKey("public", dataOf(primitives.spkiToRsa(der)), algorithm, ...rest),
    pkcs8: (der, algorithm, ...rest) => rsaKey("private", dataOf(primitives.pkcs8ToRsa(der)), algorithm, ...rest),
    isPrivate: (jwk) => jwk.d !== undefined,
    jwk(jwk, algorithm, extractable, usages) {
      checkJwk(jwk, "RSA", useOf(algorithm.name), algOf(algorithm), extractable, usages);
      const [n, e] = [fromBase64Url(jwk.n), fromBase64Url(jwk.e)];
      if (jwk.d === undefined) return rsaKey("public", dataOf(primitives.publicRsa(n, e)), algorithm, extractable, usages);
      if (jwk.oth !== undefined) throw failure("NotSupportedError", "keys of more than two primes are not supported");
      const rest = ["p", "q", "dp", "dq", "qi"].filter((name) => jwk[name] !== undefined);
      if (rest.length !== 0 && rest.length !== 5) throw invalid("a private key has all of p, q, dp, dq and qi, or none");
      const primes = rest.slice(0, 2).map((name) => fromBase64Url(jwk[name]));
      const material = dataOf(primitives.privateRsa([n, e, fromBase64Url(jwk.d), ...primes]));
      return rsaKey("private", material, algorithm, extractable, usages);
    },
    toSpki: (key) => primitives.spkiOfRsa(materialOf(key)),
    toPkcs8: (key) => primitives.pkcs8OfRsa(materialOf(key)),
    toJwk(key) {
      const numbers = primitives.numbersOfRsa(materialOf(key), key.type === "private");
      const jwk = { kty: "RSA", alg: algOf(key.algorithm) };
      numbers.forEach((number, at) => { jwk[RSA_NUMBERS[at]] = toBase64Url(number); });
      return jwk;
    },
  },
  ec: {
    generate({ name, namedCurve }, extractable, usages) {
      checkCurve(namedCurve);
      const material = arrayOf(primitives.generateEc(namedCurve));
      return pair({ name, namedCurve }, material, arrayOf(primitives.publicOfEc(namedCurve, material)), extractable, usages);
    },
    make: (type, material, { name, namedCurve }, extractable, usages) =>
      new CryptoKey(token, type, material, { name, namedCurve }, extractable, usages),
    raw(bytes, algorithm, ...rest) {
      return this.make("public", dataOf(primitives.pointOfEc(algorithm.namedCurve, bytes)), algorithm, ...rest);
    },
    spki(der, algorithm, ...rest) {
      return this.make("public", dataOf(primitives.spkiToEc(algorithm.namedCurve, der)), algorithm, ...rest);
    },
    pkcs8(der, algorithm, ...rest) {
      return this.make("private", dataOf(primitives.pkcs8ToEc(algorithm.namedCurve, der)), algorithm, ...rest);
    },
    isPrivate: (jwk) => jwk.d !== undefined,
    jwk(jwk, algorithm, extractable, usages) {
      const { name, namedCurve } = algorithm;
      checkJwk(jwk, "EC", useOf(name), name === "ECDSA" ? ES[namedCurve] : undefined, extractable, usages);
      if (jwk.crv !== namedCurve) throw invalid(`the key's curve is ${String(jwk.crv)}, not ${namedCurve}`);
      const size = CURVES[namedCurve];
      const point = new Uint8Array([4, ...fixed(jwk.x, size), ...fixed(jwk.y, size)]);
      dataOf(primitives.pointOfEc(namedCurve, point));
      if (jwk.d === undefined) return this.make("public", point, algorithm, extractable, usages);
      const material = fixed(jwk.d, size);
      if (!isEqual(dataOf(primitives.publicOfEc(namedCurve, material)), point)) throw invalid("the key's d does not belong to x and y");
      return this.make("private", material, algorithm, extractable, usages);
    },
    toRaw: (key) => materialOf(key).slice().buffer,
    toSpki: (key) => primitives.spkiOfEc(key.algorithm.namedCurve, materialOf(key)),
    toPkcs8: (key) => primitives.pkcs8OfEc(key.algorithm.namedCurve, materialOf(key)),
    toJwk(key) {
      const { namedCurve } = key.algorithm;
      const size = CURVES[namedCurve];
      const material = materialOf(key);
      const point = key.type === "public" ? material : arrayOf(primitives.publicOfEc(namedCurve, material));
      const jwk = { kty: "EC", crv: namedCurve, x: toBase64Url(point.slice(1, 1 + size)), y: toBase64Url(point.slice(1 + size)) };
      if (key.type === "private") jwk.d = toBase64Url(material);
      return jwk;
    },
  },
  okp: {
    generate({ name }, extractable, usages) {
      const material = native.entropy(32);
      return pair({ name }, material, arrayOf(primitives.publicOf25519(name, material)), extractable, usages);
    },
    make: (type, material, { name }, extractable, usages) => new CryptoKey(token, type, material, { name }, extractable, usages),
    raw(bytes, algorithm, ...rest) {
      if (bytes.length !== 32) throw invalid(`a key of ${algorithm.name} has 32 bytes`);
      return this.make("public", bytes, algorithm, ...rest);
    },
    spki(der, algorithm, ...rest) {
      return this.make("public", dataOf(primitives.spkiTo25519(algorithm.name, der)), algorithm, ...rest);
    },
    pkcs8(der, algorithm, ...rest) {
      return this.make("private", dataOf(primitives.pkcs8To25519(algorithm.name, der)), algorithm, ...rest);
    },
    isPrivate: (jwk) => jwk.d !== undefined,
    jwk(jwk, algorithm, extractable, usages) {
      const { name } = algorithm;
      checkJwk(jwk, "OKP", useOf(name), undefined, extractable, usages);
      if (name === "Ed25519" && jwk.alg !== undefined && jwk.alg !== "EdDSA" && jwk.alg !== "Ed25519") throw invalid(`the key's alg is ${String(jwk.alg)}`);
      if (jwk.crv !== name) throw invalid(`the key's curve is ${String(jwk.crv)}, not ${name}`);
      const point = fixed(jwk.x, 32);
      if (jwk.d === undefined) return this.make("public", point, algorithm, extractable, usages);
      const material = fixed(jwk.d, 32);
      if (!isEqual(arrayOf(primitives.publicOf25519(name, material)), point)) throw invalid("the key's d does not belong to x");
      return this.make("private", material, algorithm, extractable, usages);
    },
    toRaw: (key) => materialOf(key).slice().buffer,
    toSpki: (key) => primitives.spkiOf25519(key.algorithm.name, materialOf(key)),
    toPkcs8: (key) => primitives.pkcs8Of25519(key.algorithm.name, materialOf(key)),
    toJwk(key) {
      const { name } = key.algorithm;
      const material = materialOf(key);
      const point = key.type === "public" ? material : arrayOf(primitives.publicOf25519(name, material));
      const jwk = { kty: "OKP", crv: name, x: toBase64Url(point), ...(name === "Ed25519" ? { alg: name } : {}) };
      if (key.type === "private") jwk.d = toBase64Url(material);
      return jwk;
    },
  },
  secret: {
    generate(algorithm, extractable, usages) {
      const { name } = algorithm;
      let { length } = algorithm;
      if (name === "HMAC") length ??= BLOCKS[algorithm.hash.name] * 8;
      checkUsages(name, ["secret"], usages);
      if (name === "HMAC" ? length === 0 || length > 1 << 20 : ![128, 192, 256].includes(length)) {
        throw failure("OperationError", `a key of ${name} cannot have ${length} bits`);
      }
      const key = this.raw(native.entropy(Math.ceil(length / 8)), { ...algorithm, length }, extractable, usages);
      checkNotEmpty("secret", usages);
      return key;
    },
    raw(bytes, { name, hash, length }, extractable, usages) {
      const bits = bytes.length * 8;
      if (name === "HMAC") {
        if (bits === 0) throw invalid("the key is empty");
        if (length !== undefined && (length > bits || length <= bits - 8)) throw invalid(`the key has ${bits} bits, not ${length}`);
        const own = bytes.slice();
        // The bits of the last byte that do not count are zero.
        if (length !== undefined && length % 8 !== 0) own[own.length - 1] &= 0xff << (8 - (length % 8));
        return new CryptoKey(token, "secret", own, { name, hash, length: length ?? bits }, extractable, usages);
      }
      if (![128, 192, 256].includes(bits)) throw invalid(`a key of AES has 128, 192 or 256 bits, not ${bits}`);
      return new CryptoKey(token, "secret", bytes.slice(), { name, length: bits }, extractable, usages);
    },
    jwk(jwk, algorithm, extractable, usages) {
      if (jwk.kty !== "oct") throw invalid(`the key's kty is ${String(jwk.kty)}, not oct`);
      const bytes = fromBase64Url(jwk.k);
      const key = this.raw(bytes, algorithm, extractable, usages);
      checkJwk(jwk, "oct", useOf(algorithm.name), algOf(key.algorithm), extractable, usages);
      return key;
    },
    toRaw: (key) => materialOf(key).slice().buffer,
    toJwk: (key) => ({ kty: "oct", k: toBase64Url(materialOf(key)), alg: algOf(key.algorithm) }),
  },
  derivation: {
    raw(bytes, { name }, extractable, usages) {
      if (extractable) throw failure("SyntaxError", `a key of ${name} cannot be extractable`);
      return new CryptoKey(token, "secret", bytes.slice(), { name }, false, usages);
    },
  },
};

function familyOf(name) {
  if (RSA.includes(name)) return families.rsa;
  if (EC.includes(name)) return families.ec;
  if (OKP.includes(name)) return families.okp;
  return name === "PBKDF2" || name === "HKDF" ? families.derivation : families.secret;
}

function pair(algorithm, privateMaterial, publicMaterial, extractable, usages) {
  const { name } = algorithm;
  const select = (type) => usages.filter((usage) => allowedUsages(name, type).includes(usage));
  return {
    publicKey: new CryptoKey(token, "public", publicMaterial, algorithm, true, select("public")),
    privateKey: new CryptoKey(token, "private", privateMaterial, algorithm, extractable, select("private")),
  };
}

function generateKey(algorithm, extractable, usages) {
  const { name } = algorithm;
  const family = familyOf(name);
  if (family === families.secret) return family.generate(algorithm, extractable, usages);
  checkUsages(name, ["public", "private"], usages);
  const made = family.generate(algorithm, extractable, usages);
  checkNotEmpty("private", made.privateKey.usages);
  return made;
}

function importKey(format, data, algorithm, extractable, usages) {
  const { name } = algorithm;
  const family = familyOf(name);
  if (family[format] === undefined) throw failure("NotSupportedError", `keys of ${name} cannot be imported as ${format}`);
  let type = { spki: "public", pkcs8: "private" }[format] ?? "secret";
  if (family.isPrivate !== undefined && type === "secret") type = format === "jwk" && family.isPrivate(data) ? "private" : "public";
  if (family === families.ec) checkCurve(algorithm.namedCurve);
  checkUsages(name, [type], usages);
  const key = family[format](data, algorithm, extractable, usages);
  checkNotEmpty(key.type, usages);
  return key;
}

function exportKey(format, key) {
  const { name } = key.algorithm;
  if (OPERATIONS.exportKey[name] === undefined) throw failure("NotSupportedError", `keys of ${name} cannot be exported`);
  if (!key.extractable) throw failure("InvalidAccessError", "the key is not extractable");
  const family = familyOf(name);
  const write = family[{ raw: "toRaw", spki: "toSpki", pkcs8: "toPkcs8", jwk: "toJwk" }[format]];
  if (write === undefined) throw failure("NotSupportedError", `keys of ${name} cannot be exported as ${format}`);
  if (format === "pkcs8") checkType(key, "private");
  if (format === "spki" || (format === "raw" && family !== families.secret)) checkType(key, "public");
  if (format !== "jwk") return need(write(key), "OperationError", "the key cannot be exported");
  return { ...write(key), key_ops: [...key.usages], ext: key.extractable };
}

// ---- operations

const failed = "OperationError";
const SIGNERS = {
  HMAC: {
    sign: (key, { hash }, data) => native.hmac(hash.name, key, data),
    verify: (key, { hash }, signature, data) => native.isHmac(hash.name, key, data, signature),
  },
  "RSASSA-PKCS1-v1_5": {
    sign: (key, { hash }, data) => primitives.signRsa(hash.name, key, undefined, data),
    verify: (key, { hash }, signature, data) => primitives.isSignedRsa(hash.name, key, undefined, signature, data),
  },
  "RSA-PSS": {
    sign: (key, { hash }, data, asked) => primitives.signRsa(hash.name, key, asked.saltLength, data),
    verify: (key, { hash }, signature, data, asked) => primitives.isSignedRsa(hash.name, key, asked.saltLength, signature, data),
  },
  ECDSA: {
    sign: (key, { namedCurve }, data, asked) => primitives.signEc(namedCurve, asked.hash.name, key, data),
    verify: (key, { namedCurve }, signature, data, asked) => primitives.isSignedEc(namedCurve, asked.hash.name, key, signature, data),
  },
  Ed25519: {
    sign: (key, _, data) => primitives.signEd25519(key, data),
    verify: (key, _, signature, data) => primitives.isSignedEd25519(key, signature, data),
  },
};

function checkCipher({ name, iv, counter, length, tagLength }) {
  if (name === "AES-CBC" && iv.length !== 16) throw failure(failed, "an IV of AES-CBC has 128 bits");
  if (name === "AES-CTR" && counter.length !== 16) throw failure(failed, "a counter of AES-CTR has 128 bits");
  if (name === "AES-CTR" && (length === 0 || length > 128)) throw failure(failed, "the counter takes 1 to 128 bits of its block");
  if (name === "AES-GCM" && ![32, 64, 96, 104, 112, 120, 128].includes(tagLength)) throw failure(failed, `a tag of AES-GCM cannot have ${tagLength} bits`);
  if (name === "AES-GCM" && iv.length === 0) throw failure(failed, "an IV of AES-GCM is not empty");
}

function encrypt(asked, key, data) {
  const material = materialOf(key);
  checkCipher(asked);
  const run = {
    "RSA-OAEP": () => (checkType(key, "public"), primitives.encryptRsa(key.algorithm.hash.name, material, asked.label, data)),
    "AES-CBC": () => primitives.encryptCbc(material, asked.iv, data),
    "AES-CTR": () => primitives.ctr(material, asked.counter, asked.length, data),
    "AES-GCM": () => primitives.seal(material, asked.iv, asked.additionalData, data, asked.tagLength / 8),
    "AES-KW": () => primitives.wrap(material, data),
  }[asked.name];
  return need(run(), failed, `${asked.name} cannot encrypt ${data.length} bytes with these parameters`);
}

function decrypt(asked, key, data) {
  const material = materialOf(key);
  checkCipher(asked);
  const run = {
    "RSA-OAEP": () => (checkType(key, "private"), primitives.decryptRsa(key.algorithm.hash.name, material, asked.label, data)),
    "AES-CBC": () => primitives.decryptCbc(material, asked.iv, data),
    "AES-CTR": () => primitives.ctr(material, asked.counter, asked.length, data),
    "AES-GCM": () => primitives.open(material, asked.iv, asked.additionalData, data, asked.tagLength / 8),
    "AES-KW": () => primitives.unwrap(material, data),
  }[asked.name];
  return need(run(), failed, "the data was not encrypted with this key and these parameters, or was changed");
}

function agree(asked, key) {
  const { name, namedCurve } = key.algorithm;
  const other = asked.public;
  checkType(key, "private");
  checkType(other, "public");
  if (other.algorithm.name !== name || other.algorithm.namedCurve !== namedCurve) {
    throw failure("InvalidAccessError", "both keys are of one algorithm and one curve");
  }
  const secret = name === "ECDH" ? primitives.agreeEc(namedCurve, materialOf(key), materialOf(other)) : primitives.agreeX25519(materialOf(key), materialOf(other));
  return need(secret, failed, "the keys have no shared secret");
}

// `length` is a number of bits, or null for all.
function deriveBits(asked, key, length) {
  if (asked.name === "ECDH" || asked.name === "X25519") {
    const secret = agree(asked, key);
    if (length === null) return secret;
    if (length > secret.byteLength * 8) throw failure(failed, `the shared secret has ${secret.byteLength * 8} bits`);
    const part = arrayOf(secret).slice(0, Math.ceil(length / 8));
    if (length % 8 !== 0) part[part.length - 1] &= 0xff << (8 - (length % 8));
    return part.buffer;
  }
  if (length === null || length % 8 !== 0) throw failure(failed, "the length is a number of bits, a multiple of 8");
  const material = materialOf(key);
  if (asked.name === "HKDF") {
    return need(primitives.hkdf(asked.hash.name, material, asked.salt, asked.info, length / 8), failed, "HKDF gives at most 255 times the hash");
  }
  if (asked.iterations === 0) throw failure(failed, "PBKDF2 takes at least one iteration");
  return primitives.pbkdf2(asked.hash.name, material, asked.salt, asked.iterations, length / 8);
}

function keyLength({ name, hash, length }) {
  if (name === "PBKDF2" || name === "HKDF") return null;
  if (name === "HMAC") {
    if (length === 0) throw new TypeError("a key of HMAC has at least one bit");
    return length ?? BLOCKS[hash.name] * 8;
  }
  if (![128, 192, 256].includes(length)) throw failure(failed, `a key of AES cannot have ${length} bits`);
  return length;
}

function formatIn(format) {
  if (!FORMATS.includes(String(format))) throw new TypeError(`${String(format)} is not a format of keys: ${FORMATS.join(", ")} are`);
  return String(format);
}

// An algorithm that wraps keys, or that encrypts.
function normalizeWrap(operation, otherwise, given) {
  try {
    return normalize(operation, given);
  } catch (error) {
    if (error?.name !== "NotSupportedError") throw error;
    return normalize(otherwise, given);
  }
}

class SubtleCrypto {
  constructor(mark) { if (mark !== token) throw new TypeError("SubtleCrypto is not to be constructed"); }
  async digest(algorithm, data) {
    return native.digest(normalize("digest", algorithm).name, bytesOf(data));
  }
  async generateKey(algorithm, extractable, usages) {
    const asked = normalize("generateKey", algorithm);
    return generateKey(asked, !!extractable, usagesIn(usages));
  }
  async importKey(format, data, algorithm, extractable, usages) {
    format = formatIn(format);
    const asked = normalize("importKey", algorithm);
    usages = usagesIn(usages);
    if (format === "jwk") {
      if (typeof data !== "object" || data === null || ArrayBuffer.isView(data) || data instanceof ArrayBuffer) throw new TypeError("a JSON Web Key is an object");
      data = { ...data };
    } else {
      data = copyOf(data);
    }
    return importKey(format, data, asked, !!extractable, usages);
  }
  async exportKey(format, key) {
    return exportKey(formatIn(format), keyIn(key));
  }
  async sign(algorithm, key, data) {
    const asked = normalize("sign", algorithm);
    data = copyOf(data);
    checkUse(keyIn(key), asked.name, "sign");
    if (asked.name !== "HMAC") checkType(key, "private");
    return need(SIGNERS[asked.name].sign(materialOf(key), key.algorithm, data, asked), failed, "the key cannot sign with these parameters");
  }
  async verify(algorithm, key, signature, data) {
    const asked = normalize("verify", algorithm);
    signature = copyOf(signature);
    data = copyOf(data);
    checkUse(keyIn(key), asked.name, "verify");
    if (asked.name !== "HMAC") checkType(key, "public");
    return SIGNERS[asked.name].verify(materialOf(key), key.algorithm, signature, data, asked);
  }
  async encrypt(algorithm, key, data) {
    const asked = normalize("encrypt", algorithm);
    data = copyOf(data);
    checkUse(keyIn(key), asked.name, "encrypt");
    return encrypt(asked, key, data);
  }
  async decrypt(algorithm, key, data) {
    const asked = normalize("decrypt", algorithm);
    data = copyOf(data);
    checkUse(keyIn(key), asked.name, "decrypt");
    return decrypt(asked, key, data);
  }
  async deriveBits(algorithm, key, length = null) {
    const asked = normalize("deriveBits", algorithm);
    if (length !== null) length = Number(length) >>> 0;
    checkUse(keyIn(key), asked.name, "deriveBits");
    return deriveBits(asked, key, length);
  }
  async deriveKey(algorithm, key, derived, extractable, usages) {
    const asked = normalize("deriveBits", algorithm);
    const wanted = normalize("importKey", derived);
    const sized = normalize("keyLength", derived);
    usages = usagesIn(usages);
    checkUse(keyIn(key), asked.name, "deriveKey");
    const secret = deriveBits(asked, key, keyLength(sized));
    return importKey("raw", arrayOf(secret), wanted, !!extractable, usages);
  }
  async wrapKey(format, key, wrapping, algorithm) {
    format = formatIn(format);
    const asked = normalizeWrap("wrapKey", "encrypt", algorithm);
    checkUse(keyIn(wrapping, "the wrapping key"), asked.name, "wrapKey");
    const exported = exportKey(format, keyIn(key));
    return encrypt(asked, wrapping, format === "jwk" ? native.encode(JSON.stringify(exported)) : arrayOf(exported));
  }
  async unwrapKey(format, wrapped, unwrapping, algorithm, unwrapped, extractable, usages) {
    format = formatIn(format);
    const asked = normalizeWrap("unwrapKey", "decrypt", algorithm);
    const wanted = normalize("importKey", unwrapped);
    usages = usagesIn(usages);
    wrapped = copyOf(wrapped);
    checkUse(keyIn(unwrapping, "the unwrapping key"), asked.name, "unwrapKey");
    let data = arrayOf(decrypt(asked, unwrapping, wrapped));
    if (format === "jwk") {
      try {
        data = JSON.parse(native.decode(data, "utf-8", true, false));
      } catch {
        throw invalid("the unwrapped key is not JSON");
      }
      if (typeof data !== "object" || data === null) throw invalid("the unwrapped key is not an object");
    }
    return importKey(format, data, wanted, !!extractable, usages);
  }
  // As in Workers: the time does not depend on the content.
  timingSafeEqual(one, other) {
    [one, other] = [bytesOf(one), bytesOf(other)];
    if (one.length !== other.length) throw new TypeError("both buffers have the same length");
    let difference = 0;
    for (let at = 0; at < one.length; at++) difference |= one[at] ^ other[at];
    return difference === 0;
  }
}

const subtle = new SubtleCrypto(token);
return { CryptoKey, SubtleCrypto, subtle, isKey, copyOfKey };
