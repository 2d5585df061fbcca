// Logical CPU devices. Their memory comes from the C library (huge pages for large blocks), and
// each device has its own threads.
#include <cstdlib>
#include <fstream>
#include <memory>
#include <mutex>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

#include "ringgrad/core/base/before_main.h"
#include "ringgrad/core/base/environment.h"
#include "ringgrad/core/device/cpu_division.h"
#include "ringgrad/core/device/device_backend.h"
#include "ringgrad/core/device/parallel.h"
#include "ringgrad/core/kernels/kernel.h"

namespace ringgrad {
namespace {

constexpr size_t kAlignment = 64;              // a cache line, and an AVX-512 register
constexpr size_t kHugePage = size_t{2} << 20;  // blocks of at least two are aligned to it

ProcessNumber cpu_devices("RINGGRAD_CPU_DEVICES", 1, 64);

void run_in_turn(void*, int64_t units, void (*body)(void*, int64_t), void* context) {
  for (int64_t unit = 0; unit < units; ++unit) body(context, unit);
}
constinit CpuThreads threads = {[](int) -> void* { return &threads; }, run_in_turn};

class CpuBackend : public DeviceBackend {
 public:
  int count() const override {
    static const int devices = cpu_devices.get(1);
    return devices;
  }

  std::string describe(int) const override {
    static const std::string processor = [] {
      Classic<std::ifstream> file("/proc/cpuinfo");
      for (std::string line; std::getline(file, line);)
        if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
      return std::string("CPU");
    }();
    return processor;
  }

  void* allocate(int, size_t bytes) override {
    const size_t alignment = bytes >= 2 * kHugePage ? kHugePage : kAlignment;
    void* data = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    // This is advice; the system may refuse it.
    if (data && alignment == kHugePage) madvise(data, bytes, MADV_HUGEPAGE);
    return data;
  }
  bool deallocate(int, void* data, size_t) override {
    std::free(data);
    return true;
  }
  size_t free_memory(int) const override {
    return static_cast<size_t>(sysconf(_SC_AVPHYS_PAGES)) *
           static_cast<size_t>(sysconf(_SC_PAGESIZE));
  }

  Stream default_stream(int index) override {
    std::call_once(once_, [this] {
      check_cpu_kernels();
      for (int i = 0; i < count(); ++i)  // the cores are divided, at least one each
        threads_.push_back(threads.make(std::max(1, cpu_cores() / count())));
    });
    check_device("stream", Device(DeviceType::CPU, index));
    return {Device(DeviceType::CPU, index), threads_[index]};
  }
  void synchronize(Stream) override {}  // kernels on the CPU have finished when they return
  std::unique_ptr<DeviceGraph> capture(int, const std::function<void()>&) override {
    throw NotImplementedError(
        "capture: the CPU has no graphs; its kernels run when they are called");
  }

 private:
  std::once_flag once_;
  std::vector<void*> threads_;
};

// The backend is never destroyed: tensors with static storage duration may be freed after
// everything else.
BEFORE_MAIN(cpu, register_backend(DeviceType::CPU, new CpuBackend));

}  // namespace

void register_cpu_threads(CpuThreads registered) { threads = registered; }
void detail::run_units(Stream stream, int64_t units, void (*body)(void*, int64_t), void* context) {
  threads.run_units(stream.handle, units, body, context);
}

void set_cpu_devices(int n) { cpu_devices.set(n); }

}  // namespace ringgrad
