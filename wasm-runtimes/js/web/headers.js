// Header fields (Fetch Standard, section 5.1).

let fieldsOf;
let lazyHeaders;
let headersOf;
let fix;
let isFixed;
let sendable;

// The third item of a pair: the field describes a body as a server sent it, which was decoded.
const CODED = true;

// As interfaces of the web do where they are called with fewer arguments than they need.
function needs(count, given) {
  if (given < count) throw new TypeError(`${count === 1 ? "an argument is" : `${count} arguments are`} needed, and there ${given === 1 ? "is 1" : `are ${given}`}`);
}

class Headers {
  // Names are in lower case; null while what a request came with was not asked for.
  #list = [];
  #incoming;
  #isFixed = false;
  constructor(init) {
    if (init === undefined) return;
    if (init === null || (typeof init !== "object" && typeof init !== "function")) {
      throw new TypeError("Headers are made of other Headers, of pairs, or of an object");
    }
    if (#list in init && init[Symbol.iterator] === Headers.prototype.entries) {
      const from = init.#all();
      for (let at = 0; at < from.length; at++) this.#list[at] = from[at].length === 3 ? [from[at][0], from[at][1], CODED] : [from[at][0], from[at][1]];
    } else if (typeof init[Symbol.iterator] === "function") {
      for (const pair of init) {
        const both = [...pair];
        if (both.length !== 2) throw new TypeError("a pair of a header field has a name and a value");
        this.append(both[0], both[1]);
      }
    } else {
      const names = Reflect.ownKeys(init);
      for (let at = 0; at < names.length; at++) {
        if (Object.getOwnPropertyDescriptor(init, names[at])?.enumerable) this.append(names[at], init[names[at]]);
      }
    }
  }
  static inside() {
    fieldsOf = (headers) => headers.#all();
    isFixed = (headers) => headers.#isFixed;
    // From now on scripts cannot change them.
    fix = (headers) => {
      headers.#isFixed = true;
      return headers;
    };
    // Takes a list of pairs whose names are in lower case. Scripts cannot change these Headers.
    headersOf = (list) => {
      const headers = new Headers();
      headers.#list = list;
      headers.#isFixed = true;
      return headers;
    };
    lazyHeaders = (incoming) => {
      const headers = new Headers();
      headers.#list = null;
      headers.#incoming = incoming;
      headers.#isFixed = true;
      return headers;
    };
  }
  #all() {
    if (this.#list === null) {
      this.#incoming.check();
      this.#list = native.headers();
    }
    return this.#list;
  }
  #change() {
    if (this.#isFixed) throw new TypeError("these Headers cannot be changed");
    return this.#list;
  }
  append(name, value) {
    needs(2, arguments.length);
    name = native.fieldName(String(name));
    value = native.fieldValue(String(value));
    this.#change().push([name, value]);
  }
  delete(name) {
    needs(1, arguments.length);
    name = native.fieldName(String(name));
    this.#list = this.#change().filter((pair) => pair[0] !== name);
  }
  get(name) {
    needs(1, arguments.length);
    name = native.fieldName(String(name));
    let found = null;
    for (const pair of this.#all()) {
      if (pair[0] === name) found = found === null ? pair[1] : found + ", " + pair[1];
    }
    return found;
  }
  getSetCookie() {
    return this.#all().filter((pair) => pair[0] === "set-cookie").map((pair) => pair[1]);
  }
  has(name) {
    needs(1, arguments.length);
    name = native.fieldName(String(name));
    return this.#all().some((pair) => pair[0] === name);
  }
  set(name, value) {
    needs(2, arguments.length);
    name = native.fieldName(String(name));
    value = native.fieldValue(String(value));
    const list = this.#change();
    const first = list.find((pair) => pair[0] === name);
    if (first === undefined) {
      list.push([name, value]);
    } else {
      this.#list = list.filter((pair) => pair === first || pair[0] !== name);
      this.#list[this.#list.indexOf(first)] = [name, value];
    }
  }
  // Sorted by name; fields of one name are one, but cookies.
  #combined() {
    const combined = new Map();
    const cookies = [];
    for (const [name, value] of this.#all()) {
      if (name === "set-cookie") cookies.push([name, value]);
      else combined.set(name, combined.has(name) ? combined.get(name) + ", " + value : value);
    }
    return [...combined, ...cookies].sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
  }
  forEach(run, self) { forEachOf(this, run, self); }
  *entries() {
    let list;
    for (let at = 0; at < (list = this.#combined()).length; at++) yield list[at];
  }
  *keys() { for (const [name] of this.entries()) yield name; }
  *values() { for (const [, value] of this.entries()) yield value; }
}
Headers.prototype[Symbol.iterator] = Headers.prototype.entries;
// Returns the fields to send with a body that is not coded.
sendable = (fields) => {
  for (let at = 0; at < fields.length; at++) {
    if (fields[at].length === 3) return fields.filter((pair) => pair.length < 3);
  }
  return fields;
};
Headers.inside();
delete Headers.inside;
