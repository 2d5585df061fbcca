#include "ringgrad/cuda_kernels/emulator/check/address.h"

#include <dlfcn.h>
#include <link.h>
#include <pthread.h>

#include <algorithm>
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
  ranges_[0] = {reinterpret_cast<uintptr_t>(grid.arguments),
                reinterpret_cast<uintptr_t>(grid.arguments) + grid.argument_bytes, Memory::Private};
  for (size_t member = 0; member < kMaxCluster; ++member) {
    const bool exists = static_cast<int>(member) < block.members();
    const auto begin =
        exists ? reinterpret_cast<uintptr_t>(block.dynamic_shared(static_cast<int>(member))) : 0;
    ranges_[1 + member] = {begin, begin + (exists ? grid.shared_bytes : 0), Memory::Shared};
  }
  // The part of the stack on which kernels run. The callers of the launch are above it; that part
  // belongs to the host.
  ranges_.back().end = reinterpret_cast<uintptr_t>(&grid);
}

// Asks the system, which takes some time. Consecutive blocks mostly run on the same thread.
void MemoryMap::look_at_thread(const Block& block) {
  block_ = &block;
  ranges_.assign(1 + kMaxCluster, {});
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

  // Thread-local memory comes first, because it lies inside the memory of the thread's stack.
  const auto add_module = [](dl_phdr_info* info, size_t, void* self) {
    auto& map = *static_cast<MemoryMap*>(self);
    for (int i = 0; i < info->dlpi_phnum; ++i)
      if (info->dlpi_phdr[i].p_type == PT_TLS && info->dlpi_tls_data)
        map.add(info->dlpi_tls_data, info->dlpi_phdr[i].p_memsz, Memory::Shared);
    for (int i = 0; i < info->dlpi_phnum; ++i)
      if (info->dlpi_phdr[i].p_type == PT_LOAD)
        map.add(reinterpret_cast<const void*>(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr),
                info->dlpi_phdr[i].p_memsz, Memory::Private);
    return 0;
  };
  dl_iterate_phdr(add_module, this);
  add(stack, stack_bytes, Memory::Private);  // must be last: begin_block() moves its end
}

Memory MemoryMap::find(const void* address) const {
  const auto place = reinterpret_cast<uintptr_t>(address);
  for (const Range& range : ranges_)
    if (place >= range.begin && place < range.end) return range.memory;
  return block_->on_fiber_stack(address) ? Memory::Private : Memory::Global;
}

namespace {

constexpr size_t kAtOnce = 500;  // addresses in one command

struct Place {
  std::string module;
  std::string symbol;
  unsigned long offset;
};
Place place_of(const void* pc) {
  Dl_info module;
  if (!dladdr(pc, &module)) return {};
  // The instruction before the return address is the call.
  const auto offset =
      reinterpret_cast<uintptr_t>(pc) - reinterpret_cast<uintptr_t>(module.dli_fbase) - 1;
  return {module.dli_fname, module.dli_sname ? module.dli_sname : "", offset};
}

// Returns for each place its line, then the line into which its function was inlined, and so on.
// Returns nothing if that is not known. REQUIRES: all places are in one module.
std::vector<std::vector<std::string>> inlined_lines(const std::vector<Place>& places) {
  std::vector<std::vector<std::string>> lines;
  std::string command = "addr2line -a -i -e '" + places.front().module + "'";
  for (const Place& place : places) command += str(" 0x", std::hex, place.offset);
  if (const std::unique_ptr<FILE, int (*)(FILE*)> pipe(
          popen((command + " 2>/dev/null").c_str(), "r"), pclose);
      pipe)
    for (char text[512]; std::fgets(text, sizeof text, pipe.get());) {
      std::string line = text;
      line = line.substr(0, line.find_first_of(" \n"));  // without "(discriminator 3)"
      if (line.starts_with("0x"))
        lines.emplace_back();
      else if (line.find('?') == line.npos && !lines.empty())
        lines.back().push_back(line.substr(line.rfind('/') + 1));
    }
  lines.resize(places.size());
  return lines;
}

std::string without_line(const Place& place) {
  return place.symbol.empty() ? str("0x", std::hex, place.offset)
                              : str(place.symbol, " + 0x", std::hex, place.offset);
}

}  // namespace

std::string source_line(const void* pc) {
  const Place place = place_of(pc);
  const std::vector<std::string> lines = inlined_lines({place}).front();
  return lines.empty() ? without_line(place) : lines.front();
}

std::vector<std::string> source_lines(const std::vector<const void*>& pcs) {
  std::vector<std::string> found;
  for (size_t first = 0; first < pcs.size(); first += kAtOnce) {
    std::vector<Place> places;
    for (size_t i = first; i < std::min(pcs.size(), first + kAtOnce); ++i)
      places.push_back(place_of(pcs[i]));
    const auto lines = inlined_lines(places);
    for (size_t i = 0; i < places.size(); ++i)
      found.push_back(lines[i].empty() ? without_line(places[i]) : lines[i].back());
  }
  return found;
}

}  // namespace ringgrad::emulator
