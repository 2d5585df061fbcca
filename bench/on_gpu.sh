#!/bin/sh
# Runs everything that needs a GPU, the most telling first: numbers of single kernels after 40
# seconds, then their counters, a training step beside PyTorch's, and whether all of it is right.
#
#   bench/on_gpu.sh BUILD OUT [MINUTES]   MINUTES: 9
#
# PARTS: which, in this order, by commas; without it all:
#   lab        probes of instructions, and every variant of the kernels for Hopper (hopper_lab)
#   counters   named counters of six kernels, by ncu
#   step       a training step, and PyTorch's
#   locks      which call of CUDA holds up which other thread (cuda_locks)
#   nccl_death what a rank sees of NCCL when the other one is killed (cuda_nccl_death)
#   nccl       two ranks on the one GPU, and one of them killed
#   tests      the op suites and the tests of kernels, runtime and training, several at a time
#   ladders    kernels step by step, and beside the libraries'
#   steps      further training steps
#   sanitizers memcheck, racecheck and synccheck of single operations
# LAB: names for hopper_lab, instead of all variants.
#
# BUILD can be made on any machine, without a GPU, and stripped, because it may have to be copied to
# one:
#
#   cmake --preset cuda -DRINGGRAD_BENCH=ON -DRINGGRAD_ISAS="v2;v3;v4;v4_bf16" -DCMAKE_CUDA_ARCHITECTURES=90-real
#   cmake --build --preset cuda
#   (cd build/cuda && strip ringgrad cuda_ladders cuda_locks cuda_nccl_death hopper_lab tests/cuda_test tests/autotune_test)
#
# Only those files of it are needed (each holds every kernel; compressed by xz with a dictionary of
# 192 MiB they are little larger than one), and of the sources bench/ and tests/golden/. CUDA's
# libraries may also be where pip puts them for PYTHON. Each part writes OUT/NAME.log and, when it
# has passed, OUT/NAME.done. After each part, or group, everything is packed into OUT/all.tgz. If
# OUT already holds that file from an earlier run, perhaps on another machine, parts that the same
# program has completed on a card of the same name are not repeated, and PyTorch's parts not for
# another program either. So a GPU that is lent for minutes at a time completes all of them.
# OUT/inductor.tgz keeps what torch.compile has compiled. NAME.log.1 is the output of a part that
# failed before, or on another card. RINGGRAD_DATA_DIR: the folder of MNIST and CIFAR-10, if they
# exist. PYTHON: an interpreter with PyTorch, for comparison (python3). At the end gpu_tables.py
# makes bench/results/gpu_*.json from OUT; it can also do so on another machine. The output ends
# with lab_table.py's table. RINGGRAD_COMMIT: the commit that was built, if bench/ is there without
# its history. Exit status: 99 without a GPU, otherwise the number of parts that failed or had no
# time.
set -u
# Two ranks on one GPU. NCCL refuses that unless they appear to be on two machines, or since 2.30
# when it is told to. With --nccl-fault one of them is killed; the other must soon end with an error
# that names it.
if [ "${1:-}" = --nccl ] || [ "${1:-}" = --nccl-fault ]; then
  steps=50
  [ "$1" = --nccl ] || steps=100000
  for rank in 0 1; do
    env RINGGRAD_TIMEOUT=10 RANK=$rank WORLD_SIZE=2 LOCAL_RANK=$rank LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29557 \
      CUDA_VISIBLE_DEVICES=0 NCCL_HOSTID=machine$rank NCCL_NET=Socket NCCL_SOCKET_IFNAME=lo NCCL_P2P_DISABLE=1 \
      NCCL_SHM_DISABLE=1 NCCL_IB_DISABLE=1 NCCL_MNNVL_ENABLE=0 NCCL_NVLS_ENABLE=0 NCCL_MAX_CTAS=2 NCCL_ALGO=Ring \
      NCCL_PROTO=Simple NCCL_RAS_ENABLE=0 NCCL_NET_PLUGIN=none NCCL_MULTI_RANK_GPU_ENABLE=1 \
      "$2/ringgrad" train --parallel ddp --device cuda --backend "$3" --epochs 1000 --max-steps "$steps" \
      --out "runs/two-ranks$1-$3" >"$3-rank$rank.log" 2>&1 &
    pids="${pids:-} $!"
  done
  code=0
  if [ "$1" = --nccl-fault ]; then
    other=${pids% *}
    # The first epoch is over: the ranks have connected and measured their kernels.
    until grep -q "^epoch=1 " "$3-rank0.log" || ! kill -0 "$other" 2>/dev/null; do sleep 0.2; done
    kill -KILL "${pids##* }"
    (  # shows where a rank that does not end is blocked, as seen from outside
      sleep 25
      kill -0 $other && timeout 20 cuda-gdb -batch -p $other -ex "thread apply all bt 16"
    ) >"$3-stuck.log" 2>&1 &
    for pid in $pids; do wait "$pid" && code=1; done  # no rank may end with success
    grep -q "rank 1" "$3-rank0.log" || code=1
    ! grep "this process ends" "$3-rank0.log" || code=1  # it ended, but only by the last resort
  else
    for pid in $pids; do wait "$pid" || code=1; done
    grep -q "parameters bit-identical on 2 of 2 ranks" "$3-rank0.log" || code=1
  fi
  cat "$3-rank0.log" "$3-rank1.log"
  exit $code
