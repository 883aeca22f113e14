//! Functions that transformed TypeScript calls: decorators and `using`.
//!
//! The transformer imports them from a package of this name. Projects rarely have it, so the
//! preparation carries the functions that the transformations in use need.

/// The package from which the transformer imports its helpers.
pub const PACKAGE: &str = "@oxc-project/runtime/helpers/";

/// The bundle's folder for files that no author wrote.
pub const FOLDER: &str = ".faasw/helpers/";

/// A module that exports nothing. It replaces a module that a package excludes from browsers.
pub const EMPTY: &str = ".faasw/empty.cjs";

/// Returns the source of a helper.
pub fn source(name: &str) -> Option<&'static str> {
    Some(match name {
        "decorate" => DECORATE,
        "decorateMetadata" => METADATA,
        "decorateParam" => PARAM,
        "usingCtx" => USING,
        _ => return None,
    })
}

/// Applies experimental decorators, the last one first.
const DECORATE: &str = "\
export default function decorate(decorators, target, key, descriptor) {
  const isClass = arguments.length < 3;
  let result = isClass ? target : descriptor;
  if (result === null) result = Object.getOwnPropertyDescriptor(target, key);
  for (let i = decorators.length - 1; i >= 0; i--) {
    const decorator = decorators[i];
    if (!decorator) continue;
    const changed = isClass
      ? decorator(result)
      : arguments.length > 3
        ? decorator(target, key, result)
        : decorator(target, key);
    result = changed || result;
  }
  if (arguments.length > 3 && result) Object.defineProperty(target, key, result);
  return result;
}
";

/// Stores the type of a declaration if the program has loaded a library for metadata.
const METADATA: &str = "\
export default function decorateMetadata(key, value) {
  const metadata = globalThis.Reflect && Reflect.metadata;
  if (typeof metadata === 'function') return metadata(key, value);
}
";

/// Makes a decorator of a parameter one of its method.
const PARAM: &str = "\
export default function decorateParam(index, decorator) {
  return (target, key) => decorator(target, key, index);
}
";

/// Keeps the resources of `using` and `await using`, and disposes of them in reverse order.
const USING: &str = "\
class Suppressed extends Error {
  constructor(error, suppressed) {
    super('an error occurred while a resource was disposed of');
    this.name = 'SuppressedError';
    this.error = error;
    this.suppressed = suppressed;
  }
}
const SuppressedError = globalThis.SuppressedError
  || function (error, suppressed) { return new Suppressed(error, suppressed); };
const disposeSymbol = Symbol.dispose || Symbol.for('Symbol.dispose');
const asyncDisposeSymbol = Symbol.asyncDispose || Symbol.for('Symbol.asyncDispose');
export default function usingCtx() {
  const none = {};
  const stack = [];
  const use = (isAsync, value) => {
    if (value != null) {
      if (Object(value) !== value) {
        throw new TypeError('using needs an object, a function, null or undefined');
      }
      let dispose = isAsync ? value[asyncDisposeSymbol] : undefined;
      const isAwaited = dispose !== undefined;
      if (dispose === undefined) dispose = value[disposeSymbol];
      if (typeof dispose !== 'function') throw new TypeError('the object cannot be disposed of');
      stack.push({ value, dispose, isAsync, isAwaited });
    } else if (isAsync) {
      stack.push({ isAsync });
    }
    return value;
  };
  return {
    e: none,
    u: (value) => use(false, value),
    a: (value) => use(true, value),
    d() {
      let error = this.e;
      const fail = (thrown) => {
        error = error === none ? thrown : new SuppressedError(thrown, error);
      };
      const next = () => {
        for (let resource; (resource = stack.pop());) {
          try {
            const result = resource.dispose && resource.dispose.call(resource.value);
            if (resource.isAsync) {
              const waited = resource.isAwaited ? result : undefined;
              return Promise.resolve(waited).then(next, (thrown) => (fail(thrown), next()));
            }
          } catch (thrown) {
            fail(thrown);
          }
        }
        if (error !== none) throw error;
      };
      return next();
    },
  };
}
";
