// parallel_for: the only way in which CPU kernels use several threads.
//
// Each logical CPU device has its own threads. A kernel passes on the stream that it received,
// whose handle names those threads. Work is split by index alone: the range is cut into units of
// `grain` indices, whatever the number of threads. Results therefore do not depend on that number.
// This includes sums, if a kernel keeps one partial result per unit.
//
// OpenMP is not used: its runtime is opaque to ThreadSanitizer, has one pool for all logical
// devices, and spins against the other ranks of an oversubscribed machine. core/cpu/thread_pool.cpp
// has our threads. A program without that file uses the caller's thread only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "ringgrad/core/device.h"

namespace ringgrad {

// Returns the number of threads that parallel_for uses on this stream, the caller included.
int thread_count(Stream stream);

namespace detail {
// Runs body(context, unit) once for each unit in [0, units), and returns when all are done.
// Rethrows the first exception that a unit throws. Runs inline if the pool is busy or if the call
// comes from inside it.
void run_units(Stream stream, int64_t units, void (*body)(void* context, int64_t unit),
               void* context);
}  // namespace detail

// The functions that give CPU devices their threads. The pools of core/cpu/thread_pool.cpp register
// here.
struct CpuThreads {
  void* (*make)(int threads);  // for one device, for the rest of the program; never null
  void (*run_units)(void* made, int64_t units, void (*body)(void* context, int64_t unit),
                    void* context);
};
void register_cpu_threads(CpuThreads threads);

// Calls body(begin, end) for consecutive pieces of [0, n). Each piece is a unit of `grain` indices;
// the last one may be shorter. REQUIRES: grain >= 1, chosen so that a unit takes a few
// microseconds.
template <class Body>
void parallel_for(Stream stream, int64_t n, int64_t grain, Body&& body) {
  if (n <= grain) {
    if (n > 0) body(int64_t{0}, n);
    return;
  }
  struct Context {
    std::remove_reference_t<Body>& body;
    int64_t n;
    int64_t grain;
  } context{body, n, grain};
  detail::run_units(
      stream, (n + grain - 1) / grain,
      [](void* raw, int64_t unit) {
        Context& c = *static_cast<Context*>(raw);
        c.body(unit * c.grain, std::min(c.n, (unit + 1) * c.grain));
      },
      &context);
}

}  // namespace ringgrad
