// Stand-in for the CUDA toolkit's header of this name: asynchronous copies (cp.async). See
// emulator/shared_memory.h.
#pragma once

#include "ringgrad/cuda_kernels/emulator/language.h"

[[gnu::noinline]] inline void __pipeline_memcpy_async(void* destination, const void* source,
                                                      size_t bytes, size_t zero_fill = 0,
                                                      RINGGRAD_SITE) {
  auto& block = *ringgrad::emulator::running_block;
  const std::string problem = block.async_copies().start(destination, source, bytes, zero_fill,
                                                         __builtin_return_address(0));
  if (!problem.empty()) block.fail(site, problem);
}
inline void __pipeline_commit() { ringgrad::emulator::running_block->async_copies().commit(); }
inline void __pipeline_wait_prior(int groups) {
  ringgrad::emulator::running_block->async_copies().wait_prior(groups);
}
