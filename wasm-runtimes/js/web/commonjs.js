// CommonJS modules, as in Node.js. This is evaluated at the first of them.
(function (host) {
"use strict";

// The modules that were loaded, by their file names.
const cache = Object.create(null);
const facades = new Map();
let main;

function fail(message, code) {
  throw Object.assign(new Error(message), { code });
}

// Returns the path of a file name: "/a.js" or "file:///a.js" is "a.js".
function pathOf(name) {
  name = String(name);
  if (name.startsWith("file://")) name = decodeURIComponent(name.slice(7));
  return name.replace(/^\/+/, "");
}

function folderOf(filename) {
  return filename.slice(0, Math.max(1, filename.lastIndexOf("/")));
}

function Module(id, parent) {
  this.id = id;
  this.path = folderOf(id);
  this.exports = {};
  this.filename = id;
  this.loaded = false;
  this.children = [];
  this.paths = [];
  Object.defineProperty(this, "parent", { value: parent, configurable: true, writable: true });
}
Module.prototype.require = function (specifier) {
  return requireFrom(pathOf(this.filename), this, specifier);
};

// Returns the namespace of an ECMAScript module. If it has a default export, the result has
// `__esModule`, by which compiled code recognises it.
function requireEsm(base, path) {
  const [namespace, state] = host.namespace(base, path);
  if (state === 1) fail(`${base} requires ${path}, which is an ES module that is being evaluated: a cycle of both kinds of module`, "ERR_REQUIRE_CYCLE_MODULE");
  if (state === 2) fail(`${base} requires ${path}, an ES module that awaits at its top level (or imports such a module): use import()`, "ERR_REQUIRE_ASYNC_MODULE");
  if (Object.hasOwn(namespace, "module.exports")) return namespace["module.exports"];
  if (!Object.hasOwn(namespace, "default") || Object.hasOwn(namespace, "__esModule")) return namespace;
  let facade = facades.get(path);
  if (facade === undefined) {
    facade = Object.create(null, { __esModule: { value: true }, [Symbol.toStringTag]: { value: "Module" } });
    for (const name of Object.keys(namespace)) {
      Object.defineProperty(facade, name, { get: () => namespace[name], enumerable: true });
    }
    facades.set(path, Object.preventExtensions(facade));
  }
  return facade;
}

function load(path, parent) {
  const filename = "/" + path;
  const known = cache[filename];
  if (known !== undefined) {
    if (parent !== undefined && !parent.children.includes(known)) parent.children.push(known);
    return known;
  }
  const module = new Module(filename, parent);
  if (path === host.main) {
    main = module;
    module.id = ".";
  }
  cache[filename] = module;
  parent?.children.push(module);
  try {
    if (host.kind(path) === "cjs") {
      const run = host.compile(path);
      Reflect.apply(run, module.exports, [module.exports, makeRequire(module), module, filename, module.path]);
    } else {
      module.exports = host.value(path);
    }
  } catch (error) {
    delete cache[filename];
    parent?.children.pop();
    throw error;
  }
  module.loaded = true;
  return module;
}

function requireFrom(base, parent, specifier) {
  if (typeof specifier !== "string" || specifier === "") {
    throw Object.assign(new TypeError("require takes the name of a module"), { code: "ERR_INVALID_ARG_VALUE" });
  }
  const found = host.resolve(base, specifier);
  switch (host.kind(found)) {
    case "builtin": return host.builtin(found);
    case "esm": return requireEsm(base, found);
    default: return load(found, parent).exports;
  }
}

function makeRequire(module) {
  const base = pathOf(module.filename);
  const require = (specifier) => requireFrom(base, module, specifier);
  require.resolve = (specifier) => {
    specifier = String(specifier);
    const found = host.resolve(base, specifier);
    // A module of the engine has no file.
    if (!host.isFile(found)) return found === `node:${specifier}` ? specifier : found;
    return "/" + found;
  };
  require.resolve.paths = () => [];
  require.cache = cache;
  require.main = main;
  require.extensions = Object.create(null);
  return require;
}

return {
  // Runs a module that an ECMAScript module imports. Returns its exports, and whether it has ended.
  run(path) {
    const module = load(path, undefined);
    return [module.exports, module.loaded];
  },
  createRequire: (name) => makeRequire(new Module("/" + pathOf(name), undefined)),
  Module,
};
})
