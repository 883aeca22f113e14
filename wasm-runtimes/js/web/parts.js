// Interfaces that few scripts use. The engine compiles each part as a function (`parts` in
// `interpreter.rs`). The function runs when a script first uses a name of the part.

const PARTS = {
  subtle: ["CryptoKey", "SubtleCrypto"],
  compression: ["CompressionStream", "DecompressionStream"],
  messages: ["MessageChannel", "MessageEvent", "MessagePort"],
  errors: ["ErrorEvent", "PromiseRejectionEvent"],
  patterns: ["URLPattern"],
};

const loadedParts = {};

// What the parts use of this code.
const shared = () => ({
  Event, EventTarget, bytesOf, clone, copyOf, dictionary, setTimer, token, trust, usv,
});

function part(name) {
  if (loadedParts[name] === undefined) {
    loadedParts[name] = parts[name](native, shared());
    for (const one of PARTS[name]) tag(one, loadedParts[name][one]);
  }
  return loadedParts[name];
}

// Gives the objects of a class its name.
function tag(name, value) {
  if (typeof value === "function" && /^[A-Z]/.test(name) && value.prototype !== undefined && !Object.hasOwn(value.prototype, Symbol.toStringTag)) {
    Object.defineProperty(value.prototype, Symbol.toStringTag, { value: name, configurable: true });
  }
}

// Defines a name that scripts find.
function expose(object, name, value) {
  Object.defineProperty(object, name, { value, writable: true, configurable: true, enumerable: false });
  tag(name, value);
}

function exposeParts() {
  for (const [from, names] of Object.entries(PARTS)) {
    for (const name of names) {
      Object.defineProperty(globalThis, name, {
        configurable: true,
        enumerable: false,
        get() {
          expose(globalThis, name, part(from)[name]);
          return globalThis[name];
        },
        set(value) { expose(globalThis, name, value); },
      });
    }
  }
}
