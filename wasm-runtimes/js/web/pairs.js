// Names with values in their order, as queries and forms have them.

class Pairs {
  constructor(list) { this.list = list; }
  get(name) { return this.list.find((pair) => pair[0] === name)?.[1]; }
  getAll(name) { return this.list.filter((pair) => pair[0] === name).map((pair) => pair[1]); }
  has(name, value) { return this.list.some((pair) => pair[0] === name && (value === undefined || pair[1] === value)); }
  append(name, value) { this.list.push([name, value]); }
  delete(name, value) { this.list = this.list.filter((pair) => pair[0] !== name || (value !== undefined && pair[1] !== value)); }
  // In place of the first of that name; the others go.
  set(name, value) {
    const first = this.list.find((pair) => pair[0] === name);
    if (first === undefined) return this.append(name, value);
    first[1] = value;
    this.list = this.list.filter((pair) => pair === first || pair[0] !== name);
  }
  // Lists may change while somebody goes through them.
  *entries() { for (let at = 0; at < this.list.length; at++) yield [...this.list[at]]; }
  *keys() { for (const [name] of this.entries()) yield name; }
  *values() { for (const [, value] of this.entries()) yield value; }
}

// What is to be called for each of something's values.
function forEachOf(pairs, run, self) {
  if (typeof run !== "function") throw new TypeError("forEach takes a function");
  for (const [name, value] of pairs) run.call(self, value, name, pairs);
}