fi
[ $# = 2 ] || [ $# = 3 ] || { sed -n 2,18p "$0" >&2; exit 2; }
everything=lab,counters,step,locks,nccl_death,nccl,tests,ladders,steps,sanitizers
parts=${PARTS:-$everything}
wants() {
  case ",$parts," in *",$1,"*) return 0 ;; esac
  return 1
}
for part in $(echo "$parts" | tr ',' ' '); do
  case ",$everything," in
    *",$part,"*) ;;
    *) echo "on_gpu.sh: PARTS has '$part', expected some of $everything" >&2; exit 2 ;;
  esac
done
build=$(cd "$1" && pwd) || exit 2
mkdir -p "$2" && out=$(cd "$2" && pwd) || exit 2
here=$(cd "$(dirname "$0")" && pwd)
for folder in $("${PYTHON:-python3}" -c '
import glob, nvidia
print(*[folder for place in nvidia.__path__ for folder in glob.glob(place + "/*/lib")])' 2>/dev/null); do
  export LD_LIBRARY_PATH="${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder"
done
end=$(($(date +%s) + ${3:-9} * 60))
cd "$out" || exit 2
rm -rf runs && mkdir -p runs
: >unfinished  # the names of parts that failed or had no time
for kept in all inductor; do
  [ ! -e $kept.tgz ] || tar --skip-old-files -xzf $kept.tgz || exit 2
done

keep() {  # tar returns 1 if a file grows meanwhile
  tar -czf all.tgz.part --exclude='*.tgz*' --exclude=./runs --exclude=./inductor ./* 2>keep.log
  [ $? -gt 1 ] || mv all.tgz.part all.tgz
}

# attempt NAME SECONDS COMMAND… runs the command unless it was done before or no time is left. KILL
# reaches everything that the command has started: a rank that hangs would keep the GPU. Tests
# return 77 if they need another machine. $mark: what a part depends on; it is repeated for another.
attempt() {
  name=$1 limit=$2
  shift 2
  [ "$(cat "$name.done" 2>/dev/null)" != "$mark" ] || { echo "$name: done before"; return; }
  left=$((end - $(date +%s)))
  [ "$left" -gt 20 ] || { echo "$name: no time left; call again"; echo "$name" >>unfinished; return; }
  [ "$limit" -lt "$left" ] || limit=$left
  [ ! -e "$name.log" ] || mv "$name.log" "$name.log.1"
  rm -f "$name.done"
  begin=$(date +%s)
  timeout -s KILL "$limit" "$@" >"$name.log" 2>&1
  code=$?
  seconds=$(($(date +%s) - begin))
  case $code in
    0) echo "$mark" >"$name.done" && echo "$name: passed in $seconds s" ;;
    77) echo "$name: left out: $(tail -n 1 "$name.log")" ;;
    *)
      echo "$name: FAILED ($code) after $seconds s, see $out/$name.log
$(tail -n 5 "$name.log")"
      echo "$name" >>unfinished
      ;;
  esac
}
part() {
  attempt "$@"
  keep
}

export RINGGRAD_CACHE_DIR="$out/cache"  # the fastest providers: the same for all that is measured
card=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1)
where="$card, $(cksum <"$build/ringgrad")"
torch=$("${PYTHON:-python3}" -c 'from importlib.metadata import version; print(version("torch"))' 2>/dev/null)
mark=$where
rm -f gpu.done program.done
part gpu 60 nvidia-smi
part program 60 sh -c "'$build/ringgrad' doctor && '$build/ringgrad' doctor | grep -q '[1-9][0-9]* CUDA device'"
[ ! -s unfinished ] || { echo "no time, no GPU, or a driver or libraries that the program cannot use"; exit 99; }

# ---- kernels, one variant after the other ------------------------------------------------------------------------------
if wants lab; then
  nvidia-smi --query-gpu=clocks.sm,clocks.mem,power.draw,temperature.gpu --format=csv -lms 500 >clocks.csv 2>&1 &
  clocks=$!
  mark="$card, $(cksum <"$build/hopper_lab") ${LAB:-}"
  if [ -n "${LAB:-}" ]; then
    # shellcheck disable=SC2086
    part lab-chosen 180 "$build/hopper_lab" --seconds 150 $LAB
  else
    part lab-probe 30 "$build/hopper_lab" --seconds 20 "probe "
    for kernel in "copy " "gemm " "conv2d "; do
      "$build/hopper_lab" --list "$kernel" >keep.log 2>&1 || continue  # it has none of these
      part "lab-${kernel% }" 120 "$build/hopper_lab" --seconds 90 "$kernel"
    done
  fi
  mark=$where
  kill $clocks 2>/dev/null
fi

# ---- counters ------------------------------------------------------------------------------------------------------------
# count NAME KERNELS COMMAND…: of the first launches whose name has one of KERNELS.
count() {
  name=$1 kernels=$2
  shift 2
  metrics=$(tr '\n' ',' <"$here/counters.txt")
  # Another version may lack a metric's name; then all sections tell more than is needed.
  # shellcheck disable=SC2016
  part "counters-$name" 90 sh -c 'metrics=$1 && shift && { ncu --metrics "$metrics" "$@" || ncu --set full "$@"; }' - \
    "${metrics%,}" --nvtx --clock-control none --page raw --csv --kernel-name "regex:$kernels" --launch-count 8 "$@"
}
if wants counters; then
  if command -v ncu >/dev/null 2>&1; then
    count gemm gemm_kernel "$build/hopper_lab" "128x256, 4 stages, cluster 2 4096x4096x4096"
    count in-turn gemm_kernel "$build/hopper_lab" "128x128, in turn, cluster 2 4096x4096x4096"
    for kernel in tensor_core_gemm reduce_channels apply_kernel conv; do
      count "$kernel" "$kernel" env RINGGRAD_CUDA_GRAPHS=0 "$build/ringgrad" bench train --device cuda --model resnet18 \
        --batch 512 --dtype bf16 --provider native --steps 1 --warm-up 0
    done
  else
    echo "ncu is not installed: the kernels' counters are left out"
  fi
fi

# ---- a training step -----------------------------------------------------------------------------------------------------
# bench NAME OPTION… writes NAME.log, which ends with a step's numbers as JSON. The limit is for the
# first run of a batch and dtype, which times up to ten plans of cuDNN for each convolution and
# batch norm, and compiles some of them.
bench() {
  name=$1
  shift
  part "$name" 240 "$build/ringgrad" bench train --device cuda "$@" --json
}
# peer NAME SECONDS CONFIGURATION… -- OPTION… does the same with PyTorch, once per card and version.
# What it compiles is kept for another machine.
export TORCHINDUCTOR_CACHE_DIR="$out/inductor"
peer() {
  name=$1 limit=$2 only=
  shift 2
  while [ "$1" != -- ]; do only="$only $1" && shift; done
  shift
  mark="$card, torch $torch"
  # shellcheck disable=SC2086
  part "$name" "$limit" "${PYTHON:-python3}" "$here/peers/train_pytorch.py" --device cuda "$@" --only $only
  mark=$where
  [ ! -d inductor ] || tar -czf inductor.tgz inductor
}
fastest_eager=channels_last_fused
fastest_compiled="compile_channels_last_fused_heap compile_cuda_graphs_channels_last_fused_heap"
if wants step; then
  bench resnet18-bf16 --model resnet18 --batch 512 --dtype bf16
  peer resnet18-bf16-compiled 300 $fastest_compiled -- --model resnet18 --batch 512 --dtype bf16
  peer resnet18-bf16-eager 90 $fastest_eager -- --model resnet18 --batch 512 --dtype bf16
  bench resnet18-bf16-profile --model resnet18 --batch 512 --dtype bf16 --profile
  bench resnet20-bf16-128 --model resnet20 --batch 128 --dtype bf16
  peer resnet20-bf16-128-compiled 300 $fastest_compiled -- --model resnet20 --batch 128 --dtype bf16
  peer resnet20-bf16-128-eager 90 $fastest_eager -- --model resnet20 --batch 128 --dtype bf16
fi

# ---- how a rank can end when another one has died: these two know nothing of ringgrad ----------------------------------
if wants locks; then part locks 60 "$build/cuda_locks"; fi
if wants nccl_death; then
  for how in eager graph; do
    for wait in none sync pageable; do
      for ahead in 20 600 2000; do
        part "nccl-death-$how-$wait-$ahead" 40 "$build/cuda_nccl_death" $how $wait $ahead
      done
    done
  done
fi

# ---- whether all of it is right: these at the same time, each line of them one after the other ------------------------
# Runs the tests with the label gpu, each file in its own process, because a kernel's error ends the
# device's context.
tests() {
  most=$1
  shift
  for tests; do
    program="$build/tests/cuda_test"
    [ "$tests" != autotune ] || program="$build/tests/autotune_test"
    attempt "$tests" "$most" env RINGGRAD_TESTS_NEED_GPU=1 "$program" -# "[cuda][#${tests}_test]"
  done
}
# train DATA EPOCHS ACCURACY OPTION…: as many epochs as bench/accuracy.py trains on the CPU, and about its accuracy
train() {
  data=$1 epochs=$2 accuracy=$3
  shift 3
  attempt "train-$data" 300 sh -c "
    '$build/ringgrad' train --device cuda --data $data --epochs $epochs --out runs/$data $* >runs/$data.txt || exit
    cat runs/$data.txt
    awk '/^done/ { enough = \$2 >= $accuracy } END { exit !enough }' runs/$data.txt"
}
train_all() {
  train digits 4 99
  if [ -n "${RINGGRAD_DATA_DIR:-}" ]; then
    train mnist 3 99 --amp O2 --dtype bf16
    train cifar10 2 65 --amp O2 --dtype bf16
  else
    echo "RINGGRAD_DATA_DIR is not set: mnist and cifar10 are left out"
  fi
}
two_ranks() {
  for backend in nccl nccl-ring; do
    attempt "$backend" 60 sh "$here/on_gpu.sh" --nccl "$build" "$backend"
    attempt "$backend-fault" 60 sh "$here/on_gpu.sh" --nccl-fault "$build" "$backend"
  done
}
captured_is_eager() {
  attempt captured-is-eager 120 sh -c "
    for graphs in 0 1; do
      RINGGRAD_CACHE_DIR=runs/own-cache RINGGRAD_CUDA_GRAPHS=\$graphs '$build/ringgrad' train --device cuda --crop 2 \
        --max-steps 150 --out runs/graphs\$graphs || exit
    done
    cmp runs/graphs0/checkpoint.safetensors runs/graphs1/checkpoint.safetensors"
}
# The fastest provider cannot be measured meanwhile, so these results are kept apart.
(
  export RINGGRAD_CACHE_DIR="$out/runs/cache"
  if wants tests; then
    tests 420 op &
    tests 120 cuda_matmul cuda_conv2d cuda_conv2d_hopper cuda_conv2d_sums cuda_kernels any_device_kernels scalar random_integers dtype_ranges cuda_errors \
      cuda_ladders cuda_launches autotune &
    tests 120 cuda_training cuda_capture waiting_gradient cuda_layout grad_scaler cuda_data_parallel cuda_nccl \
      cuda_nccl_ring cuda_nccl_training cuda_nccl_capture cuda_nccl_faults &
    train_all &
    captured_is_eager &
  fi
  if wants nccl; then two_ranks & fi
  wait
)
keep
# Finds the kernel. Errors of launches arrive late and appear in the next operation.
if [ ! -e op.done ] && grep -q "illegal \|misaligned \|launch failure" op.log 2>/dev/null; then
  part op-blocking 240 env CUDA_LAUNCH_BLOCKING=1 "$build/tests/cuda_test" -# "[cuda][#op_test]" -a
  part op-memcheck 240 env RINGGRAD_CACHE_DIR="$out/runs/cache" compute-sanitizer --padding 256 \
    "$build/tests/cuda_test" "operations on cuda*"
fi

# ---- kernels beside the libraries', and further steps ----------------------------------------------------------------
if wants ladders; then
  for ladder in matmul bandwidth conv2d vendors; do  # the last times only its own calls
    part "ladders-$ladder" 120 env RINGGRAD_CACHE_DIR="$out/runs/ladders" "$build/cuda_ladders" "$ladder"
  done
  for kernel in copy transpose sum matmul conv2d conv2d_backward_input conv2d_backward_weight batch_norm_stats; do
    part "kernel-$kernel" 60 "$build/ringgrad" bench kernel "$kernel" --json
  done
fi
if wants steps; then
  bench resnet18-bf16-128 --model resnet18 --batch 128 --dtype bf16
  peer resnet18-bf16-128-eager 90 $fastest_eager -- --model resnet18 --batch 128 --dtype bf16
  part resnet18-bf16-uncaptured 240 env RINGGRAD_CUDA_GRAPHS=0 \
    "$build/ringgrad" bench train --device cuda --model resnet18 --batch 512 --dtype bf16 --json
  bench resnet18-fp16 --model resnet18 --batch 512 --dtype fp16
  bench resnet18-fp32 --model resnet18 --batch 512 --dtype fp32
  bench resnet18-bf16-1024 --model resnet18 --batch 1024 --dtype bf16
fi

# ---- the checkers ------------------------------------------------------------------------------------------------------
export RINGGRAD_CACHE_DIR="$out/runs/cache"  # nothing can be timed under a checker
if ! wants sanitizers; then
  :
elif command -v compute-sanitizer >/dev/null 2>&1; then
  for row in 'conv2d 3×3, padding 1' matmul batch_norm 'softmax along -1' 'sum of columns'; do
    for tool in memcheck racecheck synccheck; do
      attempt "$tool-${row%% *}" 120 compute-sanitizer --tool "$tool" --kernel-name kns=ringgrad --error-exitcode 1 \
        "$build/tests/cuda_test" "operations on cuda*" -c "$row" &
    done
  done
  wait
  keep
else
  echo "compute-sanitizer is not installed: memcheck, racecheck and synccheck are left out"
fi
"${PYTHON:-python3}" "$here/gpu_tables.py" "$out" || echo "no tables yet: bench/gpu_tables.py $out"
"${PYTHON:-python3}" "$here/lab_table.py" "$out"
exit "$(wc -l <unfinished)"
