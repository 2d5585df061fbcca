// Kernel<void(Args...)>: one named primitive with a slot for each device type and provider.
//
// A kernel is declared in core/kernels.h, where its contract stands, and filled by REGISTER_KERNEL from the file that
// implements it, so this layer never names CUDA or a vendor library:
//
//   static void exp_cpu(Stream stream, const Tensor& y, const Tensor& x) { ... }
//   REGISTER_KERNEL(exp, DeviceType::CPU, Provider::Native, exp_cpu);
//
// A call names no device and no stream: kernels::exp(y, x) runs where its first tensor lives, on that device's current
// stream, which the implementation receives as its first argument. The tables are constinit, so registration works in
// any order before main.
#pragma once

#include <array>
#include <functional>
#include <span>
#include <type_traits>

#include "core/stream.h"
#include "core/tensor.h"

namespace ringgrad {

enum class Provider : uint8_t {
  Native,  // ours: readable, the definition
  Vendor,  // oneDNN on the CPU, cuBLAS and cuDNN on CUDA
};
inline constexpr int kProviders = 2;
const char* name(Provider provider);

// Which provider this thread's kernels use where both exist: by default the native one.
class ProviderGuard {
 public:
  explicit ProviderGuard(Provider provider);
  ~ProviderGuard();
  ProviderGuard(const ProviderGuard&) = delete;

 private:
  Provider previous_;
};
Provider preferred_provider();

// The part of a kernel that does not depend on its signature: what `doctor` and the completeness test look at.
class KernelBase {
 public:
  const char* name() const { return name_; }
  bool has(DeviceType device, Provider provider) const { return slot(device, provider) != nullptr; }
  // The next kernel that has any implementation; nullptr at the end. Start at first_kernel().
  const KernelBase* next() const { return next_; }

 protected:
  using AnyFunction = void (*)();
  constexpr explicit KernelBase(const char* name) : name_(name) {}
  AnyFunction slot(DeviceType device, Provider provider) const {
    return slots_[static_cast<int>(device)][static_cast<int>(provider)];
  }
  bool set_slot(DeviceType device, Provider provider, AnyFunction function);
  // The preferred implementation for a device type; throws NotImplementedError naming the kernel when there is none.
  AnyFunction select(DeviceType device) const;

 private:
  const char* name_;
  const KernelBase* next_ = nullptr;
  std::array<std::array<AnyFunction, kProviders>, kDeviceTypes> slots_{};
};
const KernelBase* first_kernel();

// Stands between its thread and the kernels that it calls, to measure them: core/kernel_profile.h.
class KernelObserver {
 public:
  virtual ~KernelObserver() = default;
  // Calls run(), which is the kernel's implementation, once. `arguments`: the call's, in order; null where one is not a
  // tensor, or undefined.
  virtual void call(const KernelBase& kernel, Stream stream, std::span<const Tensor* const> arguments,
                    const std::function<void()>& run) = 0;

  static KernelObserver* current() { return current_; }  // this thread's; null: none
  static void set_current(KernelObserver* observer) { current_ = observer; }

 private:
  static inline constinit thread_local KernelObserver* current_ = nullptr;
};

template <class Signature>
class Kernel;

template <class... Args>
class Kernel<void(Args...)> : public KernelBase {
 public:
  using Implementation = void (*)(Stream, Args...);

  constexpr explicit Kernel(const char* name) : KernelBase(name) {}

  bool set(DeviceType device, Provider provider, Implementation function) {
    return set_slot(device, provider, reinterpret_cast<AnyFunction>(function));
  }

  void operator()(std::type_identity_t<Args>... args) const {
    const Stream stream = current_stream(device_of(args...));
    KernelObserver* const observer = KernelObserver::current();
    if (!observer) return run(stream, args...);
    const Tensor* const arguments[] = {defined_tensor(args)...};
    observer->call(*this, stream, arguments, [&] { run(stream, args...); });
  }

 private:
  void run(Stream stream, std::type_identity_t<Args>... args) const {
    reinterpret_cast<Implementation>(select(stream.device.type))(stream, args...);
  }
  static const Tensor* defined_tensor(const Tensor& tensor) { return tensor ? &tensor : nullptr; }
  template <class T>
  static const Tensor* defined_tensor(const T&) {
    return nullptr;
  }
  template <class... Rest>
  static Device device_of(const Tensor& first, const Rest&...) {
    return first.device();
  }
};

#define REGISTER_KERNEL(kernel, device, provider, function) \
  [[maybe_unused]] static const bool function##_registered = kernels::kernel.set(device, provider, function)

}  // namespace ringgrad
