// node:path, and node:path/posix. Paths of scripts are always POSIX paths.
const path = require("path-browserify");
path.posix = path;
path.win32 = path;
path.toNamespacedPath = (name) => name;
path.matchesGlob = undefined;
delete path.matchesGlob;
module.exports = path;
