// node:fs: the script's own files, which can only be read, and the function's folders.
const { Buffer } = require("node:buffer");
const { native } = host;
const names = { ENOENT: "no such file or directory", EISDIR: "illegal operation on a directory", ENOTDIR: "not a directory", EROFS: "read-only file system", EEXIST: "file already exists" };
const errors = { ENOENT: -2, EEXIST: -17, ENOTDIR: -20, EISDIR: -21, EROFS: -30 };
const fail = (code, call, path) => { throw Object.assign(new Error(`${code}: ${names[code]}, ${call} '${path}'`), { code, errno: errors[code], syscall: call, path }); };

function nameOf(path) {
  if (path instanceof URL) path = require("node:url").fileURLToPath(path);
  else if (ArrayBuffer.isView(path)) path = Buffer.from(path).toString();
  if (typeof path !== "string") throw Object.assign(new TypeError('The "path" argument must be of type string or an instance of Buffer or URL'), { code: "ERR_INVALID_ARG_TYPE" });
  return require("node:path").resolve("/", path);
}
const encodingOf = (options) => (typeof options === "string" ? options : options?.encoding);

class Stats {
  #isFolder;
  constructor(isFolder, size) {
    this.#isFolder = isFolder;
    const epoch = new Date(0);
    Object.assign(this, {
      size, mode: isFolder ? 0o40555 : 0o100444, uid: 0, gid: 0, dev: 0, ino: 0, nlink: 1, rdev: 0, blksize: 4096, blocks: Math.ceil(size / 512),
      atimeMs: 0, mtimeMs: 0, ctimeMs: 0, birthtimeMs: 0, atime: epoch, mtime: epoch, ctime: epoch, birthtime: epoch,
    });
  }
  isFile() { return !this.#isFolder; }
  isDirectory() { return this.#isFolder; }
  isSymbolicLink() { return false; }
  isBlockDevice() { return false; }
  isCharacterDevice() { return false; }
  isFIFO() { return false; }
  isSocket() { return false; }
}
class Dirent extends Stats {
  constructor(name, folder, isFolder) {
    super(isFolder, 0);
    for (const key of Object.keys(this)) delete this[key];
    Object.assign(this, { name, parentPath: folder, path: folder });
  }
}

const inside = (path) => path.slice(1);
// The function's folders: /tmp, and those of `--files`.
const kindIn = (name) => native.fileStat?.(name)?.[0];
function readFileSync(path, options) {
  const name = nameOf(path);
  const bytes = native.readFile(inside(name)) ?? (kindIn(name) === "file" ? native.fileContent(name) : undefined);
  if (bytes === undefined) fail(native.listFolder(inside(name)) === undefined && kindIn(name) === undefined ? "ENOENT" : "EISDIR", "open", name);
  const encoding = encodingOf(options);
  const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return encoding && encoding !== "buffer" ? buffer.toString(encoding) : buffer;
}
function statSync(path, options) {
  const name = nameOf(path);
  const bytes = native.readFile(inside(name));
  if (bytes !== undefined) return new Stats(false, bytes.length);
  if (native.listFolder(inside(name)) !== undefined) return new Stats(true, 0);
  const found = native.fileStat?.(name);
  if (found !== undefined) return new Stats(found[0] === "folder", found[1]);
  return options?.throwIfNoEntry === false ? undefined : fail("ENOENT", "stat", name);
}
function existsSync(path) {
  try {
    return statSync(path, { throwIfNoEntry: false }) !== undefined;
  } catch {
    return false;
  }
}
function readdirSync(path, options) {
  const folder = nameOf(path);
  const entriesOf = (path) => native.listFolder(inside(path)) ?? (kindIn(path) === "folder" ? native.fileList(path).map(([name, kind]) => [name, kind === "folder"]) : undefined);
  const entries = entriesOf(folder) ?? fail(existsSync(folder) ? "ENOTDIR" : "ENOENT", "scandir", folder);
  const all = [];
  const add = (entries, folder, prefix) => {
    for (const [name, isFolder] of entries) {
      all.push(options?.withFileTypes ? new Dirent(name, folder, isFolder) : prefix + name);
      const below = (folder === "/" ? "" : folder) + "/" + name;
      if (isFolder && options?.recursive) add(entriesOf(below), below, `${prefix}${name}/`);
    }
  };
  add(entries, folder, "");
  return all;
}
function accessSync(path, mode = 0) {
  if (!existsSync(path)) fail("ENOENT", "access", nameOf(path));
  if (mode & 2 && !isWritable(nameOf(path))) fail("EROFS", "access", nameOf(path));
}
function realpathSync(path) {
  const name = nameOf(path);
  return existsSync(name) ? name : fail("ENOENT", "realpath", name);
}

// Only /tmp can be written to. Folders in it are made with the files that are written.
const isWritable = (name) => native.fileWrite !== undefined && (name === "/tmp" || name.startsWith("/tmp/"));
function writable(path, call) {
  const name = nameOf(path);
  return isWritable(name) ? name : fail("EROFS", call, name);
}
const dataOf = (data, options) => (typeof data === "string" ? Buffer.from(data, encodingOf(options)) : new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
function writeFileSync(path, data, options) {
  const name = writable(path, "open");
  if (options?.flag?.startsWith("a")) return appendFileSync(path, data, options);
  native.fileWrite(name, dataOf(data, options));
}
function appendFileSync(path, data, options) {
  const name = writable(path, "open");
  const before = kindIn(name) === "file" ? native.fileContent(name) : new Uint8Array();
  native.fileWrite(name, Buffer.concat([before, dataOf(data, options)]));
}
function rmSync(path, options) {
  const name = writable(path, "rm");
  const kind = kindIn(name);
  if (kind === undefined) return options?.force ? undefined : fail("ENOENT", "rm", name);
  if (kind === "folder") for (const one of options?.recursive ? readdirSync(name) : []) rmSync(`${name}/${one}`, options);
  native.fileDelete(name);
}
function copyFileSync(from, to) { writeFileSync(to, readFileSync(from)); }
function renameSync(from, to) {
  writable(from, "rename");
  copyFileSync(from, to);
  rmSync(from);
}
let folders = 0;

const sync = {
  writeFileSync, appendFileSync, rmSync, unlinkSync: rmSync, rmdirSync: rmSync, copyFileSync, renameSync,
  mkdirSync: (path) => void writable(path, "mkdir"),
  mkdtempSync: (prefix) => writable(`${prefix}${String(++folders).padStart(6, "0")}`, "mkdtemp"),
  readFileSync, statSync, lstatSync: statSync, existsSync, readdirSync, accessSync, realpathSync };
for (const name of [
  "cp", "truncate", "symlink", "link", "chmod",
  "chown", "utimes",
]) {
  sync[`${name}Sync`] = (path) => fail("EROFS", name, path);
}
for (const name of ["open", "read", "write", "close", "fstat", "readlink", "opendir"]) {
  sync[`${name}Sync`] = () => { throw new Error(`fs.${name} is not supported here: use fs.readFile`); };
}
realpathSync.native = realpathSync;

const promises = { constants: { F_OK: 0, R_OK: 4, W_OK: 2, X_OK: 1 } };
const callbacks = {};
for (const [syncName, run] of Object.entries(sync)) {
  const name = syncName.slice(0, -4);
  if (name !== "exists") promises[name] = async (...values) => run(...values);
  callbacks[name] = (...values) => {
    const done = values.pop();
    let outcome;
    try {
      outcome = [null, run(...values)];
    } catch (error) {
      outcome = [error];
    }
    setTimeout(() => (name === "exists" ? done(outcome[1]) : done(...outcome)), 0);
  };
}
function createReadStream(path, options) {
  const { Readable } = require("node:stream");
  const { start = 0, end = Infinity } = typeof options === "object" && options !== null ? options : {};
  let isRead = false;
  const stream = new Readable({
    read() {
      if (isRead) return;
      isRead = true;
      try {
        const bytes = readFileSync(path).subarray(start, end + 1);
        for (let at = 0; at < bytes.length; at += 65536) this.push(bytes.subarray(at, at + 65536));
        this.push(null);
      } catch (error) {
        this.destroy(error);
      }
    },
  });
  const encoding = encodingOf(options);
  return encoding ? stream.setEncoding(encoding) : stream;
}
function createWriteStream(path, options) {
  const { Writable } = require("node:stream");
  writable(path, "open");
  const parts = [];
  return new Writable({
    write(chunk, encoding, done) {
      parts.push(chunk);
      done();
    },
    final(done) {
      try {
        writeFileSync(path, Buffer.concat(parts), options);
        done();
      } catch (error) {
        done(error);
      }
    },
  });
}
module.exports = {
  ...callbacks, ...sync, promises, constants: promises.constants, Stats, Dirent, createReadStream,
  createWriteStream,
  watch() { throw new Error("fs.watch is not supported here: the files of a script do not change"); },
  watchFile() {}, unwatchFile() {},
  F_OK: 0, R_OK: 4, W_OK: 2, X_OK: 1,
};
