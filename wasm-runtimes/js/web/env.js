// What the operator gives a function: environment, configuration, secrets, stores and files.

let env;
let configuration = [];
let secretNames = [];

// Sets what a script finds. Where names are equal, a store comes before a secret, a secret before
// a configuration key, that before an environment variable, and all before `default` and `ASSETS`.
function configure(settings) {
  configuration = settings.configuration;
  secretNames = settings.secrets;
  env = {};
  const own = (name, property) => {
    Object.defineProperty(env, name, { enumerable: true, configurable: true, ...property });
  };
  for (const [name, value] of settings.environment) own(name, { value, writable: true });
  for (const [name, value] of configuration) own(name, { value, writable: true });
  // Nothing reads a secret that the script does not ask for, and nothing keeps it.
  for (const name of secretNames) {
    delete env[name];
    own(name, { get: () => native.secret(name) });
  }
  const store = (name) => {
    delete env[name];
    own(name, { value: new KeyValueStore(inner, name), writable: true });
  };
  for (const name of settings.stores) store(name);
  if (!Object.hasOwn(env, "default")) store("default");
  if (settings.assets !== undefined && settings.assets !== null && !Object.hasOwn(env, "ASSETS")) {
    own("ASSETS", { value: new Assets(inner, settings.assets), writable: true });
  }
}

// What the module `faasw` exports.
function api() {
  return {
    env,
    kv: { open: (name = "default") => new KeyValueStore(inner, usv(name)) },
    secrets: {
      get: (name) => {
        name = usv(name);
        if (secretNames.includes(name)) return native.secret(name);
        throw new Error(`the function has no secret ${JSON.stringify(name)}: deploy it with --secret ${name}`);
      },
    },
    config: {
      get: (key) => configuration.findLast((pair) => pair[0] === usv(key))?.[1],
    },
    files,
  };
}
