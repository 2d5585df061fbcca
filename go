#!/bin/sh
# The two commands a newcomer needs, and a short way to the third:
#   ./go               install what is missing, build, train the default network
#   ./go test          the same, then every test but the longest, which --long adds (hours: -LE hours leaves those out)
#   ./go COMMAND …     build if needed, then: ringgrad COMMAND …   (try ./go --help)
#   ./go --emulated COMMAND …   the same with CUDA devices, emulated on the CPU: RINGGRAD_CUDA_DEVICES of them (1)
#   ./go bench kernel …         by nvcc where there is a GPU, else emulated by kernels that count what they do
#   ./go book          write the annotated book, a site: build/site/index.html
#   ./go docs          the API reference by Doxygen, in build/docs/html
#   ./go packages      .deb and tarball for any x86-64, in build/package/packages
#   ./go clean         remove what was built
# GO_PRESET=cuda|debug|asan|tsan builds another preset; GO_NO_INSTALL=1 never touches apt. The truth about how things are
# built is in CMakePresets.json; this script only calls it.
set -eu
root=$(cd "$(dirname "$0")" && pwd)
preset=${GO_PRESET:-release}
build=$root/build/$preset
packages="g++ cmake ninja-build python3 libeigen3-dev catch2 libcli11-dev libfmt-dev nlohmann-json3-dev zlib1g-dev
  libssl-dev libcurl4-openssl-dev libpng-dev libjpeg-dev libwebp-dev libgif-dev libtiff-dev libboost-context-dev"

# The same for who has no apt: Fedora's and Arch's names.
packages_dnf="gcc-c++ cmake ninja-build python3 eigen3-devel catch-devel cli11-devel fmt-devel json-devel zlib-devel
  openssl-devel libcurl-devel libpng-devel libjpeg-turbo-devel libwebp-devel giflib-devel libtiff-devel boost-devel"
packages_pacman="gcc cmake ninja python eigen catch2 cli11 fmt nlohmann-json zlib openssl curl libpng libjpeg-turbo libwebp giflib libtiff
  boost"

say() { printf '%s\n' "$*" >&2; }

install_missing() {
  [ -z "${GO_NO_INSTALL:-}" ] || return 0
  if ! command -v dpkg-query >/dev/null 2>&1; then
    command -v cmake >/dev/null 2>&1 && command -v ninja >/dev/null 2>&1 && return 0
    if command -v dnf >/dev/null 2>&1; then say "go: no apt here; install what is missing: dnf install" $packages_dnf
    elif command -v pacman >/dev/null 2>&1; then say "go: no apt here; install what is missing: pacman -S --needed" $packages_pacman
    else say "go: neither apt, dnf nor pacman is here; install the equivalents of:" $packages
    fi
    exit 3
  fi
  missing=
  ours="(all|$(dpkg --print-architecture)) installed"  # who cross-compiles has some of another architecture, too
  for package in $packages; do
    dpkg-query -W -f='${Architecture} ${db:Status-Status}\n' "$package" 2>/dev/null | grep -Eqx "$ours" ||
      missing="$missing $package"
  done
  [ -n "$missing" ] || return 0
  if [ "$(id -u)" = 0 ]; then sudo=
  elif command -v sudo >/dev/null 2>&1 && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then sudo=sudo
  else
    say "go: these packages are missing, and installing them needs root:"
    say "  apt-get update && apt-get install$missing"
    say "Without root, unpack them below your home; CONTRIBUTING.md has the commands. Then: GO_NO_INSTALL=1 ./go"
    exit 3
  fi
  say "go: installing$missing"
  log=$root/build/apt.log
  mkdir -p "$root/build"
  install="env DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends"
  $sudo $install $missing >"$log" 2>&1 || { $sudo apt-get update >"$log" 2>&1 && $sudo $install $missing >>"$log" 2>&1; } || {
    grep -E '^(W|E|dpkg): ' "$log" | head -n 5 >&2 || true  # the first says why; without lists, apt then misses each package
    say "go: apt-get could not install$missing; the whole log is $log"
    exit 3
  }
}

jobs() {  # one per core, and per 1.5 GB of free memory
  cores=$(nproc)
  memory=$(awk '/MemAvailable/ { print int($2 / 1572864) }' /proc/meminfo)
  [ "$memory" -ge 1 ] || memory=1
  [ "$cores" -le "$memory" ] && echo "$cores" || echo "$memory"
}

