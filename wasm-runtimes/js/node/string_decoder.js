// node:string_decoder.
module.exports = require("string_decoder/");
