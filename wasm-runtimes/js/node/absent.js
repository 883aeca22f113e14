// Modules of Node.js that a function cannot have. They can be imported, because packages import
// them for paths that they do not take, and every function throws the reason.
const [reason, functions, classes, values] = {
  child_process: ["a function cannot start processes", "exec execFile execFileSync execSync fork spawn spawnSync", "ChildProcess"],
  cluster: ["a function is one process", "fork setupPrimary disconnect", "Worker", { isMaster: true, isPrimary: true, isWorker: false, workers: {}, settings: {} }],
  dgram: ["a function makes no network connections of its own: use fetch", "createSocket", "Socket"],
  dns: ["the node resolves names for fetch; a function resolves none itself", "lookup resolve resolve4 resolve6 resolveTxt resolveMx reverse setServers getServers setDefaultResultOrder", "Resolver"],
  http: ["a function is called by its exported handler and calls out by fetch", "createServer request get", "Server IncomingMessage ServerResponse ClientRequest OutgoingMessage"],
  http2: ["a function is called by its exported handler and calls out by fetch", "createServer createSecureServer connect", "Http2ServerRequest Http2ServerResponse"],
  https: ["a function is called by its exported handler and calls out by fetch", "createServer request get", "Server"],
  inspector: ["the engine has no debugger", "open close waitForDebugger", "Session", { url: () => undefined }],
  net: ["a function makes no network connections of its own: use fetch", "connect createConnection createServer", "Server Socket BlockList"],
  readline: ["a function has no terminal", "createInterface cursorTo clearLine moveCursor clearScreenDown emitKeypressEvents", "Interface"],
  repl: ["a function has no terminal", "start", "REPLServer"],
  tls: ["the node speaks TLS for fetch; a function makes no network connections of its own", "connect createServer createSecureContext checkServerIdentity", "TLSSocket Server", { rootCertificates: [], DEFAULT_MIN_VERSION: "TLSv1.2", DEFAULT_MAX_VERSION: "TLSv1.3" }],
  v8: ["the engine is QuickJS", "getHeapSnapshot writeHeapSnapshot setFlagsFromString takeCoverage stopCoverage", "Serializer Deserializer"],
  vm: ["text is not evaluated in a context of its own here", "createContext runInContext runInNewContext runInThisContext compileFunction measureMemory", "Script SourceTextModule", { isContext: () => false }],
  worker_threads: ["a function has one thread", "receiveMessageOnPort moveMessagePortToContext", "Worker", { isMainThread: true, parentPort: null, workerData: null, threadId: 0, resourceLimits: {}, getEnvironmentData() {}, setEnvironmentData() {}, markAsUntransferable() {} }],
  zlib: ["use CompressionStream and DecompressionStream", "gzip gzipSync gunzip gunzipSync deflate deflateSync inflate inflateSync deflateRaw deflateRawSync inflateRaw inflateRawSync unzip unzipSync brotliCompress brotliCompressSync brotliDecompress brotliDecompressSync createGzip createGunzip createDeflate createInflate createDeflateRaw createInflateRaw createUnzip createBrotliCompress createBrotliDecompress", "Gzip Gunzip Deflate Inflate", { constants: {} }],
}[host.name.slice(5)];

const absent = (name) => Object.assign(new Error(`${host.name.slice(5)}.${name} is not supported here: ${reason}`), { code: "ERR_FEATURE_UNAVAILABLE_ON_PLATFORM" });
for (const name of functions.split(" ")) {
  exports[name] = { [name]() { throw absent(name); } }[name];
}
for (const name of classes.split(" ")) {
  exports[name] = { [name]: class { constructor() { throw absent(name); } } }[name];
}
Object.assign(exports, values);

const isIPv4 = (text) => /^(?:(?:25[0-5]|2[0-4]\d|1?\d?\d)(?:\.(?!$)|$)){4}$/.test(text);
function isIPv6(text) {
  try {
    return String(text).includes(":") && new URL(`http://[${text}]`).hostname !== "";
  } catch {
    return false;
  }
}
switch (host.name) {
  case "node:http":
    Object.assign(exports, {
      METHODS: ["CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"], maxHeaderSize: 16384,
      STATUS_CODES: {
        100: "Continue", 101: "Switching Protocols", 200: "OK", 201: "Created", 202: "Accepted", 203: "Non-Authoritative Information", 204: "No Content",
        205: "Reset Content", 206: "Partial Content", 300: "Multiple Choices", 301: "Moved Permanently", 302: "Found", 303: "See Other", 304: "Not Modified",
        307: "Temporary Redirect", 308: "Permanent Redirect", 400: "Bad Request", 401: "Unauthorized", 402: "Payment Required", 403: "Forbidden",
        404: "Not Found", 405: "Method Not Allowed", 406: "Not Acceptable", 408: "Request Timeout", 409: "Conflict", 410: "Gone", 411: "Length Required",
        412: "Precondition Failed", 413: "Payload Too Large", 414: "URI Too Long", 415: "Unsupported Media Type", 416: "Range Not Satisfiable",
        417: "Expectation Failed", 418: "I'm a Teapot", 421: "Misdirected Request", 422: "Unprocessable Entity", 423: "Locked", 424: "Failed Dependency",
        425: "Too Early", 426: "Upgrade Required", 428: "Precondition Required", 429: "Too Many Requests", 431: "Request Header Fields Too Large",
        451: "Unavailable For Legal Reasons", 500: "Internal Server Error", 501: "Not Implemented", 502: "Bad Gateway", 503: "Service Unavailable",
        504: "Gateway Timeout", 505: "HTTP Version Not Supported", 507: "Insufficient Storage", 508: "Loop Detected", 511: "Network Authentication Required",
      },
    });
  // falls through
  case "node:https":
    // An agent only keeps settings, which clients make at their top level.
    exports.Agent = class Agent { constructor(options) { this.options = { ...options }; } destroy() {} };
    exports.globalAgent = new exports.Agent();
    break;
  case "node:net":
    Object.assign(exports, { isIPv4, isIPv6, isIP: (text) => (isIPv4(text) ? 4 : isIPv6(text) ? 6 : 0) });
    break;
  case "node:dns":
    exports.promises = { lookup: async () => exports.lookup(), resolve: async () => exports.resolve() };
    break;
  case "node:worker_threads":
    for (const name of ["MessageChannel", "MessagePort", "BroadcastChannel"]) if (globalThis[name] !== undefined) exports[name] = globalThis[name];
    break;
  case "node:v8":
    exports.getHeapStatistics = () => ({ total_heap_size: host.native.memorySize(), used_heap_size: host.native.memorySize(), heap_size_limit: host.native.memorySize() });
    break;
}
