#include "ringgrad/cuda_kernels/runtime/host_copy.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "ringgrad/core/device/device_backend.h"
#include "ringgrad/cuda_kernels/runtime/stream.h"

namespace ringgrad::cuda {
namespace {

constexpr size_t kSlotBytes = 4 << 20;  // long enough that starting a copy does not matter
constexpr size_t kSlots = 4;            // of a device: two under way, and two being filled

// A piece of page-locked memory, and the end of the last copy from or to it. It is never freed.
struct Slot {
  char* memory;
  Event used;
};

struct Slots {
  std::mutex mutex;
  std::deque<std::unique_ptr<Slot>> idle;  // in the order in which their copies end
  size_t all = 0;
};
Slots& slots_of(Device device) {
  static auto* const slots = new std::array<Slots, kMaxDevices>;  // as the slots themselves
  return (*slots)[static_cast<size_t>(device.index)];
}

std::unique_ptr<Slot> make_slot(Device device) {
  const DeviceGuard guard(device);
  const RelaxedCapture relaxed;
  void* memory = nullptr;
  CUDA_CHECK(cudaHostAlloc(&memory, kSlotBytes, cudaHostAllocPortable));
  return std::make_unique<Slot>(Slot{static_cast<char*>(memory), Event(device)});
}

// A slot that no other copy uses, until the end of its scope.
class OwnSlot {
 public:
  // Makes one more if other threads have taken all.
  explicit OwnSlot(Device device) : slots_(slots_of(device)) {
    {
      const std::lock_guard lock(slots_.mutex);
      if (!slots_.idle.empty() && (slots_.all >= kSlots || slots_.idle.front()->used.done())) {
        slot_ = std::move(slots_.idle.front());
        slots_.idle.pop_front();
      } else {
        ++slots_.all;
      }
    }
    if (!slot_) slot_ = make_slot(device);
    slot_->used.synchronize();
  }
  ~OwnSlot() {
    const std::lock_guard lock(slots_.mutex);
    slots_.idle.push_back(std::move(slot_));
  }
  OwnSlot(const OwnSlot&) = delete;
  Slot* operator->() const { return slot_.get(); }

 private:
  Slots& slots_;
  std::unique_ptr<Slot> slot_;
};

void queue(Stream stream, OwnSlot& slot, void* to, const void* from, size_t bytes) {
  const DeviceGuard guard(stream.device);
  CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, native(stream)));
  slot->used.record(stream);
}

}  // namespace

void copy_from_host(Stream stream, void* to, const void* from, size_t bytes) {
  for (size_t begin = 0; begin < bytes; begin += kSlotBytes) {
    const size_t part = std::min(kSlotBytes, bytes - begin);
    OwnSlot slot(stream.device);
    std::memcpy(slot->memory, static_cast<const char*>(from) + begin, part);
    queue(stream, slot, static_cast<char*>(to) + begin, slot->memory, part);
  }
}

// While the host takes one piece out of its slot, the device copies the next one.
void copy_to_host(Stream stream, void* to, const void* from, size_t bytes) {
  has_ended(stream);  // throws if the stream is being captured
  std::array<std::optional<OwnSlot>, 2> slots;
  const auto part = [bytes](size_t begin) { return std::min(kSlotBytes, bytes - begin); };
  const size_t pieces = (bytes + kSlotBytes - 1) / kSlotBytes;
  for (size_t i = 0; i <= pieces; ++i) {
    if (i < pieces) {
      const size_t begin = i * kSlotBytes;
      OwnSlot& next = slots[i % 2].emplace(stream.device);
      queue(stream, next, next->memory, static_cast<const char*>(from) + begin, part(begin));
    }
    if (i > 0) {
      const size_t begin = (i - 1) * kSlotBytes;
      OwnSlot& arriving = *slots[(i - 1) % 2];
      arriving->used.synchronize();
      std::memcpy(static_cast<char*>(to) + begin, arriving->memory, part(begin));
    }
  }
}

}  // namespace ringgrad::cuda
