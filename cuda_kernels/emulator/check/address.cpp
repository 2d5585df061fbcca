#include "ringgrad/cuda_kernels/emulator/check/address.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>

#include <cstdio>
#include <memory>

#include "ringgrad/core/error.h"
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

std::string source_line(const void* pc) {
  Dl_info module;
  if (!dladdr(pc, &module)) return "?";
  // The instruction before the return address is the call.
  const auto offset = reinterpret_cast<uintptr_t>(pc) - reinterpret_cast<uintptr_t>(module.dli_fbase) - 1;
  char text[512];
  std::snprintf(text, sizeof text, "addr2line -e '%s' 0x%lx 2>/dev/null", module.dli_fname,
                static_cast<unsigned long>(offset));
  std::string line;
  if (const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(text, "r"), pclose); pipe)
    if (std::fgets(text, sizeof text, pipe.get())) line = text;
  line = line.substr(0, line.find_first_of(" \n"));  // without "(discriminator 3)"
  line = line.substr(line.rfind('/') + 1);
  if (!line.empty() && line.find('?') == line.npos) return line;
  return module.dli_sname ? str(module.dli_sname, " + 0x", std::hex, offset) : str("0x", std::hex, offset);
}

}  // namespace ringgrad::emulator
