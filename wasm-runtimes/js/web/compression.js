// Compression and decompression as streams (Compression Standard). The codecs are native.
//
// A stream passes on at most one piece of output per demand of its reader, so that little input
// which decompresses to much does not fill the memory.

const { bytesOf } = shared;

class CodecStream {
  #readable;
  #writable;
  constructor(format, compresses) {
    const codec = native.codec(String(format), compresses);
    let output;
    let input;
    let isWanted = false;
    let wake = () => {};
    let problem;
    // Both sides fail with the first error.
    const fail = (error) => {
      problem ??= { error };
      wake();
    };
    const run = async (bytes, isLast) => {
      native.putCodec(codec, bytes);
      for (;;) {
        const piece = native.takeCodec(codec, isLast);
        if (piece === undefined) return;
        while (!isWanted && problem === undefined) await new Promise((resolve) => { wake = resolve; });
        if (problem !== undefined) throw problem.error;
        isWanted = false;
        output.enqueue(piece);
      }
    };
    const guarded = async (bytes, isLast) => {
      try {
        await run(bytes, isLast);
      } catch (error) {
        if (problem === undefined) output.error(error);
        fail(error);
        throw error;
      }
    };
    this.#readable = new ReadableStream({
      start(controller) { output = controller; },
      pull() {
        isWanted = true;
        wake();
      },
      cancel(reason) {
        input.error(reason);
        fail(reason);
      },
    }, { highWaterMark: 0 });
    this.#writable = new WritableStream({
      start(controller) { input = controller; },
      async write(chunk) {
        let bytes;
        try {
          bytes = bytesOf(chunk);
          if (chunk instanceof SharedArrayBuffer || chunk.buffer instanceof SharedArrayBuffer) throw new TypeError("a chunk is not shared memory");
        } catch (error) {
          output.error(error);
          fail(error);
          throw error;
        }
        await guarded(bytes, false);
      },
      async close() {
        await guarded(new Uint8Array(), true);
        if (problem === undefined) output.close();
      },
      abort(reason) {
        output.error(reason);
        fail(reason);
      },
    });
  }
  get readable() { return this.#readable; }
  get writable() { return this.#writable; }
}

// The classes of the standard have no class above them.
function define(name, compresses) {
  const inner = new WeakMap();
  const of = (stream) => {
    const found = inner.get(stream);
    if (found === undefined) throw new TypeError(`this is not a ${name}`);
    return found;
  };
  const { [name]: made } = {
    [name]: class {
      constructor(format) {
        if (arguments.length === 0) throw new TypeError(`a ${name} needs a format`);
        inner.set(this, new CodecStream(format, compresses));
      }
      get readable() { return of(this).readable; }
      get writable() { return of(this).writable; }
    },
  };
  return made;
}

return { CompressionStream: define("CompressionStream", true), DecompressionStream: define("DecompressionStream", false) };
