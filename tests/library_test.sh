#!/bin/sh
# Builds tests/library against an installed ringgrad, and runs it: library_test.sh BUILD_DIR SOURCE_DIR.
# With RINGGRAD_LONG_TESTS set, against the source tree by add_subdirectory too (which compiles everything again).
set -eu
build=$1 source=$2
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
cmake --install "$build" --prefix "$scratch/prefix" >"$scratch/log" 2>&1 || { cat "$scratch/log"; exit 1; }
cmake -S "$source/tests/library" -B "$scratch/outside" -G Ninja -DCMAKE_BUILD_TYPE=Release \
  -DCMAKE_PREFIX_PATH="$scratch/prefix" >"$scratch/log" 2>&1 || { cat "$scratch/log"; exit 1; }
cmake --build "$scratch/outside" >"$scratch/log" 2>&1 || { cat "$scratch/log"; exit 1; }
"$scratch/outside/outside"
