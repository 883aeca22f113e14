#!/usr/bin/env bash
# Builds js-http.wasm. Usage:
#
#   build.sh [OUTPUT]
#
# Needs Node.js 20 or later; componentize-js is run from its package.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
output=$(realpath "${1:-$here/js-http.wasm}")
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT

# The engine in componentize-js 0.23 knows WASI 0.2.10 and no other. For HTTP
# its texts differ from those of 0.2.12 by nothing but this number.
cp -r "$here/../../guest-vm/runtime/wit/deps" "$build/deps"
sed -i 's/0\.2\.12/0.2.10/g' "$build"/deps/*.wit
cp "$here/world.wit" "$build/"

npx --yes @bytecodealliance/componentize-js@0.23.0 "$here/handler.js" \
  --wit "$build" --world-name function -o "$output"
