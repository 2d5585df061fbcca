#!/bin/sh
# Builds the outside programs in tests/library in one of the two ways that README names, or against the Debian packages,
# and runs them: library_test.sh BUILD_DIR SOURCE_DIR installed|packages|subdirectory
set -eu
build=$1 source=$2 way=$3
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

quietly() { "$@" >"$scratch/log" 2>&1 || { tail -n 40 "$scratch/log"; exit 1; }; }
outside() {  # NAME CMAKE_OPTION…
  name=$1
  shift
  quietly cmake -S "$source/tests/library" -B "$scratch/$name" -G Ninja "$@"
  quietly cmake --build "$scratch/$name"
  "$scratch/$name/outside"
}
trains() {  # COMMAND…: two ranks, whose loss falls and who end with the same weights
  (cd "$scratch" && "$@") >"$scratch/output"
  awk '/loss/ { loss[epochs++] = $NF } /weights/ { ranks++; if (!seen[$NF]++) different++ }
       END { exit !(epochs == 2 && loss[1] < loss[0] && ranks == 2 && different == 1) }' "$scratch/output" ||
    { echo "$*: expected two losses that fall, and the same weights on two ranks"; cat "$scratch/output"; exit 1; }
}

prefix=$scratch/prefix
case $way in
  installed) quietly cmake --install "$build" --prefix "$prefix" ;;
  packages)
    prefix=$scratch/root/usr
    quietly cpack --config "$build/CPackConfig.cmake" -G DEB -B "$scratch/packages"
    for package in "$scratch"/packages/*.deb; do quietly dpkg -x "$package" "$scratch/root"; done
    ;;
esac
if [ -d "$prefix" ]; then
  outside installed -DCMAKE_BUILD_TYPE=Release -DCMAKE_PREFIX_PATH="$prefix"
  trains "$scratch/installed/ddp"
  ! ldd "$scratch/installed/ddp" | grep curl || { echo "the library brings libcurl along"; exit 1; }
  for page in from_libtorch from_lightning from_keras; do  # the programs of docs/
    quietly sh -c 'cd "$1" && "installed/$2" digits 1 && grep -aq __metadata__ ./*.safetensors && rm ./*.safetensors' - "$scratch" $page
  done
  # Compiles without CMake. pkgconf takes no prefix with another root, so the flags are from where the file lies.
  PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name ringgrad.pc)")
  export PKG_CONFIG_PATH
  if command -v pkg-config >/dev/null 2>&1; then
    # shellcheck disable=SC2046
    quietly c++ -std=c++20 "$source/tests/library/ddp.cpp" -o "$scratch/by_hand" $(pkg-config --cflags --libs ringgrad)
    trains "$scratch/by_hand"
  else
    echo "left out: pkg-config is not installed"
  fi
  for file in man/man1/ringgrad-bench-ddp.1 bash-completion/completions/ringgrad zsh/site-functions/_ringgrad fish/vendor_completions.d/ringgrad.fish; do
    test -s "$prefix/share/$file" || { echo "$file is not installed"; exit 1; }
  done
  trains "$prefix/bin/ringgrad" launch -n 2 -- "$scratch/installed/ddp"
  quietly "$prefix/bin/ringgrad" learn check 1 --file "$source/distributed/other_collectives/ring_reduce_scatter.cpp"
  quietly "$prefix/bin/ringgrad" learn check 5 --file "$source/autograd/ops/linear.cpp"
else  # everything is compiled again, as quickly as can be; this is also the build for any x86-64 processor
  outside subdirectory -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG=-O0 -DRINGGRAD_SOURCE="$source" \
    -DRINGGRAD_ISAS=v2 -DRINGGRAD_CUDA=off -DRINGGRAD_ONEDNN=OFF
fi
