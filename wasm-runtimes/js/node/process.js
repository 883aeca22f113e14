// node:process, which is the global `process`, too.
const EventEmitter = require("node:events");
const VERSION = "22.12.0";

function output(stream) {
  const write = (chunk, encoding, done) => {
    if (typeof encoding === "function") done = encoding;
    host.native.write(stream, typeof chunk === "string" ? chunk : new TextDecoder().decode(chunk));
    if (typeof done === "function") queueMicrotask(() => done());
    return true;
  };
  return Object.assign(new EventEmitter(), {
    write, end: (chunk, ...rest) => void (chunk === undefined || typeof chunk === "function" || write(chunk, ...rest)),
    isTTY: false, writable: true, columns: 80, fd: stream + 1, cork() {}, uncork() {}, hasColors: () => false, getColorDepth: () => 1,
  });
}

function hrtime(since) {
  const now = host.native.now();
  let seconds = Math.floor(now / 1e3);
  let nanoseconds = Math.floor((now % 1e3) * 1e6);
  if (since !== undefined) {
    seconds -= since[0];
    nanoseconds -= since[1];
    if (nanoseconds < 0) [seconds, nanoseconds] = [seconds - 1, nanoseconds + 1e9];
  }
  return [seconds, nanoseconds];
}
hrtime.bigint = () => BigInt(Math.floor(host.native.now() * 1e6));

// Names that the script assigned or deleted: the handler's `env` no longer decides their values.
const assigned = new Set();
// Returns whether the handler's `env` has a text of that name. Secrets have getters, which are not
// called: a secret is available only while a request is answered.
function isInEnv(name) {
  const property = Object.getOwnPropertyDescriptor(host.env() ?? {}, name);
  return property !== undefined && (property.get !== undefined || typeof property.value === "string");
}
// Assigned values become texts, as in Node.js. Texts of the handler's `env` can be read by name, too.
const variables = new Proxy(Object.assign({ NODE_ENV: "production" }, Object.fromEntries(host.native.environment())), {
  get(target, name) {
    if (typeof name === "symbol" || assigned.has(name)) return target[name];
    const value = host.env()?.[name];
    return typeof value === "string" ? value : target[name];
  },
  has: (target, name) => name in target || (typeof name === "string" && !assigned.has(name) && isInEnv(name)),
  set: (target, name, value) => assigned.add(name) && Reflect.set(target, name, typeof name === "symbol" ? value : String(value)),
  deleteProperty: (target, name) => assigned.add(name) && Reflect.deleteProperty(target, name),
  defineProperty: (target, name, property) => assigned.add(name) && Reflect.defineProperty(target, name, "value" in property && typeof name === "string" ? { ...property, value: String(property.value) } : property),
});

let stdout;
let stderr;
const process = Object.assign(new EventEmitter(), {
  title: "faasw", version: `v${VERSION}`, versions: { node: VERSION, quickjs: "0.16.2" }, release: { name: "node" },
  platform: "linux", arch: "wasm32", pid: 1, ppid: 0, argv: ["node", "/" + host.main()], argv0: "node", execArgv: [], execPath: "/node",
  exitCode: undefined, features: {}, config: { variables: {} }, env: variables, hrtime,
  nextTick(run, ...values) {
    if (typeof run !== "function") throw Object.assign(new TypeError('The "callback" argument must be of type function'), { code: "ERR_INVALID_ARG_TYPE" });
    queueMicrotask(() => run(...values));
  },
  cwd: () => "/",
  chdir() { throw new Error("process.chdir is not supported here: the folder of a script is always /"); },
  exit(code = process.exitCode ?? 0) { throw new Error(`process.exit(${code}) is not supported here: a handler ends when it returns its response`); },
  abort() { process.exit(134); },
  kill() { throw new Error("process.kill is not supported here: there are no other processes"); },
  uptime: () => host.native.now() / 1e3,
  memoryUsage: Object.assign(() => {
    const rss = host.native.memorySize();
    return { rss, heapTotal: rss, heapUsed: rss, external: 0, arrayBuffers: 0 };
  }, { rss: () => host.native.memorySize() }),
  cpuUsage: () => ({ user: Math.floor(host.native.now() * 1e3), system: 0 }),
  resourceUsage: () => ({ userCPUTime: Math.floor(host.native.now() * 1e3), systemCPUTime: 0, maxRSS: host.native.memorySize() / 1024 }),
  emitWarning(warning, type = "Warning") { console.warn(warning instanceof Error ? String(warning) : `${typeof type === "string" ? type : type?.type ?? "Warning"}: ${warning}`); },
  umask: () => 0o22, getuid: () => 0, geteuid: () => 0, getgid: () => 0, getegid: () => 0, getgroups: () => [0],
  binding() { throw new Error("process.binding is not supported here"); },
  getBuiltinModule(name) {
    try {
      return require(name);
    } catch {
      return undefined;
    }
  },
  setUncaughtExceptionCaptureCallback() {}, hasUncaughtExceptionCaptureCallback: () => false, setSourceMapsEnabled() {},
});
Object.defineProperties(process, {
  stdout: { get: () => (stdout ??= output(0)), enumerable: true, configurable: true },
  stderr: { get: () => (stderr ??= output(1)), enumerable: true, configurable: true },
  stdin: { get: () => { throw new Error("process.stdin is not supported here: a script reads the body of its request"); }, configurable: true },
  [Symbol.toStringTag]: { value: "process", configurable: true },
});
module.exports = process;
