// parallel_for: the one way in which CPU kernels use several threads.
//
// Each logical CPU device has threads of its own; a kernel passes on the stream it was given, whose
// handle they are. Work is split by index alone: the range is cut into units of
// `grain` indices whatever the number of threads, so results (sums included, when a kernel keeps
// one partial result per unit) do not depend on it.
//
// Why not OpenMP: its runtime is opaque to ThreadSanitizer, has one pool for all logical devices,
// and spins against the other ranks of an oversubscribed machine. Ours is core/cpu/thread_pool.cpp;
// a program that lacks it has the caller's thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "ringgrad/core/device.h"

namespace ringgrad {

// How many threads parallel_for uses on this stream, the caller included.
int thread_count(Stream stream);

namespace detail {
// Runs body(context, unit) for unit in [0, units), each exactly once, and returns when all are
// done. The first exception thrown by a unit is rethrown here. Called while the pool is busy, or
// from inside it: runs inline.
void run_units(Stream stream, int64_t units, void (*body)(void* context, int64_t unit),
               void* context);
}  // namespace detail

// What the CPU's devices take for threads; the pools of core/cpu/thread_pool.cpp register as such.
struct CpuThreads {
  void* (*make)(int threads);  // of one device, for as long as the program lives; never null
  void (*run_units)(void* made, int64_t units, void (*body)(void* context, int64_t unit),
                    void* context);
};
void register_cpu_threads(CpuThreads threads);

// body(begin, end) for consecutive pieces of [0, n), each a unit of `grain` indices (the last one
// shorter). REQUIRES: grain >= 1, chosen so that a unit is worth a few microseconds.
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
