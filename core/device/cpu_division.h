// Sets how much of the processor this process uses, for programs that have options for it. Without
// these calls RINGGRAD_THREADS and RINGGRAD_CPU_DEVICES decide.
#pragma once

namespace ringgrad {

// Sets the number that cpu_cores() returns. Thread-safe. Throws Error unless n is from 1 to 1024,
// or if another number is already in use.
void set_cpu_cores(int n);

// Sets the number that device_count(DeviceType::CPU) returns. Thread-safe. Throws Error unless n is
// from 1 to 64, or if another number is already in use.
void set_cpu_devices(int n);

}  // namespace ringgrad
