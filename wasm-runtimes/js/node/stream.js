// node:stream. It is npm's readable-stream, which has the text of Node.js's own.
const stream = require("readable-stream/lib/stream.js");
Object.defineProperty(stream, "promises", { value: require("readable-stream/lib/stream/promises.js"), enumerable: true, configurable: true });
const { Readable, Writable, Duplex } = stream;

Readable.toWeb = (readable) => {
  let iterator;
  return new ReadableStream({
    async pull(controller) {
      iterator ??= readable[Symbol.asyncIterator]();
      const { value, done } = await iterator.next();
      if (done) controller.close();
      else controller.enqueue(typeof value === "string" ? new TextEncoder().encode(value) : value instanceof Uint8Array ? new Uint8Array(value.buffer, value.byteOffset, value.byteLength) : value);
    },
    async cancel(reason) { readable.destroy(reason instanceof Error ? reason : undefined); },
  }, { highWaterMark: 0 });
};
Readable.fromWeb = (stream, options) => {
  const reader = stream.getReader();
  return new Readable({
    ...options,
    async read() {
      try {
        const { value, done } = await reader.read();
        this.push(done ? null : value);
      } catch (error) {
        this.destroy(error);
      }
    },
    destroy(error, done) { reader.cancel(error ?? undefined).then(() => done(error), () => done(error)); },
  });
};
Writable.toWeb = (writable) => new WritableStream({
  write: (chunk) => new Promise((resolve, reject) => writable.write(chunk, (error) => (error ? reject(error) : resolve()))),
  close: () => new Promise((resolve) => writable.end(resolve)),
  abort: (reason) => void writable.destroy(reason),
});
Writable.fromWeb = (stream, options) => {
  const writer = stream.getWriter();
  return new Writable({
    ...options,
    write(chunk, encoding, done) { writer.write(chunk).then(() => done(), done); },
    final(done) { writer.close().then(() => done(), done); },
    destroy(error, done) { (error ? writer.abort(error) : Promise.resolve()).then(() => done(error), () => done(error)); },
  });
};
Duplex.toWeb = (duplex) => ({ readable: Readable.toWeb(duplex), writable: Writable.toWeb(duplex) });
module.exports = stream;
