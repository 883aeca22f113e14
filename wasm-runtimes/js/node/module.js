// node:module.
const { createRequire, Module } = host.commonjs();
module.exports = Object.assign(Module, {
  Module, createRequire, builtinModules: host.builtinModules().map((name) => name.slice(5)),
  isBuiltin: (name) => host.builtinModules().includes(name.startsWith("node:") ? name : `node:${name}`),
  findSourceMap: () => undefined, register() {}, syncBuiltinESMExports() {}, enableCompileCache() {},
});
