// node:url. The interfaces of the web are the engine's own; `url.parse` and its kin are unenv's.
import * as legacy from "unenv/node/url";
const { URL, URLSearchParams } = globalThis;
function fileURLToPath(url) {
  url = typeof url === "string" ? new URL(url) : url;
  if (url.protocol !== "file:") throw Object.assign(new TypeError("The URL must be of scheme file"), { code: "ERR_INVALID_URL_SCHEME" });
  if (/%2f/i.test(url.pathname)) throw Object.assign(new TypeError("File URL path must not include encoded / characters"), { code: "ERR_INVALID_FILE_URL_PATH" });
  return decodeURIComponent(url.pathname);
}
function pathToFileURL(path) {
  const encoded = require("node:path").resolve(path).replace(/[%\\\n\r\t?#]/g, encodeURIComponent);
  return new URL("file://" + encoded + (path.endsWith("/") && !encoded.endsWith("/") ? "/" : ""));
}
function urlToHttpOptions(url) {
  const { protocol, hostname, hash, search, pathname, href, port, username, password } = url;
  const options = { protocol, hostname: hostname.replace(/^\[|\]$/g, ""), hash, search, pathname, path: pathname + search, href };
  if (port !== "") options.port = Number(port);
  if (username !== "" || password !== "") options.auth = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`;
  return options;
}
const host_ = (text) => {
  try {
    return new URL(`http://${text}`).hostname;
  } catch {
    return "";
  }
};
const { Url, parse, resolve, resolveObject, format } = legacy;
// At its first use unenv's `parse` logs a warning about itself. Packages call it, not authors.
const { warn } = console;
console.warn = () => {};
parse("");
console.warn = warn;

module.exports = {
  URL, URLSearchParams, Url, parse, resolve, resolveObject, fileURLToPath, pathToFileURL, urlToHttpOptions,
  fileURLToPathBuffer: (url) => require("node:buffer").Buffer.from(fileURLToPath(url)),
  format(value, options) {
    if (!(value instanceof URL)) return format(value);
    const url = new URL(value);
    if (options?.auth === false) url.username = url.password = "";
    if (options?.fragment === false) url.hash = "";
    if (options?.search === false) url.search = "";
    return url.href;
  },
  domainToASCII: host_,
  domainToUnicode: host_,
};
