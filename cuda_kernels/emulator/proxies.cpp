// The two ways to shared memory. Threads use the generic proxy, copies and products the async one.
// One sees what the other has written only after fence.proxy.async. The writer passes it after its
// write; or the thread that starts the copy or the product does, after a barrier.
#include <algorithm>

#include "ringgrad/core/error.h"
#include "ringgrad/cuda_kernels/emulator/block.h"
#include "ringgrad/cuda_kernels/emulator/unobserved.h"

namespace ringgrad::emulator {

void AsyncUnits::note_write(const void* address, size_t bytes) {
  const int member = member_of(address);
  if (member < 0) return;
  constexpr uint32_t kGranule = 16;
  const auto* begin = static_cast<const char*>(block_.dynamic_shared(member));
  const auto first =
      static_cast<uint32_t>(static_cast<const char*>(address) - begin) + kFirstSharedAddress;
  ++clock_;
  for (uint32_t at = first / kGranule * kGranule; at < first + bytes; at += kGranule) {
    Granule& g = granule(member, at);
    g.writer = block_.thread_of_cluster();
    g.written = clock_;
  }
}

void AsyncUnits::fence_proxy() {
  const Unobserved unobserved;
  used_ = true;
  fences_.resize(static_cast<size_t>(block_.threads_of_cluster()));
  fences_[static_cast<size_t>(block_.thread_of_cluster())] = ++clock_;
  fence_init();
}

// Returns what is wrong if `reader` starts something that uses these 16 bytes by the async proxy.
std::string AsyncUnits::unfenced(int member, uint32_t address, int reader) {
  const Granule& g = granule(member, address);
  if (g.writer < 0) return "";
  fences_.resize(static_cast<size_t>(block_.threads_of_cluster()));
  if (fences_[static_cast<size_t>(g.writer)] > g.written ||
      fences_[static_cast<size_t>(reader)] > g.written)
    return "";
  return str("fence_proxy_async is missing: thread ", g.writer, " has written byte ",
             address - kFirstSharedAddress, " of shared memory, and has not passed one since");
}

}  // namespace ringgrad::emulator
