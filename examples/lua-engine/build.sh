#!/usr/bin/env bash
#
# Builds lua-engine.wasm from registry packages: Lua's source of the crate lua-src, bindings
# by wit-bindgen-cli, the C compiler of PyPI's ziglang, and npm's jco, which makes the
# component. Takes a folder to work in, which may be used again.

set -euo pipefail
WORK=$(realpath -m "${1:?a folder to work in}")
OUT=$(realpath -m "${2:-$(dirname "$0")/../../tests/fixtures/lua-engine.wasm}")
readonly WORK OUT LUA=5.4.9
cd "$(dirname "$0")"
mkdir -p "$WORK"

[[ -d $WORK/lua ]] || {
    mkdir -p "$WORK/fetch/src"
    printf '[package]\nname = "fetch"\nversion = "0.0.0"\n[lib]\npath = "src/lib.rs"\n[dependencies]\nlua-src = "=551.1.0"\n[workspace]\n' >"$WORK/fetch/Cargo.toml"
    : >"$WORK/fetch/src/lib.rs"
    cargo vendor --quiet --manifest-path "$WORK/fetch/Cargo.toml" "$WORK/vendor" >/dev/null
    cp -r "$WORK/vendor/lua-src/lua-$LUA" "$WORK/lua"
}
[[ -x $WORK/bin/wit-bindgen ]] ||
    cargo install wit-bindgen-cli@0.63.0 --locked --no-default-features --features c --root "$WORK"
[[ -x $WORK/venv/bin/python ]] || {
    python3 -m venv "$WORK/venv"
    "$WORK/venv/bin/pip" install --quiet ziglang==0.17.0
}
[[ -d $WORK/node_modules/@bytecodealliance/jco ]] ||
    npm install --silent --prefix "$WORK" @bytecodealliance/jco@1.17.8

mkdir -p "$WORK/wit"
cp wit/world.wit "$WORK/wit/"
cp -r ../../guest-vm/runtime/wit/deps "$WORK/wit/"
"$WORK/bin/wit-bindgen" c "$WORK/wit" --world engine --out-dir "$WORK/bindings" >/dev/null

readonly CC=("$WORK/venv/bin/python" -m ziglang cc -target wasm32-wasi -O2 -g0)
# Lua's errors are longjmp, and that is exceptions of Wasm.
readonly SJLJ=(-mexception-handling -mllvm -wasm-enable-sjlj -mllvm -wasm-use-legacy-eh=false)
sources=()
for source in "$WORK"/lua/l*.c; do
    case ${source##*/} in
    lua.c | luac.c | liolib.c | linit.c) ;;
    *) sources+=("$source") ;;
    esac
done
"${CC[@]}" -mexec-model=reactor "${SJLJ[@]}" -I"$WORK/lua" -I"$WORK/bindings" \
    -include port.h \
    "${sources[@]}" engine.c "$WORK/bindings/engine.c" \
    "$WORK/bindings/engine_component_type.o" \
    -Wno-return-type -Wl,-z,stack-size=1048576 -Wl,--strip-all -o "$WORK/core.wasm"
"$WORK/node_modules/.bin/jco" new "$WORK/core.wasm" --wasi-reactor -o "$OUT" >/dev/null
