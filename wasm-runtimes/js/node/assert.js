// node:assert.
const { inspect, isDeepStrictEqual, isDeepLooseEqual } = require("node:util");

class AssertionError extends Error {
  constructor({ message, actual, expected, operator }) {
    super(message ?? `${inspect(actual)} ${operator} ${inspect(expected)}`);
    Object.assign(this, { generatedMessage: message === undefined, code: "ERR_ASSERTION", actual, expected, operator });
  }
  get name() { return "AssertionError"; }
  toString() { return `AssertionError [ERR_ASSERTION]: ${this.message}`; }
}

function fail(actual, expected, message, operator, text) {
  if (message instanceof Error) throw message;
  throw new AssertionError({ message: message ?? text, actual, expected, operator });
}

const compared = (actual, expected, text) => `${text}\n\n${inspect(actual)}\n\nshould ${text.includes(" not ") ? "not " : ""}equal\n\n${inspect(expected)}`;

function ok(value, message) {
  if (!value) fail(value, true, message, "==", arguments.length === 0 ? "No value argument passed to `assert.ok()`" : "The expression evaluated to a falsy value");
}
function assert(...values) { ok(...values); }

// Returns whether an error is the expected one: a class, a pattern, a predicate or an object with its properties.
function check(error, expected, message, operator) {
  if (expected === undefined) return;
  if (typeof expected === "function") {
    if (expected.prototype !== undefined && error instanceof expected) return;
    if (Error.isPrototypeOf(expected) || expected === Error) throw error;
    if (Reflect.apply(expected, {}, [error]) === true) return;
    fail(error, expected, message, operator, `The validation function did not return true for ${inspect(error)}`);
  }
  if (expected instanceof RegExp) {
    if (expected.test(String(error))) return;
    fail(error, expected, message, operator, `The input did not match the regular expression ${expected}. Input:\n\n${inspect(String(error))}`);
  }
  const names = Object.keys(expected);
  if (expected instanceof Error) names.push("name", "message");
  for (const name of names) {
    const is = expected[name] instanceof RegExp && typeof error[name] === "string" ? expected[name].test(error[name]) : isDeepStrictEqual(error?.[name], expected[name]);
    if (!is) fail(error, expected, message, operator, `The property ${name} of the error is ${inspect(error?.[name])}, not ${inspect(expected[name])}`);
  }
}

function throws(run, expected, message) {
  if (typeof run !== "function") throw Object.assign(new TypeError('The "fn" argument must be of type function'), { code: "ERR_INVALID_ARG_TYPE" });
  if (typeof expected === "string") [expected, message] = [undefined, expected];
  let thrown;
  try {
    run();
  } catch (error) {
    thrown = { error };
  }
  if (thrown === undefined) fail(undefined, expected, message, "throws", "Missing expected exception.");
  check(thrown.error, expected, message, "throws");
}
async function rejects(run, expected, message) {
  if (typeof expected === "string") [expected, message] = [undefined, expected];
  let thrown;
  try {
    await (typeof run === "function" ? run() : run);
  } catch (error) {
    thrown = { error };
  }
  if (thrown === undefined) fail(undefined, expected, message, "rejects", "Missing expected rejection.");
  check(thrown.error, expected, message, "rejects");
}
function unwanted(error, expected, message, operator) {
  if (typeof expected === "string") message = expected;
  fail(error, expected, undefined, operator, `Got unwanted ${operator === "doesNotThrow" ? "exception" : "rejection"}${message === undefined ? "." : `: ${message}`}\nActual message: "${error?.message}"`);
}

Object.assign(assert, {
  AssertionError, ok, throws, rejects,
  fail(message = "Failed") { fail(undefined, undefined, message, "fail"); },
  equal(a, b, message) { if (!(a == b || Number.isNaN(a) && Number.isNaN(b))) fail(a, b, message, "==", `${inspect(a)} == ${inspect(b)}`); },
  notEqual(a, b, message) { if (a == b || Number.isNaN(a) && Number.isNaN(b)) fail(a, b, message, "!=", `${inspect(a)} != ${inspect(b)}`); },
  strictEqual(a, b, message) { if (!Object.is(a, b)) fail(a, b, message, "strictEqual", compared(a, b, "Expected values to be strictly equal:")); },
  notStrictEqual(a, b, message) { if (Object.is(a, b)) fail(a, b, message, "notStrictEqual", `Expected "actual" to be strictly unequal to: ${inspect(b)}`); },
  deepEqual(a, b, message) { if (!isDeepLooseEqual(a, b)) fail(a, b, message, "deepEqual", compared(a, b, "Expected values to be loosely deep-equal:")); },
  notDeepEqual(a, b, message) { if (isDeepLooseEqual(a, b)) fail(a, b, message, "notDeepEqual", `Expected "actual" not to be loosely deep-equal to: ${inspect(b)}`); },
  deepStrictEqual(a, b, message) { if (!isDeepStrictEqual(a, b)) fail(a, b, message, "deepStrictEqual", compared(a, b, "Expected values to be strictly deep-equal:")); },
  notDeepStrictEqual(a, b, message) { if (isDeepStrictEqual(a, b)) fail(a, b, message, "notDeepStrictEqual", `Expected "actual" not to be strictly deep-equal to: ${inspect(b)}`); },
  match(text, pattern, message) { if (typeof text !== "string" || !pattern.test(text)) fail(text, pattern, message, "match", `The input did not match the regular expression ${pattern}. Input:\n\n${inspect(text)}`); },
  doesNotMatch(text, pattern, message) { if (typeof text !== "string" || pattern.test(text)) fail(text, pattern, message, "doesNotMatch", `The input was expected to not match the regular expression ${pattern}. Input:\n\n${inspect(text)}`); },
  doesNotThrow(run, expected, message) {
    try {
      run();
    } catch (error) {
      unwanted(error, expected, message, "doesNotThrow");
    }
  },
  async doesNotReject(run, expected, message) {
    try {
      await (typeof run === "function" ? run() : run);
    } catch (error) {
      unwanted(error, expected, message, "doesNotReject");
    }
  },
  ifError(value) {
    if (value !== null && value !== undefined) fail(value, null, undefined, "ifError", `ifError got unwanted exception: ${value?.message ?? inspect(value)}`);
  },
});
const strict = (...values) => ok(...values);
Object.assign(strict, assert, {
  equal: assert.strictEqual, notEqual: assert.notStrictEqual, deepEqual: assert.deepStrictEqual, notDeepEqual: assert.notDeepStrictEqual,
});
strict.strict = assert.strict = strict;
module.exports = assert;
