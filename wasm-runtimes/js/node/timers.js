// node:timers. Timers here are numbers, as on the web.
function setImmediate(run, ...values) { return setTimeout(run, 0, ...values); }
module.exports = {
  setTimeout, setInterval, clearTimeout, clearInterval, setImmediate, clearImmediate: clearTimeout,
  active() {}, enroll() {}, unenroll() {},
  get promises() { return require("node:timers/promises"); },
};
