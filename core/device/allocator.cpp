// The caching allocator. Every training step requests the same sizes in the same order. So a freed
// block is kept in a list of its size class, and the next step takes nothing from the system.
//
// Each list belongs to a stream, so that a block can be freed without waiting. A kernel may still
// use a block when its tensor is gone. But the block's next owner queues its work on the same
// stream, behind that kernel.
#include "ringgrad/core/device/allocator.h"

#include <bit>
#include <map>
#include <mutex>
#include <vector>

#include "ringgrad/core/base/before_main.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/fork.h"

namespace ringgrad {
namespace {

// Block sizes are 64, 128 and 192 bytes, and then {4, 5, 6, 7} * 2^k * 64 bytes. With four steps
// per power of two a size class is computed without a search, and larger blocks waste 10 % on
// average and 25 % at most.
struct SizeClass {
  int index;
  size_t bytes;
};
constexpr size_t kUnit = 64;
constexpr int kClasses = 4 * 48;

SizeClass size_class(size_t bytes) {
  const size_t units = bytes == 0 ? 1 : (bytes + kUnit - 1) / kUnit;
  if (units <= 4) return {static_cast<int>(units), units * kUnit};
  const int shift = std::bit_width(units - 1) - 3;  // (units - 1) >> shift lies in [4, 8)
  const size_t step = ((units - 1) >> shift) + 1;   // in [5, 8]
  return {static_cast<int>(4 * shift + step), (step << shift) * kUnit};
}

// The free lists of one stream.
struct FreeLists {
  std::vector<void*> of_class[kClasses];
};

class DeviceAccount {
 public:
  explicit DeviceAccount(Device device) : device_(device), backend_(device_backend(device.type)) {
    hold_over_fork(mutex_);
  }

  void* allocate(Stream stream, size_t bytes) {
    const SizeClass size = size_class(bytes);
    CHECK_AS(OutOfMemoryError, size.index < kClasses, current_op(), ": out of memory on ", device_,
             ": asked for ", bytes, " bytes, more than any machine has");
    std::lock_guard lock(mutex_);
    if (backend_.capturing()) backend_.keep_memory(stream);
    ++stats_.allocations;
    auto& free = lists(stream).of_class[size.index];
    void* data;
    if (!free.empty()) {
      data = free.back();
      free.pop_back();
    } else {
      data = from_system(size.bytes, bytes);
      forbid(data, size.bytes);
    }
    allow(data, bytes);  // the rest of the block stays forbidden
    stats_.live_bytes += size.bytes;
    stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.live_bytes);
    return data;
  }

  void deallocate(Stream stream, void* data, size_t bytes) {
    const SizeClass size = size_class(bytes);
    std::lock_guard lock(mutex_);
    forbid(data, size.bytes);
    lists(stream).of_class[size.index].push_back(data);
    stats_.live_bytes -= size.bytes;
  }

  void count(int64_t bytes) {
    std::lock_guard lock(mutex_);
    stats_.live_bytes += bytes;
    stats_.peak_bytes = std::max(stats_.peak_bytes, stats_.live_bytes);
  }

  MemoryStats stats() {
    std::lock_guard lock(mutex_);
    return stats_;
  }
  void reset_peak() {
    std::lock_guard lock(mutex_);
    stats_.peak_bytes = stats_.live_bytes;
  }
  void empty_cache() {
    std::lock_guard lock(mutex_);
    release_cached();
  }

 private:
  // Forbids an address range under AddressSanitizer. Only the CPU's blocks are marked: the streams
  // of other devices still use a block after its owner is gone.
  void forbid([[maybe_unused]] void* data, [[maybe_unused]] size_t bytes) {
    if (device_.type == DeviceType::CPU) ASAN_POISON_MEMORY_REGION(data, bytes);
  }
  void allow([[maybe_unused]] void* data, [[maybe_unused]] size_t bytes) {
    if (device_.type == DeviceType::CPU) ASAN_UNPOISON_MEMORY_REGION(data, bytes);
  }

  FreeLists& lists(Stream stream) {  // the stream is almost always that of the last call
    if (stream.handle != last_handle_ || !last_) {
      last_handle_ = stream.handle;
      last_ = &lists_[stream.handle];
    }
    return *last_;
  }

  void* from_system(size_t block_bytes, size_t wanted) {
    ++stats_.cache_misses;
    void* data = backend_.allocate(device_.index, block_bytes);
    if (!data) {
      release_cached();
      data = backend_.allocate(device_.index, block_bytes);
    }
    CHECK_AS(
        OutOfMemoryError, data != nullptr, current_op(), ": out of memory on ", device_,
        ": asked for ", wanted, " bytes; ", stats_.live_bytes, " bytes are in live tensors (peak ",
        stats_.peak_bytes, "), ", stats_.reserved_bytes - stats_.live_bytes,
        " are kept for recorded steps, none are cached that ",
        "could be given back. A smaller batch, or freeing tensors or recorded steps first, helps");
    stats_.reserved_bytes += block_bytes;
    return data;
  }

  // Frees all blocks except those whose addresses are held by a graph or by a recording in
  // progress.
  void release_cached() {
    for (auto& [handle, lists] : lists_) {
      // The last kernels that use the blocks may still run.
      if (!backend_.settle({device_, handle})) continue;
      for (int index = 0; index < kClasses; ++index) {
        const size_t bytes = bytes_of_class(index);
        std::erase_if(lists.of_class[index], [&](void* data) {
          allow(data, bytes);
          const bool gone = backend_.deallocate(device_.index, data, bytes);
          if (gone)
            stats_.reserved_bytes -= bytes;
          else
            forbid(data, bytes);
          return gone;
        });
      }
    }
  }

  static size_t bytes_of_class(int index) {
    if (index <= 4) return index * kUnit;
    const int shift = (index - 5) / 4;
    return (static_cast<size_t>(index - 4 * shift) << shift) * kUnit;
  }

  const Device device_;
  DeviceBackend& backend_;
  std::mutex mutex_;
  std::map<void*, FreeLists> lists_;
  void* last_handle_ = nullptr;
  FreeLists* last_ = nullptr;
  MemoryStats stats_;
};

DeviceAccount& account(Device device) {
  // Never destroyed, like the backends: tensors may outlive every static object.
  static auto* accounts = [] {
    auto* all = new std::vector<DeviceAccount*>[kDeviceTypes];
    for (int type = 0; type < kDeviceTypes; ++type)
      for (int i = 0; i < device_count(static_cast<DeviceType>(type)) && i < kMaxDevices; ++i)
        all[type].push_back(new DeviceAccount(Device(static_cast<DeviceType>(type), i)));
    return all;
  }();
  auto& of_type = accounts[static_cast<int>(device.type)];
  if (device.index < 0 || device.index >= static_cast<int>(of_type.size()))
    check_device("memory", device);
  return *of_type[device.index];
}

void* allocate_block(Stream stream, size_t bytes) {
  return account(stream.device).allocate(stream, bytes);
}
void deallocate_block(Stream stream, void* data, size_t bytes) {
  account(stream.device).deallocate(stream, data, bytes);
}
BEFORE_MAIN(allocator, register_allocator({allocate_block, deallocate_block}));

}  // namespace

MemoryStats memory_stats(Device device) { return account(device).stats(); }
void count_memory(Device device, int64_t bytes) { account(device).count(bytes); }
void reset_peak_memory(Device device) { account(device).reset_peak(); }
void empty_cache(Device device) { account(device).empty_cache(); }

}  // namespace ringgrad
