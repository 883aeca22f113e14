#!/usr/bin/env bash
# Builds the counter in a language that needs more than one command. Usage:
#
#   build.sh js OUTPUT
#   build.sh go OUTPUT ADAPTER
#
# js: needs Node.js 20 or later; componentize-js is run from its package.
# go: needs what ../go-http/build.sh needs, and says of ADAPTER and GO_PKG.
set -euo pipefail

usage() { sed -n '2,9s/^# \{0,1\}//p' "$0" >&2; exit 2; }

here=$(cd "$(dirname "$0")" && pwd)
[ $# -ge 2 ] || usage
output=$(realpath "$2")
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT

# The texts of the interfaces: WASI's, and what this example has besides.
mkdir "$build/wit"
cp -r "$here/../../guest-vm/runtime/wit/deps" "$build/wit/deps"
cp "$here"/wit/deps/*.wit "$build/wit/deps/"
cp "$here/wit/world.wit" "$build/wit/"

case $1 in
  js)
    # The engine in componentize-js 0.23 knows WASI 0.2.10 and no other. For HTTP
    # its texts differ from those of 0.2.12 by nothing but this number.
    sed -i 's/0\.2\.12/0.2.10/g' "$build"/wit/deps/*.wit "$build/wit/world.wit"
    npx --yes @bytecodealliance/componentize-js@0.23.0 "$here/js/counter.js" \
      --wit "$build/wit" --world-name counter -o "$output"
    ;;
  go)
    adapter=$(realpath "${3:?"usage: build.sh go OUTPUT ADAPTER"}")
    jco() { npx --yes @bytecodealliance/jco@1.17.8 "$@"; }
    cd "$build"
    # Writes main and a package for each interface; the handler's is ours to write.
    wit-bindgen go wit
    mkdir export_wasi_http_incoming_handler
    cp "$here/go/counter.go" export_wasi_http_incoming_handler/
    if [ -n "${GO_PKG:-}" ]; then
      cp -r "$GO_PKG" pkg
      chmod -R u+w pkg
      # Its go.mod may name a newer Go than it needs.
      go mod edit -go=1.25 pkg/go.mod
      go mod edit -replace go.bytecodealliance.org/pkg=./pkg
    else
      go mod tidy
    fi
    # A reactor: a module that is initialised once and then called.
    GOOS=wasip1 GOARCH=wasm go build -trimpath -buildmode=c-shared \
      -ldflags='-s -w -checklinkname=0' -o core.wasm
    # Says what the module's functions mean, then makes it a component.
    jco embed core.wasm --wit wit -o typed.wasm
    jco new typed.wasm --adapt "wasi_snapshot_preview1=$adapter" -o go.wasm
    install -m 644 go.wasm "$output"
    ;;
  *) usage ;;
esac
