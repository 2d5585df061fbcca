#!/bin/sh
# The all-reduce of the MPI library that mpicc and mpirun belong to, between ranks of this host.
#   allreduce_mpi.sh [RANKS [SECONDS PER SIZE [BYTES…]]]
set -eu
ranks=${1:-2} seconds=${2:-1}
[ $# -gt 2 ] && shift 2 || set -- 1024 65536 1048576 4194304 26214400 67108864
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
mpicc -O3 -march=native "$(dirname "$0")/allreduce_mpi.c" -o "$directory/allreduce"
[ "$(id -u)" = 0 ] && export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
mpirun --oversubscribe -n "$ranks" "$directory/allreduce" "$seconds" 10 "$@"
