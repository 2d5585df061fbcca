#!/bin/sh
# Everything that only a GPU can say, in the order of importance, within 25 minutes.
#
#   bench/on_gpu.sh BUILD OUT [MINUTES]   BUILD: cmake --preset cuda -DRINGGRAD_BENCH=ON && cmake --build --preset cuda
#
# The build needs no GPU and may be made elsewhere, then with -DRINGGRAD_ISAS="v2;v3;v4;v4_bf16", too: of it ringgrad, cuda_ladders
# and tests/cuda_test are needed (stripped and compressed about 7 MB each; they hold every kernel), and of the sources
# bench/ and tests/golden/. CUDA's libraries may also lie where pip puts them for PYTHON. Each part writes OUT/NAME.log
# and, when it has passed, OUT/NAME.done; called again with the same OUT, the script goes on with the parts that are not
# done. OUT/all.tgz holds the logs. RINGGRAD_DATA_DIR: MNIST and CIFAR-10, where there are any. PYTHON: one with PyTorch,
# for comparison (python3). At the end gpu_tables.py makes bench/results/gpu_*.json of OUT; it can do so anywhere else,
# too. RINGGRAD_COMMIT: what was built, where bench/ lies without its history.
# Exit status: 3 without a GPU, else the number of parts that failed. Not yet run on a GPU.
set -u
# Two ranks on one GPU. NCCL refuses that unless they seem to be on two machines, or since 2.30 when it is told to.
if [ "${1:-}" = --nccl ]; then
  rm -rf "two-ranks-$3"
  for rank in 0 1; do
    env RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29557 \
      CUDA_VISIBLE_DEVICES=0 NCCL_HOSTID=machine$rank NCCL_NET=Socket NCCL_SOCKET_IFNAME=lo NCCL_P2P_DISABLE=1 \
      NCCL_SHM_DISABLE=1 NCCL_IB_DISABLE=1 NCCL_MNNVL_ENABLE=0 NCCL_NVLS_ENABLE=0 NCCL_MAX_CTAS=2 NCCL_ALGO=Ring \
      NCCL_PROTO=Simple NCCL_RAS_ENABLE=0 NCCL_NET_PLUGIN=none NCCL_MULTI_RANK_GPU_ENABLE=1 \
      "$2/ringgrad" train --parallel ddp --device cuda --backend "$3" --epochs 1 --max-steps 50 --out "two-ranks-$3" \
      >"rank$rank.log" 2>&1 &
    pids="${pids:-} $!"
  done
  code=0
  for pid in $pids; do wait "$pid" || code=1; done
  cat rank0.log rank1.log
  grep -q "parameters bit-identical on 2 of 2 ranks" rank0.log || code=1
  exit $code
