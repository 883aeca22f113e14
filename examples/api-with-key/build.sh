#!/usr/bin/env bash
# Builds the function in a language that needs more than one command. Usage:
#
#   build.sh js OUTPUT
#   build.sh python OUTPUT
#
# js: needs Node.js 20 or later; componentize-js is run from its package.
# python: needs componentize-py (pip install componentize-py==0.25.1), or a
# command in its place that COMPONENTIZE_PY names.
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
    npx --yes @bytecodealliance/componentize-js@0.23.0 "$here/js/api.js" \
      --wit "$build/wit" --world-name api-with-key -o "$output"
    ;;
  python)
    # A copy, so that what Python leaves beside the source is gone with it.
    cp "$here/python/app.py" "$build/"
    cd "$build"
    "${COMPONENTIZE_PY:-componentize-py}" -d wit -w api-with-key componentize app -o "$output"
    ;;
  *) usage ;;
esac
