// The function's files, and the server of static files among them.

function pathOf(path) {
  if (typeof path !== "string") throw new TypeError(`the path of a file is a string, not ${inspect(path, 0)}`);
  return path.toWellFormed();
}

const files = {
  async read(path) { return native.fileContent(pathOf(path)); },
  async text(path) { return native.decode(native.fileContent(pathOf(path)), "utf-8", false, false); },
  async list(path) { return native.fileList(pathOf(path)).map(([name, kind]) => ({ name, kind })); },
  async exists(path) { return native.fileStat(pathOf(path)) !== undefined; },
  async write(path, content) {
    path = pathOf(path);
    if (content instanceof ReadableStream) content = await drained(content);
    native.fileWrite(path, typeof content === "string" ? native.encode(content.toWellFormed()) : bytesOf(content));
  },
  async delete(path) { native.fileDelete(pathOf(path)); },
};

const CONTENT_TYPES = {
  avif: "image/avif", bmp: "image/bmp", css: "text/css;charset=utf-8", csv: "text/csv;charset=utf-8", gif: "image/gif",
  gz: "application/gzip", htm: "text/html;charset=utf-8", html: "text/html;charset=utf-8", ico: "image/x-icon",
  jpeg: "image/jpeg", jpg: "image/jpeg", js: "text/javascript;charset=utf-8", json: "application/json",
  map: "application/json", md: "text/markdown;charset=utf-8", mjs: "text/javascript;charset=utf-8", mp3: "audio/mpeg",
  mp4: "video/mp4", oga: "audio/ogg", ogg: "audio/ogg", otf: "font/otf", pdf: "application/pdf", png: "image/png",
  svg: "image/svg+xml", ttf: "font/ttf", txt: "text/plain;charset=utf-8", wasm: "application/wasm", wav: "audio/wav",
  weba: "audio/webm", webm: "video/webm", webmanifest: "application/manifest+json", webp: "image/webp",
  woff: "font/woff", woff2: "font/woff2", xhtml: "application/xhtml+xml", xml: "text/xml;charset=utf-8",
  zip: "application/zip",
};

// Files up to this size, in bytes, are read at once; larger ones are streamed.
const SMALL_FILE = 256 << 10;

function fileStream(path) {
  let offset = 0;
  return new ReadableStream({
    type: "bytes",
    pull(controller) {
      const piece = native.filePiece(path, offset);
      offset += piece.length;
      if (piece.length > 0) return controller.enqueue(piece);
      controller.close();
      controller.byobRequest?.respond(0);
    },
  }, { highWaterMark: 0 });
}

// The names that a URL's path has; undefined where a file can have no such name.
function namesOf(pathname) {
  try {
    const names = pathname.split("/").slice(1).map(decodeURIComponent);
    return names.some((name) => name === ".." || name === "." || /[/\0]/.test(name)) ? undefined : names;
  } catch {
    return undefined;
  }
}

function isTagAmong(tag, field) {
  return field.trim() === "*" || field.split(",").some((one) => one.trim().replace(/^W\//, "") === tag);
}

class Assets {
  #folder;
  constructor(token, folder) {
    if (token !== inner) throw new TypeError("files are served by env.ASSETS");
    this.#folder = folder.replace(/\/$/, "");
  }
  async fetch(input, init = undefined) {
    // An absolute path is enough: all hosts have the same files.
    if (typeof input === "string" && input.startsWith("/")) input = "http://assets" + input;
    const request = input instanceof Request && init === undefined ? input : new Request(input, init);
    if (request.method !== "GET" && request.method !== "HEAD") {
      return new Response("405 Method Not Allowed\n", { status: 405, headers: { allow: "GET, HEAD" } });
    }
    const url = new URL(request.url);
    const names = namesOf(url.pathname);
    const found = names === undefined ? undefined : this.#find(names);
    if (found === undefined) return new Response(request.method === "HEAD" ? null : "404 Not Found\n", { status: 404 });
    if (found.moved !== undefined) {
      // Relative, because the client's URL may have a prefix that the request's has not.
      return new Response(null, { status: 307, headers: { location: found.moved + url.search } });
    }
    const headers = { etag: native.fileTag(found.path), "cache-control": "public, max-age=0, must-revalidate" };
    const wanted = request.headers.get("if-none-match");
    if (wanted !== null && isTagAmong(headers.etag, wanted)) return new Response(null, { status: 304, headers });
    const extension = /\.([^.]+)$/.exec(found.path)?.[1].toLowerCase();
    headers["content-type"] = Object.hasOwn(CONTENT_TYPES, extension ?? "") ? CONTENT_TYPES[extension] : "application/octet-stream";
    headers["content-length"] = String(found.size);
    if (request.method === "HEAD") return new Response(null, { headers });
    return new Response(found.size <= SMALL_FILE ? native.fileContent(found.path) : fileStream(found.path), { headers });
  }
  // A folder's file is its index.html, and its URL ends in a slash.
  #find(names) {
    const isFolder = names.at(-1) === "";
    const inside = names.filter((name) => name !== "");
    // /tmp has the request's own files, which are not served.
    if (this.#folder === "" && inside[0] === "tmp") return undefined;
    let path = [this.#folder, ...inside].join("/");
    if (isFolder) path += "/index.html";
    const stat = native.fileStat(path === "" ? "/" : path);
    if (stat === undefined) return undefined;
    const [kind, size] = stat;
    if (kind === "file") return { path, size };
    if (kind !== "folder" || isFolder || native.fileStat(path + "/index.html")?.[0] !== "file") return undefined;
    return { moved: `./${encodeURIComponent(names.at(-1))}/` };
  }
}
Object.defineProperty(Assets.prototype, Symbol.toStringTag, { value: "Assets", configurable: true });
