// The emulator's settings from the environment. They are read once. Tests change the fields between
// launches, so that one program runs a kernel under every schedule.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ringgrad::emulator {

// The order in which the threads of a block run if the program leaves it open. A warp always runs
// as far as it can before another one is chosen, because such a schedule reveals a forgotten
// barrier.
enum class Schedule : uint8_t {
  Forward,   // the lowest warp and lane that can run
  Reversed,  // the highest
  Random,
};

// The time at which the operations of a stream run.
enum class StreamOrder : uint8_t {
  Eager,   // when they are queued
  Lazy,    // as late as a wait allows
  Random,  // late; other streams of the device may run first if events permit it
};

struct Config {
  // RINGGRAD_CUDA_DEVICES. The default is 0: a program emulates devices only on request.
  int devices;
  // The memory of each device: RINGGRAD_EMU_MEMORY_MB, by default 1024.
  size_t memory_bytes;
  // There are so few that launchers choose small grids. The number is odd, because power-of-two
  // strides collide in the host's L1.
  int multiprocessors = 3;
  // RINGGRAD_EMU_SCHEDULE=forward|reversed|random[:seed].
  Schedule schedule;
  uint32_t schedule_seed;
  // RINGGRAD_EMU_STREAMS=eager|lazy|random[:seed].
  StreamOrder streams;
  uint32_t streams_seed;
  // If true, every call on a device fails, as after an error of a kernel.
  bool device_lost = false;
  // True: ncclCommAbort ends operations that wait for other ranks. False: the device ignores it.
  bool nccl_aborts = true;
  // True: a copy from or to memory of the host that is not page-locked waits for its stream, and
  // meanwhile other threads' calls wait for it, as some drivers' do.
  bool pageable_copies_hold = false;
  // The size of a waiting CUDA thread's stack: RINGGRAD_EMU_STACK_KB, by default 64.
  size_t stack_bytes;
};

// Throws DeviceError if a variable cannot be read. Not thread-safe against changes: change a field
// only while no kernel runs.
Config& config();

// For tests: a kernel's error, which stays as long as the process, is gone from all devices.
void revive_devices();

}  // namespace ringgrad::emulator
