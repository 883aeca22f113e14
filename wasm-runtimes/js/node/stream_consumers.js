// node:stream/consumers.
const { Buffer } = require("node:buffer");
async function buffer(stream) {
  const parts = [];
  for await (const part of stream) parts.push(Buffer.from(part));
  return Buffer.concat(parts);
}
const text = async (stream) => (await buffer(stream)).toString();
module.exports = {
  buffer, text,
  json: async (stream) => JSON.parse(await text(stream)),
  blob: async (stream) => new Blob([await buffer(stream)]),
  async arrayBuffer(stream) {
    const all = await buffer(stream);
    return all.buffer.slice(all.byteOffset, all.byteOffset + all.byteLength);
  },
};
