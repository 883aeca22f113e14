// node:timers/promises.
const aborted = (signal) => Object.assign(new Error("The operation was aborted", { cause: signal.reason }), { name: "AbortError", code: "ABORT_ERR" });
function wait(delay, value, { signal } = {}) {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(aborted(signal));
    const stop = () => {
      clearTimeout(timer);
      reject(aborted(signal));
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve(value);
    }, delay);
    signal?.addEventListener("abort", stop, { once: true });
  });
}
async function* repeat(delay, value, options) {
  for (;;) yield await wait(delay, value, options);
}
module.exports = {
  setTimeout: wait, setImmediate: (value, options) => wait(0, value, options), setInterval: repeat,
  scheduler: { wait: (delay, options) => wait(delay, undefined, options), yield: () => wait(0) },
};
