// Emulated devices and the error state of the calling thread.
#include <cuda_runtime_api.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <set>
#include <utility>

#include "ringgrad/core/error.h"
#include "ringgrad/cuda_kernels/emulator/runtime.h"

namespace ringgrad::emulator {
namespace {

constinit thread_local int device_of_thread = 0;
constinit thread_local cudaError_t last_error = cudaSuccess;

struct Detail {
  cudaError_t error = cudaSuccess;  // the error that `text` belongs to
  std::string text;
  std::string message;
};
thread_local Detail last_detail;

struct ErrorText {
  cudaError_t error;
  const char* name;
  const char* text;
};
constexpr ErrorText kErrors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
     "invalid configuration argument"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection",
     "invalid copy direction for memcpy"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorPeerAccessAlreadyEnabled, "cudaErrorPeerAccessAlreadyEnabled",
     "peer access is already enabled"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched",
     "the capture was not initiated in this stream"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined",
     "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {cudaErrorCapturedEvent, "cudaErrorCapturedEvent",
     "operation not permitted on an event last recorded in a capturing stream"},
};

const ErrorText& describe(cudaError_t error) {
  for (const ErrorText& entry : kErrors)
    if (entry.error == error) return entry;
  return kErrors[1];
}

}  // namespace

int current_device() {
  auto& devices = Runtime::instance().devices;
  if (!devices.empty()) devices[static_cast<size_t>(device_of_thread)].context = true;
  return device_of_thread;
}

bool has_context(int device) {
  return Runtime::instance().devices[static_cast<size_t>(device)].context;
}

cudaError_t fail(cudaError_t error, const std::string& detail) {
  last_error = error;
  last_detail = {error, detail, {}};
  return error;
}

Runtime& Runtime::instance() {
  static auto* runtime = new Runtime;
  return *runtime;
}

Runtime::Runtime() : devices(static_cast<size_t>(config().devices)) {
  for (size_t i = 0; i < devices.size(); ++i) {
    devices[i].null_stream = std::make_shared<CUstream_st>();
    devices[i].null_stream->device = static_cast<int>(i);
  }
}

cudaError_t refuse_if_lost(int device) {
  if (config().device_lost) return fail(cudaErrorLaunchFailure, "the device is lost");
  const auto& devices = Runtime::instance().devices;
  const std::string* failure =
      devices.empty() ? nullptr : devices[static_cast<size_t>(device)].failure.load();
  return failure ? fail(cudaErrorLaunchFailure, *failure) : cudaSuccess;
}
cudaError_t refuse_if_lost() { return refuse_if_lost(device_of_thread); }

void revive_devices() {
  for (DeviceState& device : Runtime::instance().devices) delete device.failure.exchange(nullptr);
  last_error = cudaSuccess;
}

}  // namespace ringgrad::emulator

using namespace ringgrad::emulator;

const char* cudaGetErrorName(cudaError_t error) { return describe(error).name; }

const char* cudaGetErrorString(cudaError_t error) {
  const char* text = describe(error).text;
  if (last_detail.error != error || last_detail.text.empty()) return text;
  last_detail.message = std::string(text) + ": " + last_detail.text;
  return last_detail.message.c_str();
}

cudaError_t cudaGetLastError() {
  refuse_if_lost();  // an error that stays
  return std::exchange(last_error, cudaSuccess);
}

cudaError_t cudaGetDeviceCount(int* count) {
  *count = static_cast<int>(Runtime::instance().devices.size());
  return *count ? cudaSuccess
                : fail(cudaErrorNoDevice,
                       "they are emulated on the CPU, as many as RINGGRAD_CUDA_DEVICES says (0)");
}

static bool exists(int device) {
  return device >= 0 && device < static_cast<int>(Runtime::instance().devices.size());
}

cudaError_t cudaSetDevice(int device) {
  if (!exists(device)) return fail(cudaErrorInvalidDevice);
  if (const cudaError_t error = refuse_if_lost(device)) return error;
  device_of_thread = device;
  current_device();  // since CUDA 12 this also creates the context
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  if (const cudaError_t error = refuse_if_lost()) return error;
  *device = device_of_thread;
  return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int* possible, int device, int peer) {
  if (!exists(device) || !exists(peer)) return fail(cudaErrorInvalidDevice);
  *possible = device != peer;
  return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
  static std::set<std::pair<int, int>> enabled;
  if (!exists(peer) || peer == current_device()) return fail(cudaErrorInvalidDevice);
  if (flags != 0) return fail(cudaErrorInvalidValue);
  std::lock_guard lock(Runtime::instance().mutex);
  return enabled.emplace(current_device(), peer).second ? cudaSuccess
                                                        : fail(cudaErrorPeerAccessAlreadyEnabled);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (!exists(device)) return fail(cudaErrorInvalidDevice);
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "emulated on the CPU");
  return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  if (!exists(device)) return fail(cudaErrorInvalidDevice);
  constexpr int kHopper = 9;
  switch (attribute) {
    case cudaDevAttrMultiProcessorCount: *value = config().multiprocessors; break;
    case cudaDevAttrComputeCapabilityMajor: *value = kHopper; break;
    default: return fail(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}

long long clock64() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

cudaError_t cudaDeviceSynchronize() {
  if (const cudaError_t error = forbid_while_capturing("cudaDeviceSynchronize", current_device()))
    return error;
  Runtime::instance().drain_device(current_device());
  return refuse_if_lost();
}
