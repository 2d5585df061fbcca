// How much of the processor this process takes, for programs that have options for it. Where they
// do not say, RINGGRAD_THREADS and RINGGRAD_CPU_DEVICES do.
#pragma once

namespace ringgrad {

// cpu_cores() from then on. Thread-safe. Throws Error unless n is from 1 to 1024, and where another
// number is in use already.
void set_cpu_cores(int n);

// device_count(DeviceType::CPU) from then on. Thread-safe. Throws Error unless n is from 1 to 64,
// and where another number is in use already.
void set_cpu_devices(int n);

}  // namespace ringgrad
