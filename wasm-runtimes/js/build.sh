#!/usr/bin/env bash
#
# Builds ../js.wasm.zst from registry packages: wasm-runtimes/js/build.sh
#
# Rust as ../../tests/fixtures/rebuild.sh says (rustup's wasm32-wasip2, or Debian's packages); for
# QuickJS's C either WASI_SDK, a folder that has the WASI SDK, or Debian's clang-22, llvm-22,
# libclang-rt-22-dev-wasm32 and wasi-libc. The streams' library is npm's.

set -euo pipefail
cd "$(dirname "$0")"
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}/faasw-wasm-runtimes}
readonly QUICKJS=rquickjs-sys-0.14.0 STREAMS=web-streams-polyfill@4.3.0
readonly PATTERNS=urlpattern-polyfill@10.1.0
# Packages from which the modules of Node.js are made, and their bundler.
readonly NODE=(buffer@6.0.3 events@3.3.0 path-browserify@1.0.1 readable-stream@4.8.0
    string_decoder@1.3.0 unenv@2.0.0-rc.24)
readonly ESBUILD=esbuild@0.28.2
rm -rf vendor
mkdir -p vendor "$CARGO_TARGET_DIR"

# QuickJS's sources as they were released, but for the limit of its stack, and what lasts.
fetched=$(mktemp -d)
trap 'rm -rf "$fetched"' EXIT
mkdir "$fetched/src"
: >"$fetched/src/lib.rs"
cat >"$fetched/Cargo.toml" <<END
[package]
name = "fetched"
version = "0.0.0"
[dependencies]
${QUICKJS%-*} = "=${QUICKJS##*-}"
[workspace]
END
cargo vendor --quiet --manifest-path "$fetched/Cargo.toml" "$fetched/vendor" >/dev/null
mv "$fetched/vendor/${QUICKJS%-*}" vendor/
rm -f vendor/*/.cargo-checksum.json
./limit-stack.py "vendor/${QUICKJS%-*}/quickjs/quickjs.c"
./lasting.py "vendor/${QUICKJS%-*}/quickjs/quickjs.c"
./modules.py "vendor/${QUICKJS%-*}/quickjs/quickjs.c"
./speed.py "vendor/${QUICKJS%-*}/quickjs/quickjs.c"

npm pack --silent --pack-destination "$fetched" "$STREAMS" >/dev/null
tar -xzf "$fetched/${STREAMS/@/-}.tgz" -C "$fetched" package/dist/ponyfill.js
mv "$fetched/package/dist/ponyfill.js" vendor/web-streams.js
npm pack --silent --pack-destination "$fetched" "$PATTERNS" >/dev/null
tar -xzf "$fetched/${PATTERNS/@/-}.tgz" -C "$fetched" package/dist/urlpattern.cjs
mv "$fetched/package/dist/urlpattern.cjs" vendor/urlpattern.js

# Each module of `node/` becomes a file. Modules of Node.js that they use are left to the engine.
npm install --silent --no-audit --no-fund --no-save --prefix "$fetched/node" "${NODE[@]}" "$ESBUILD"
mkdir vendor/node
for module in node/*.js; do
    [[ $module != node/abort_controller.js ]] || continue
    NODE_PATH=$fetched/node/node_modules "$fetched/node/node_modules/.bin/esbuild" "$module" \
        --bundle --format=cjs --platform=node --target=es2023 \
        --minify-whitespace --minify-syntax --keep-names \
        --legal-comments=none --log-level=warning \
        --alias:safe-buffer=buffer --alias:abort-controller=./node/abort_controller.js \
        --outfile="vendor/$module"
done

if [[ -z ${WASI_SDK-} ]]; then
    export RQUICKJS_SYS_NO_WASI_SDK=1
    export CC_wasm32_wasip2=/usr/bin/clang-22 AR_wasm32_wasip2=/usr/bin/llvm-ar-22
    # The linker optimises C's files together, because it is of the compiler's release.
    export CFLAGS_wasm32_wasip2="-nostdlibinc -isystem /usr/include/wasm32-wasi -flto"
fi
# No path of this machine in its assertions.
export CFLAGS_wasm32_wasip2="${CFLAGS_wasm32_wasip2-} -ffile-prefix-map=$CARGO_TARGET_DIR=/build"
# What is built of C is kept for each crate's name and version, whatever is in it.
rm -rf "$CARGO_TARGET_DIR"/wasm32-wasip2/release/{build,.fingerprint}/"${QUICKJS%-*}"-*
../../tests/fixtures/rebuild.sh js-engine
zstd --quiet --force --ultra -22 "$CARGO_TARGET_DIR/js-engine.wasm" -o ../js.wasm.zst
chmod 644 ../js.wasm.zst
../built.sh JS "$CARGO_TARGET_DIR/js-engine.wasm"
ls -l "$CARGO_TARGET_DIR/js-engine.wasm" ../js.wasm.zst
