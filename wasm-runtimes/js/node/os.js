// node:os.
const signals = { SIGHUP: 1, SIGINT: 2, SIGQUIT: 3, SIGABRT: 6, SIGKILL: 9, SIGUSR1: 10, SIGSEGV: 11, SIGUSR2: 12, SIGPIPE: 13, SIGALRM: 14, SIGTERM: 15 };
const errno = { EPERM: 1, ENOENT: 2, EINTR: 4, EIO: 5, EBADF: 9, EAGAIN: 11, ENOMEM: 12, EACCES: 13, EEXIST: 17, ENOTDIR: 20, EISDIR: 21, EINVAL: 22, EPIPE: 32, EADDRINUSE: 98, ECONNRESET: 104, ETIMEDOUT: 110, ECONNREFUSED: 111 };
module.exports = {
  EOL: "\n", devNull: "/dev/null", constants: { signals, errno, priority: {}, dlopen: {}, UV_UDP_REUSEADDR: 4 },
  arch: () => "wasm32", platform: () => "linux", type: () => "Linux", release: () => "", version: () => "", machine: () => "wasm32", endianness: () => "LE",
  hostname: () => "localhost", homedir: () => "/", tmpdir: () => "/tmp", uptime: () => host.native.now() / 1e3, loadavg: () => [0, 0, 0],
  availableParallelism: () => 1, cpus: () => [{ model: "", speed: 0, times: { user: 0, nice: 0, sys: 0, idle: 0, irq: 0 } }],
  totalmem: () => host.native.memorySize(), freemem: () => 0, networkInterfaces: () => ({}), getPriority: () => 0, setPriority() {},
  userInfo: () => ({ username: "faasw", uid: 0, gid: 0, shell: null, homedir: "/" }),
};
