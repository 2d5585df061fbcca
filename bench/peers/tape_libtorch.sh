#!/bin/sh
# Builds tape_libtorch.cpp against the libtorch inside a Python's torch package, and runs it.
#   tape_libtorch.sh [PYTHON]      PYTHON defaults to python3; it must be able to import torch
set -eu
python=${1:-python3}
here=$(dirname "$0")
torch=$("$python" -c 'import os, torch; print(os.path.dirname(torch.__file__))')
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
g++ -std=c++20 -O2 -w -isystem "$torch/include" -isystem "$torch/include/torch/csrc/api/include" \
  "$here/tape_libtorch.cpp" -o "$directory/tape" \
  -L"$torch/lib" -Wl,-rpath,"$torch/lib" -Wl,--no-as-needed -ltorch -ltorch_cpu -lc10
OMP_NUM_THREADS=1 "$directory/tape"
