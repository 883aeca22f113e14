// URLs (URL Standard, sections 5 and 6). Parsing is native.

// What `native.url` gives, in this order.
const [HREF, ORIGIN, PROTOCOL, USERNAME, PASSWORD, HOST, HOSTNAME, PORT, PATHNAME, SEARCH, HASH] = Array(11).keys();

let updateUrl;

class URLSearchParams {
  #pairs;
  #url = null;
  constructor(init = "") {
    this.#pairs = new Pairs(URLSearchParams.#read(init));
  }
  static #read(init) {
    if ((typeof init !== "object" || init === null) && typeof init !== "function") {
      const text = usv(init);
      return native.parseForm(text.startsWith("?") ? text.slice(1) : text);
    }
    if (typeof init[Symbol.iterator] === "function") {
      return Array.from(init, (pair) => {
        const both = [...pair];
        if (both.length !== 2) throw new TypeError("a pair of a query has a name and a value");
        return both.map(usv);
      });
    }
    const named = new Map();
    for (const name of Reflect.ownKeys(init)) {
      if (Object.getOwnPropertyDescriptor(init, name)?.enumerable) named.set(usv(name), usv(init[name]));
    }
    return [...named];
  }
  static of(url, query) {
    const params = new URLSearchParams(query);
    params.#url = url;
    return params;
  }
  static refill(params, query) { params.#pairs.list = native.parseForm(query); }
  #changed() {
    if (this.#url !== null) updateUrl(this.#url, this.toString());
  }
  get size() { return this.#pairs.list.length; }
  append(name, value) {
    if (arguments.length < 2) throw new TypeError("append takes a name and a value");
    this.#pairs.append(usv(name), usv(value));
    this.#changed();
  }
  delete(name, value) {
    this.#pairs.delete(usv(name), value === undefined ? undefined : usv(value));
    this.#changed();
  }
  get(name) { return this.#pairs.get(usv(name)) ?? null; }
  getAll(name) { return this.#pairs.getAll(usv(name)); }
  has(name, value) { return this.#pairs.has(usv(name), value === undefined ? undefined : usv(value)); }
  set(name, value) {
    if (arguments.length < 2) throw new TypeError("set takes a name and a value");
    this.#pairs.set(usv(name), usv(value));
    this.#changed();
  }
  sort() {
    this.#pairs.list.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
    this.#changed();
  }
  forEach(run, self) { forEachOf(this, run, self); }
  entries() { return this.#pairs.entries(); }
  keys() { return this.#pairs.keys(); }
  values() { return this.#pairs.values(); }
  toString() { return native.serialiseForm(this.#pairs.list); }
}
URLSearchParams.prototype[Symbol.iterator] = URLSearchParams.prototype.entries;
const { of: paramsFor, refill } = URLSearchParams;
delete URLSearchParams.of;
delete URLSearchParams.refill;

class URL {
  #parts;
  #params = null;
  constructor(url, base) {
    if (arguments.length === 0) throw new TypeError("a URL is made of a text");
    const parts = native.url(usv(url), base === undefined ? undefined : usv(base));
    if (parts === undefined) {
      throw new TypeError(`${JSON.stringify(String(url))} is no URL` + (base === undefined ? "" : ` from ${JSON.stringify(String(base))}`));
    }
    this.#parts = parts;
  }
  static canParse(url, base) { return native.url(usv(url), base === undefined ? undefined : usv(base)) !== undefined; }
  static parse(url, base) {
    try {
      return new URL(url, base);
    } catch {
      return null;
    }
  }
  static parts() {
    updateUrl = (url, query) => { url.#parts = native.setUrl(url.#parts[HREF], SEARCH, query); };
  }
  #set(which, value) {
    const parts = native.setUrl(this.#parts[HREF], which, usv(value));
    if (parts === undefined) return;
    this.#parts = parts;
    if (this.#params !== null && (which === SEARCH || which === HREF)) refill(this.#params, parts[SEARCH].slice(1));
  }
  get href() { return this.#parts[HREF]; }
  set href(value) {
    const parts = native.url(usv(value));
    if (parts === undefined) throw new TypeError(`${JSON.stringify(String(value))} is no URL`);
    this.#parts = parts;
    if (this.#params !== null) refill(this.#params, parts[SEARCH].slice(1));
  }
  get origin() { return this.#parts[ORIGIN]; }
  get protocol() { return this.#parts[PROTOCOL]; }
  set protocol(value) { this.#set(PROTOCOL, value); }
  get username() { return this.#parts[USERNAME]; }
  set username(value) { this.#set(USERNAME, value); }
  get password() { return this.#parts[PASSWORD]; }
  set password(value) { this.#set(PASSWORD, value); }
  get host() { return this.#parts[HOST]; }
  set host(value) { this.#set(HOST, value); }
  get hostname() { return this.#parts[HOSTNAME]; }
  set hostname(value) { this.#set(HOSTNAME, value); }
  get port() { return this.#parts[PORT]; }
  set port(value) { this.#set(PORT, value); }
  get pathname() { return this.#parts[PATHNAME]; }
  set pathname(value) { this.#set(PATHNAME, value); }
  get search() { return this.#parts[SEARCH]; }
  set search(value) { this.#set(SEARCH, value); }
  get searchParams() { return (this.#params ??= paramsFor(this, this.#parts[SEARCH].slice(1))); }
  get hash() { return this.#parts[HASH]; }
  set hash(value) { this.#set(HASH, value); }
  toString() { return this.#parts[HREF]; }
  toJSON() { return this.#parts[HREF]; }
}
URL.parts();
delete URL.parts;
