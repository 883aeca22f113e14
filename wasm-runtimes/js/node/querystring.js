// node:querystring.
import * as querystring from "unenv/node/querystring";
module.exports = { ...querystring.default };
