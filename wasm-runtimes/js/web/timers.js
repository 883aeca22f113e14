// Timers (HTML Standard, section 8.6).

const timers = [];
let lastTimer = 0;

// `timers` is sorted by when they are due, then by when they were set.
function arm(timer) {
  let at = timers.length;
  while (at > 0 && timers[at - 1].due > timer.due) at--;
  timers.splice(at, 0, timer);
}

// What a timer calls. `node:async_hooks` has it call in the context in which it was set.
let inContext = (run) => run;

function carryContexts(bind) { inContext = bind; }

function setTimer(run, delay, values, repeats) {
  if (typeof run !== "function") throw new TypeError("a timer calls a function; text is not evaluated");
  delay = Number(delay);
  if (!(delay >= 1 && delay <= 0x7fffffff)) delay = repeats ? 1 : 0;
  const id = ++lastTimer;
  arm({ id, due: native.now() + delay, delay, run: inContext(run), values, repeats });
  return id;
}

function setTimeout(run, delay = 0, ...values) { return setTimer(run, delay, values, false); }
function setInterval(run, delay = 0, ...values) { return setTimer(run, delay, values, true); }
function clearTimeout(id) {
  const at = timers.findIndex((timer) => timer.id === id);
  if (at >= 0) timers.splice(at, 1);
}
function clearInterval(id) { clearTimeout(id); }

// Calls the next timer that is due. Gives how many milliseconds there are until one is: less
// than nothing where there is none.
function runTimer() {
  if (timers.length === 0) return -1;
  const wait = timers[0].due - native.now();
  if (wait > 0) return wait;
  const timer = timers.shift();
  if (timer.repeats) {
    timer.due += timer.delay;
    arm(timer);
  }
  report(() => timer.run.apply(globalThis, timer.values));
  return 0;
}

function queueMicrotask(run) {
  if (typeof run !== "function") throw new TypeError("a microtask is a function");
  Promise.resolve().then(() => report(run));
}
