#!/usr/bin/env bash
#
# Builds ../python.wasm.zst from PyPI's componentize-py: wasm-runtimes/python/build.sh
#
# It takes Python 3.10 or later with venv, and zstd.

set -euo pipefail
cd "$(dirname "$0")"
readonly COMPONENTIZE=componentize-py==0.25.1

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet "$COMPONENTIZE"
cp -r engine "$work/engine"
cp -rL wit "$work/wit"
componentize() {
    # It looks for packages in the environment that this names; there are none.
    (cd "$work" && VIRTUAL_ENV=$work/venv "$work/venv/bin/componentize-py" -d wit -w engine \
        componentize -p engine "$1" -o "$1.wasm")
}

# Writes the library's code, and is no component then.
componentize compile_library >"$work/log" 2>&1 || true
if [[ ! -s $work/engine/_faasw/library.index ]]; then
    cat "$work/log" >&2
    exit 1
fi
rm -r "$work/engine/compile_library.py" "$work/engine/library"
componentize faasw_engine
./freeze.py "$work/faasw_engine.wasm"
zstd --quiet --force --ultra -22 "$work/faasw_engine.wasm" -o ../python.wasm.zst
chmod 644 ../python.wasm.zst
../built.sh PYTHON "$work/faasw_engine.wasm"
ls -l "$work/faasw_engine.wasm" ../python.wasm.zst
