// node:punycode.
import * as punycode from "unenv/node/punycode";
module.exports = { ...punycode };
