#include "ringgrad/core/device.h"

#include <array>
#include <ostream>

#include <sched.h>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/environment.h"
#include "ringgrad/core/device/cpu_division.h"
#include "ringgrad/core/device/device_backend.h"

namespace ringgrad {
namespace {

constinit std::array<DeviceBackend*, kDeviceTypes> backends{};

void* allocate_from_system(Stream stream, size_t bytes) {
  void* data = device_backend(stream.device.type).allocate(stream.device.index, bytes);
  CHECK_AS(OutOfMemoryError, data != nullptr, current_op(), ": out of memory on ", stream.device,
           ": asked for ", bytes, " bytes");
  return data;
}
void deallocate_to_system(Stream stream, void* data, size_t bytes) {
  device_backend(stream.device.type).deallocate(stream.device.index, data, bytes);
}
constinit Allocator allocator = {allocate_from_system, deallocate_to_system};

}  // namespace

const char* name(DeviceType type) { return type == DeviceType::CPU ? "cpu" : "cuda"; }

std::ostream& operator<<(std::ostream& out, Device device) {
  return out << name(device.type) << ':' << std::to_string(device.index);
}

int device_count(DeviceType type) {
  const DeviceBackend* backend = backends[static_cast<int>(type)];
  return backend ? backend->count() : 0;
}

std::string why_no_device(DeviceType type) {
  const DeviceBackend* backend = backends[static_cast<int>(type)];
  return backend ? backend->why_none()
                 : str("this program was built without ", name(type), " support");
}

void check_device(const char* operation, Device device) {
  const int count = device_count(device.type);
  CHECK_AS(DeviceError, count > 0, operation, ": no ", name(device.type),
           " device: ", why_no_device(device.type),
           device.is_cuda() ? "; build for GPUs with cmake --preset cuda, "
                              "or emulate one on the CPU, slowly: ./go --emulated"
                            : "");
  CHECK_AS(DeviceError, device.index >= 0 && device.index < count, operation, ": device ", device,
           " does not exist, expected an index below ", count,
           device.is_cpu() ? " (RINGGRAD_CPU_DEVICES sets the number of logical CPU devices)" : "");
}

namespace {

ProcessNumber threads("RINGGRAD_THREADS", 1, 1024);

}  // namespace

int cpu_cores() {
  static const int cores = [] {
    cpu_set_t allowed;
    return threads.get(sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed)
                                                                           : 1);
  }();
  return cores;
}

void set_cpu_cores(int n) { threads.set(n); }

void register_backend(DeviceType type, DeviceBackend* backend) {
  backends[static_cast<int>(type)] = backend;
}

DeviceBackend& device_backend(DeviceType type) {
  DeviceBackend* backend = backends[static_cast<int>(type)];
  CHECK_AS(DeviceError, backend != nullptr, "device: this program was built without ", name(type),
           " support");
  return *backend;
}

Stream current_stream(Device device) {
  for (const StreamGuard* guard = StreamGuard::innermost_; guard; guard = guard->outer_)
    if (guard->stream_.device == device) return guard->stream_;
  return device_backend(device.type).default_stream(device.index);
}

void synchronize(Stream stream) { device_backend(stream.device.type).synchronize(stream); }

void register_allocator(Allocator registered) { allocator = registered; }
void* allocate(Stream stream, size_t bytes) { return allocator.allocate(stream, bytes); }
void deallocate(Stream stream, void* data, size_t bytes) {
  allocator.deallocate(stream, data, bytes);
}

}  // namespace ringgrad
