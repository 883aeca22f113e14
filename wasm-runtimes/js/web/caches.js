// Caches that keep nothing (Service Workers, section 5.4). `src/modules.rs` logs that when a script
// that uses them is deployed.

class Cache {
  constructor(token) {
    if (token !== inner) throw new TypeError("Cache is not to be constructed");
  }
  async match() { return undefined; }
  async matchAll() { return []; }
  async keys() { return []; }
  async delete() { return false; }
  async add() {}
  async addAll() {}
  // Takes the body all the same, as the caller expects.
  async put(request, response) {
    needs(2, arguments.length);
    if (!(response instanceof Response)) throw new TypeError("what is put into a cache is a Response");
    await response.arrayBuffer();
  }
}

class CacheStorage {
  #cache = new Cache(inner);
  constructor(token) {
    if (token !== inner) throw new TypeError("CacheStorage is not to be constructed");
  }
  get default() { return this.#cache; }
  async open() { return this.#cache; }
  async match() { return undefined; }
  async has() { return false; }
  async keys() { return []; }
  async delete() { return false; }
}
const caches = new CacheStorage(inner);
