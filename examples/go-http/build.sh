#!/usr/bin/env bash
# Builds go-http.wasm. Usage:
#
#   build.sh ADAPTER [OUTPUT]
#
# ADAPTER is `wasi_snapshot_preview1.reactor.wasm` of Wasmtime 48 or later: a
# file of each of its releases, also in the crate
# `wasi-preview1-component-adapter-provider`.
#
# Needs Go 1.26, `wit-bindgen` (cargo install wit-bindgen-cli@0.63.0), and
# Node.js, from whose packages jco is run.
#
# GO_PKG may name a folder with the Go module go.bytecodealliance.org/pkg, which
# is downloaded otherwise. The crate wit-bindgen-go has it in src/pkg.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
adapter=$(realpath "${1:?"usage: build.sh ADAPTER [OUTPUT]"}")
output=$(realpath "${2:-$here/go-http.wasm}")
build=$(mktemp -d)
trap 'rm -rf "$build"' EXIT
cd "$build"

jco() { npx --yes @bytecodealliance/jco@1.17.8 "$@"; }

mkdir wit
cp "$here/world.wit" wit/
cp -r "$here/../../guest-vm/runtime/wit/deps" wit/deps

# Writes main and a package for each interface; the handler's is ours to write.
wit-bindgen go wit
mkdir export_wasi_http_incoming_handler
cp "$here/handler.go" export_wasi_http_incoming_handler/

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
jco new typed.wasm --adapt "wasi_snapshot_preview1=$adapter" -o go-http.wasm
install -m 644 go-http.wasm "$output"