progress() {  # what ninja has done, from when it takes more than a second: redrawn on a terminal, else every half minute
  begun=$(date +%s) said=
  while sleep 1 >/dev/null 2>&1; do
    steps=$(tail -c 8192 "$log" | sed -n 's/^\[\([0-9]*\)\/\([0-9]*\)\] .*/\1 of \2/p' | tail -n 1)
    seconds=$(($(date +%s) - begun))
    line="go: building ($preset, $1 jobs)${steps:+, $steps steps}, $seconds s"
    if [ -t 2 ] && [ "${TERM:-dumb}" != dumb ]; then printf '\r%s\033[K' "$line" >&2
    elif [ -z "$said" ] || [ $((seconds % 30)) = 0 ]; then say "$line"
    fi
    said=1
  done
}

build() {  # $@: further options of cmake --build
  log=$build/build.log
  mkdir -p "$build"
  [ -f "$build/build.ninja" ] || { say "go: configuring ($preset)"; cmake -S "$root" --preset "$preset" >"$log" 2>&1; } || {
    tail -n 30 "$log" >&2
    say "go: configuring failed; the whole log is $log"
    exit 3
  }
  : >"$log"
  progress "$(jobs)" & notice=$!
  ninja -C "$build" -j "$(jobs)" "$@" >"$log" 2>&1 && built=1 || built=
  kill "$notice" 2>/dev/null || true
  wait "$notice" 2>/dev/null || true
  if [ -t 2 ] && [ "${TERM:-dumb}" != dumb ]; then printf '\r\033[K' >&2; fi
  [ -n "$built" ] || {
    tail -n 30 "$log" >&2
    say "go: the build failed; the whole log is $log"
    exit 3
  }
}

program=ringgrad
if [ "${1:-}" = --emulated ]; then
  shift
  program=ringgrad_emulated
  export RINGGRAD_CUDA_DEVICES="${RINGGRAD_CUDA_DEVICES:-1}"
fi
if [ "${1:-} ${2:-}" = "bench kernel" ] && [ "$preset" != cuda ]; then
  if [ -e /dev/nvidiactl ] && command -v nvcc >/dev/null 2>&1; then
    preset=cuda build=$root/build/cuda
  else
    program=ringgrad_counted
    export RINGGRAD_CUDA_DEVICES="${RINGGRAD_CUDA_DEVICES:-1}"
  fi
fi
case "${1:-}" in
  book)
    packages="$packages python3-clang python3-markdown python3-pygments"
    install_missing
    build ringgrad_program ringgrad_book_program
    exec python3 "$root/book/site.py" "$build" "$root/build/site"
    ;;
  clean)
    rm -rf "$root/build"
    ;;
  test)
    shift
    install_missing
    skip="-LE long" targets=all
    if [ "${1:-}" = --long ]; then shift; skip= targets="all long_tests"; fi
    if [ "$*" = "-L quick" ]; then targets=quick_tests; fi
    build $targets
    # One more than there are cores: many tests wait, for a peer or a deadline.
    cd "$build" && exec ctest --output-on-failure -j "$(($(jobs) + 1))" $skip "$@"
    ;;
  docs)
    packages="doxygen doxygen-awesome-css python3"
    install_missing
    mkdir -p "$root/build/docs"
    RINGGRAD_VERSION=$(sed -n 's/^project(ringgrad VERSION \([0-9.]*\).*/\1/p' "$root/CMakeLists.txt")
    RINGGRAD_DOXYGEN_STYLE=$(ls /usr/share/doxygen-awesome-css/doxygen-awesome.css 2>/dev/null || true)  # else Doxygen's own
    export RINGGRAD_VERSION RINGGRAD_DOXYGEN_STYLE
    cd "$root" && doxygen docs/Doxyfile && say "go: build/docs/html/index.html"
    ;;
  packages)
    install_missing
    preset=package build=$root/build/package
    [ -f "$build/build.ninja" ] || cmake -S "$root" --preset package -DRINGGRAD_TESTS=OFF >/dev/null
    build all
    (cd "$build" && cpack -G "DEB;TGZ" -B packages >cpack.log 2>&1) || { tail -n 30 "$build/cpack.log" >&2; exit 3; }
    rm -rf "$build/packages/_CPack_Packages"
    ls "$build"/packages/*.*
    ;;
  '')
    install_missing
    build ${program}_program
    exec env RINGGRAD_CALLED_AS="$0" "$build/$program" train
    ;;
  *)
    if [ ! -x "$build/$program" ]; then install_missing; fi
    build ${program}_program
    exec env RINGGRAD_CALLED_AS="$0" "$build/$program" "$@"
    ;;
esac