fi
[ $# = 2 ] || [ $# = 3 ] || { sed -n 2,13p "$0" >&2; exit 2; }
build=$(cd "$1" && pwd) || exit 2
mkdir -p "$2" && out=$(cd "$2" && pwd) || exit 2
here=$(cd "$(dirname "$0")" && pwd)
for folder in $("${PYTHON:-python3}" -c '
import glob, nvidia
print(*[folder for place in nvidia.__path__ for folder in glob.glob(place + "/*/lib")])' 2>/dev/null); do
  export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder"
done
end=$(($(date +%s) + ${3:-25} * 60))
failed=0

# part NAME SECONDS COMMAND…: unless done before, or out of time. KILL reaches all that the command has started, and
# nobody may go on: a rank that hangs would keep the GPU.
part() {
  name=$1 limit=$2
  shift 2
  [ ! -e "$out/$name.done" ] || { echo "$name: done before"; return; }
  left=$((end - $(date +%s)))
  [ "$left" -gt 20 ] || { echo "$name: no time left; call again"; failed=$((failed + 1)); return; }
  [ "$limit" -lt "$left" ] || limit=$left
  if timeout -s KILL "$limit" "$@" >"$out/$name.log" 2>&1; then
    touch "$out/$name.done"
    echo "$name: passed"
  else
    echo "$name: FAILED ($?), see $out/$name.log"
    tail -n 5 "$out/$name.log"
    failed=$((failed + 1))
  fi
}

cd "$out" || exit 2
export RINGGRAD_CACHE_DIR="$out/cache"  # of which provider is the fastest: the same for all runs
part gpu 20 nvidia-smi
part program 60 sh -c "'$build/ringgrad' doctor && '$build/ringgrad' doctor | grep -q '[1-9][0-9]* CUDA device'"
[ "$failed" = 0 ] || { echo "no GPU, or a driver or libraries that the program cannot use"; exit 3; }
# The tests of the label gpu, each file in a process of its own: an error of a kernel is the end of the device's context.
cuda_test() { part "$1" "$2" "$build/tests/cuda_test" -# "[cuda][#$1_test]"; }
cuda_test op 420
if [ ! -e op.done ]; then  # which kernel? Errors of launches come late, and are the next operation's
  part op-blocking 240 env CUDA_LAUNCH_BLOCKING=1 "$build/tests/cuda_test" -# "[cuda][#op_test]" -a
  part op-memcheck 240 compute-sanitizer --padding 256 "$build/tests/cuda_test" "operations on cuda*"
fi
for tests in any_device_kernels cuda_kernels cuda_matmul cuda_conv2d cuda_errors cuda_training cuda_capture cuda_layout \
  grad_scaler cuda_data_parallel cuda_nccl cuda_nccl_ring cuda_nccl_training cuda_nccl_faults; do cuda_test "$tests" 60; done
part captured-is-eager 120 sh -c "
  rm -rf graphs0 graphs1
  for graphs in 0 1; do
    RINGGRAD_CUDA_GRAPHS=\$graphs '$build/ringgrad' train --device cuda --crop 2 --max-steps 150 --out graphs\$graphs ||
      exit
  done
  cmp graphs0/checkpoint.safetensors graphs1/checkpoint.safetensors"
# train DATA EPOCHS ACCURACY OPTION…: as many epochs as bench/accuracy.py trains on the CPU, and about its accuracy
train() {
  data=$1 epochs=$2 accuracy=$3
  shift 3
  part "train-$data" 300 sh -c "
    rm -rf $data
    '$build/ringgrad' train --device cuda --data $data --epochs $epochs --out $data $* | tee $data.txt
    awk '/^done/ { enough = \$2 >= $accuracy } END { exit !enough }' $data.txt"
}
train digits 4 99
if [ -n "${RINGGRAD_DATA_DIR:-}" ]; then
  train mnist 3 99 --amp O2 --dtype bf16
  train cifar10 2 65 --amp O2 --dtype bf16
else
  echo "RINGGRAD_DATA_DIR is not set: mnist and cifar10 are left out"
fi
for backend in nccl nccl-ring; do part "$backend" 120 sh "$here/on_gpu.sh" --nccl "$build" "$backend"; done
part ladders 240 env RINGGRAD_CACHE_DIR="$out" "$build/cuda_ladders"
for dtype in bf16 fp32; do
  work="--device cuda --model resnet18 --batch 512 --dtype $dtype"
  part "resnet18-$dtype" 120 "$build/ringgrad" bench train $work --json
  part "resnet18-$dtype-pytorch" 450 "${PYTHON:-python3}" "$here/peers/train_pytorch.py" $work --only \
    channels_last_fused compile_channels_last_fused_heap compile_cuda_graphs_channels_last_fused_heap
done
if command -v compute-sanitizer >/dev/null 2>&1; then
  for row in 'conv2d 3×3, padding 1' matmul batch_norm 'softmax along -1' 'sum of columns'; do
    for tool in memcheck racecheck; do
      part "$tool-${row%% *}" 120 compute-sanitizer --tool "$tool" --kernel-name kns=ringgrad --error-exitcode 1 \
        "$build/tests/cuda_test" "operations on cuda*" -c "$row"
    done
  done
else
  echo "compute-sanitizer is not installed: memcheck and racecheck are left out"
fi
tar -czf all.tgz -- *.log *.done
"${PYTHON:-python3}" "$here/gpu_tables.py" "$out" || echo "no tables yet: bench/gpu_tables.py $out"
exit "$failed"
