// Text and its encodings (Encoding Standard).

function usv(value) { return String(value).toWellFormed(); }

// Options as Web IDL takes them.
function dictionary(value) {
  if (value === undefined || value === null) return {};
  if (typeof value !== "object" && typeof value !== "function") throw new TypeError("options are an object");
  return value;
}

// The bytes of a buffer or of a view of one. Not a copy, but of a buffer that may be resized: what
// is native knows only how long a view was once.
function bytesOf(value) {
  if (ArrayBuffer.isView(value)) {
    const bytes = value instanceof Uint8Array ? value : viewOf(value);
    return value.buffer.resizable ? new Uint8Array(bytes) : bytes;
  }
  if (value instanceof ArrayBuffer && value.resizable) return new Uint8Array(value.slice(0));
  if (value instanceof ArrayBuffer || value instanceof SharedArrayBuffer) return new Uint8Array(value);
  throw new TypeError("neither an ArrayBuffer nor a view of one");
}

// To be written to.
function viewOf(view) { return new Uint8Array(view.buffer, view.byteOffset, view.byteLength); }

function copyOf(value) { return new Uint8Array(bytesOf(value)); }

class TextEncoder {
  get encoding() { return "utf-8"; }
  encode(text = "") { return native.encode(usv(text)); }
  encodeInto(text, into) {
    if (!(into instanceof Uint8Array)) throw new TypeError("what is encoded into is no Uint8Array");
    text = usv(text);
    let read = 0;
    let written = 0;
    for (const character of text) {
      const bytes = native.encode(character);
      if (written + bytes.length > into.length) break;
      into.set(bytes, written);
      written += bytes.length;
      read += character.length;
    }
    return { read, written };
  }
}

class TextDecoder {
  #encoding;
  #fatal;
  #ignoreBOM;
  #decoder = null;
  constructor(label = "utf-8", options = {}) {
    const encoding = native.encodingOf(usv(label));
    if (encoding === undefined) throw new RangeError(`${String(label)} is no encoding that is known`);
    this.#encoding = encoding;
    this.#fatal = !!options?.fatal;
    this.#ignoreBOM = !!options?.ignoreBOM;
  }
  get encoding() { return this.#encoding; }
  get fatal() { return this.#fatal; }
  get ignoreBOM() { return this.#ignoreBOM; }
  decode(input, options) {
    const bytes = input === undefined ? new Uint8Array() : bytesOf(input);
    const stream = !!options?.stream;
    if (!stream && this.#decoder === null) {
      return native.decode(bytes, this.#encoding, this.#fatal, this.#ignoreBOM);
    }
    this.#decoder ??= native.decoder(this.#encoding, this.#fatal, this.#ignoreBOM);
    const decoder = this.#decoder;
    if (!stream) this.#decoder = null;
    try {
      return native.decodeMore(decoder, bytes, !stream);
    } catch (error) {
      this.#decoder = null;
      throw error;
    }
  }
}

class TextEncoderStream extends TransformStream {
  constructor() {
    let high = "";
    super({
      transform(chunk, controller) {
        let text = high + String(chunk);
        high = "";
        const last = text.charCodeAt(text.length - 1);
        if (last >= 0xd800 && last <= 0xdbff) {
          high = text.at(-1);
          text = text.slice(0, -1);
        }
        if (text !== "") controller.enqueue(native.encode(text.toWellFormed()));
      },
      flush(controller) {
        if (high !== "") controller.enqueue(native.encode("\ufffd"));
      },
    });
  }
  get encoding() { return "utf-8"; }
}

class TextDecoderStream extends TransformStream {
  #decoder;
  constructor(label = "utf-8", options = {}) {
    const decoder = new TextDecoder(label, options);
    super({
      transform(chunk, controller) {
        if (chunk === undefined) throw new TypeError("a chunk is bytes");
        const text = decoder.decode(chunk, { stream: true });
        if (text !== "") controller.enqueue(text);
      },
      flush(controller) {
        const text = decoder.decode();
        if (text !== "") controller.enqueue(text);
      },
    });
    this.#decoder = decoder;
  }
  get encoding() { return this.#decoder.encoding; }
  get fatal() { return this.#decoder.fatal; }
  get ignoreBOM() { return this.#decoder.ignoreBOM; }
}
