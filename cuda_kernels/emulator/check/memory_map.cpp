#include "ringgrad/cuda_kernels/emulator/check/memory_map.h"

#include <link.h>
#include <pthread.h>

#include "ringgrad/cuda_kernels/emulator/block.h"
#include "ringgrad/cuda_kernels/emulator/language.h"

namespace ringgrad::emulator {

void MemoryMap::add(const void* begin, size_t bytes, Memory memory) {
  const auto first = reinterpret_cast<uintptr_t>(begin);
  ranges_.push_back({first, first + bytes, memory});
}

void MemoryMap::begin_block(const Grid& grid, const Block& block) {
  if (block_ != &block) look_at_thread(block);
  ranges_[0] = {reinterpret_cast<uintptr_t>(block.dynamic_shared()),
                reinterpret_cast<uintptr_t>(block.dynamic_shared()) + grid.shared_bytes, Memory::Shared};
  ranges_[1] = {reinterpret_cast<uintptr_t>(grid.arguments),
                reinterpret_cast<uintptr_t>(grid.arguments) + grid.argument_bytes, Memory::Private};
}

// Asks the system, which takes a while: blocks of one thread follow each other.
void MemoryMap::look_at_thread(const Block& block) {
  block_ = &block;
  ranges_.assign(2, {});
  add(&threadIdx, sizeof threadIdx, Memory::Private);
  add(&blockIdx, sizeof blockIdx, Memory::Private);
  add(&blockDim, sizeof blockDim, Memory::Private);
  add(&gridDim, sizeof gridDim, Memory::Private);
  add(&running_block, sizeof running_block, Memory::Private);
  add(&block, sizeof block, Memory::Private);
  add(&observing, sizeof observing, Memory::Private);

  pthread_attr_t attributes;
  void* stack = nullptr;
  size_t stack_bytes = 0;
  if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
    pthread_attr_getstack(&attributes, &stack, &stack_bytes);
    pthread_attr_destroy(&attributes);
  }

  // Thread-local memory first: a thread's lies inside the memory of its stack.
  const auto add_module = [](dl_phdr_info* info, size_t, void* self) {
    auto& map = *static_cast<MemoryMap*>(self);
    for (int i = 0; i < info->dlpi_phnum; ++i)
      if (info->dlpi_phdr[i].p_type == PT_TLS && info->dlpi_tls_data)
        map.add(info->dlpi_tls_data, info->dlpi_phdr[i].p_memsz, Memory::Shared);
    for (int i = 0; i < info->dlpi_phnum; ++i)
      if (info->dlpi_phdr[i].p_type == PT_LOAD)
        map.add(reinterpret_cast<const void*>(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr), info->dlpi_phdr[i].p_memsz,
                Memory::Private);
    return 0;
  };
  dl_iterate_phdr(add_module, this);
  add(stack, stack_bytes, Memory::Private);
}

Memory MemoryMap::find(const void* address) const {
  const auto place = reinterpret_cast<uintptr_t>(address);
  for (const Range& range : ranges_)
    if (place >= range.begin && place < range.end) return range.memory;
  return block_->on_fiber_stack(address) ? Memory::Private : Memory::Global;
}

}  // namespace ringgrad::emulator
