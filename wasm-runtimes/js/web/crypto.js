// Random values (Web Cryptography API, section 10). `subtle.js` has the rest.

class Crypto {
  constructor(mark) { if (mark !== token) throw new TypeError("Crypto is not to be constructed"); }
  get subtle() { return part("subtle").subtle; }
  getRandomValues(into) {
    if (!ArrayBuffer.isView(into) || into instanceof DataView || into instanceof Float16Array || into instanceof Float32Array || into instanceof Float64Array) {
      throw new DOMException("random values are for arrays of integers", "TypeMismatchError");
    }
    if (into.byteLength > 65536) throw new DOMException("at most 65536 bytes at once", "QuotaExceededError");
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
