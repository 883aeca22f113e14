// Modules that have little of their own.
switch (host.name) {
  case "node:console":
    module.exports = Object.assign(Object.create(console), { ...console, Console: class Console { constructor() { return console; } } });
    break;
  case "node:constants":
    module.exports = { ...require("node:os").constants.errno, ...require("node:os").constants.signals, ...require("node:fs").constants };
    break;
  case "node:perf_hooks":
    module.exports = {
      performance, constants: {},
      PerformanceObserver: class PerformanceObserver { observe() {} disconnect() {} },
      monitorEventLoopDelay: () => ({ enable() {}, disable() {}, min: 0, max: 0, mean: 0, stddev: 0, percentile: () => 0 }),
    };
    break;
  case "node:sys":
    module.exports = require("node:util");
    break;
  case "node:tty":
    module.exports = { isatty: () => false, ReadStream: class ReadStream {}, WriteStream: class WriteStream {} };
    break;
}
