// What the environment decides about the emulator. Read once; tests change the fields between
// launches, which is how one program runs a kernel under every schedule.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ringgrad::emulator {

// In which order the threads of a block run where the program leaves it open. A warp always runs as
// far as it can before another one is looked at: the schedule under which a forgotten barrier
// shows.
enum class Schedule : uint8_t {
  Forward,   // the lowest warp and lane that can run
  Reversed,  // the highest
  Random,
};

// When the operations of a stream run.
enum class StreamOrder : uint8_t {
  Eager,   // as they are queued
  Lazy,    // as late as a wait allows
  Random,  // as late, and with other streams of the device running ahead wherever events permit it
};

struct Config {
  // RINGGRAD_CUDA_DEVICES=0: a program emulates only where it is asked to.
  int devices;
  // The memory of each device: RINGGRAD_EMU_MEMORY_MB=1024.
  size_t memory_bytes;
  // Each device has so few that launchers choose small grids; the number is odd, because
  // power-of-two strides collide in the host's L1.
  int multiprocessors = 3;
  // RINGGRAD_EMU_SCHEDULE=forward|reversed|random[:seed].
  Schedule schedule;
  uint32_t schedule_seed;
  // RINGGRAD_EMU_STREAMS=eager|lazy|random[:seed].
  StreamOrder streams;
  uint32_t streams_seed;
  // Each call on a device fails from then on, as after an error of a kernel.
  bool device_lost = false;
  // On: ncclCommAbort ends what waits for other ranks. Off: a device does not hear it.
  bool nccl_aborts = true;
  // A waiting CUDA thread's stack: RINGGRAD_EMU_STACK_KB=64.
  size_t stack_bytes;
};

// Throws DeviceError when a variable cannot be read. Not thread-safe against changes: change it
// while no kernel runs.
Config& config();

}  // namespace ringgrad::emulator
