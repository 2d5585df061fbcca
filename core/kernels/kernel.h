// Kernel<void(Args...)>: one named primitive with a slot for each device type and provider.
//
// A kernel is declared in core/kernels.h, where its contract stands, and filled by REGISTER_KERNEL
// from the file that implements it, so this layer never names CUDA or a vendor library:
//
//   static void exp_cpu(Stream stream, const Tensor& y, const Tensor& x) { ... }
//   REGISTER_KERNEL(exp, CPU, Native, exp_cpu);
//
// A call names no device and no stream: kernels::exp(y, x) runs where its first tensor lives, on
// that device's current stream, which the implementation receives as its first argument. The tables
// are constinit, and registration comes before a program's own initialisers, so that its global
// tensors find every kernel.
//
// A vendor's implementation stands beside a native one and returns whether its library has a kernel
// for the call; if it returns false, the native one runs and overwrites its outputs. Because both
// may be run to see which is faster, only kernels that overwrite their outputs, read nothing of
// them and allow no output among the inputs may have one; their contracts say kVendorToo. An
// argument that both runs may not share has a member when_timed(), whose result replaces it while
// the kernels are timed.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <variant>
#include <vector>

#include "ringgrad/core/base/before_main.h"
#include "ringgrad/core/kernels/geometry.h"
#include "ringgrad/core/tensor.h"

namespace ringgrad {

enum class Provider : uint8_t {
  // Ours, written for speed.
  Native,
  // oneDNN on the CPU, cuBLAS and cuDNN on CUDA.
  Vendor,
  // The definition, on the CPU: each formula as the loops that it says (core/reference/).
  Reference,
  // A choice, not an implementation: of the first two, the one measured to be faster (autotune.h).
  Fastest,
};
inline constexpr int kProviders = 3;  // that implement kernels
const char* name(Provider provider);

// Which provider kernels use where there are several, on every thread; nullopt for the default,
// which is native on the CPU and the fastest on CUDA. A kernel without a vendor's implementation is
// native then, too; a native one that is missing is the reference. Reference takes no other's
// place: where it has none, a call throws NotImplementedError. A setting of the process.
void set_provider(std::optional<Provider> provider);

// The same for this thread alone and the guard's lifetime; none: as if it had no guard.
class ProviderGuard {
 public:
  explicit ProviderGuard(std::optional<Provider> provider);
  ~ProviderGuard();
  ProviderGuard(const ProviderGuard&) = delete;

 private:
  std::optional<Provider> previous_;
};

std::optional<Provider> provider_of_thread();  // that a guard has set

// What holds for this thread's kernels on a type of device.
Provider preferred_provider(DeviceType device);

// The libraries behind the vendor implementations of this build, for people: "oneDNN 2.6.3". The
// files that use one say so before main.
bool add_vendor_library(DeviceType device, const std::string& library);
const std::vector<std::string>& vendor_libraries(DeviceType device);

// The part of a kernel that does not depend on its signature: what `doctor` and the completeness
// test look at.
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
  // The reference where this thread prefers it or there is no native implementation, else the
  // native one. Throws NotImplementedError naming the kernel when there is none.
  AnyFunction own_slot(DeviceType device) const;

 private:
  const char* name_;
  const KernelBase* next_ = nullptr;
  std::array<std::array<AnyFunction, kProviders>, kDeviceTypes> slots_{};
};
const KernelBase* first_kernel();

// An argument of a call, for who looks at calls of all kernels; monostate: of another type, on
// which no speed depends.
using CallArgument = std::variant<std::monostate, const Tensor*, int64_t, double, bool, Pair,
                                  const Conv2dOptions*, const Pool2dOptions*>;
template <class T>
CallArgument as_argument(const T& value) {
  if constexpr (std::is_constructible_v<CallArgument, const T*>)
    return &value;
  else if constexpr (std::is_constructible_v<CallArgument, T>)
    return value;
  else
    return {};
}
// Valid while the call lasts.
struct ObservedCall {
  const KernelBase& kernel;
  Stream stream;
  std::span<const CallArgument> arguments;

  // nullptr where argument i is none, or undefined.
  const Tensor* tensor(size_t i) const {
    const auto* tensor = std::get_if<const Tensor*>(&arguments[i]);
    return tensor && **tensor ? *tensor : nullptr;
  }
};

// Chooses between a kernel's two providers for Provider::Fastest: true for the vendor's. autotune.h
// says what the functions are, and registers itself; without it the native one is chosen.
using VendorChoice = bool (*)(const ObservedCall& call, const std::function<void(Stream)>& native,
                              const std::function<bool(Stream)>& vendor);
bool register_vendor_choice(VendorChoice choice);
bool is_vendor_chosen(const ObservedCall& call, const std::function<void(Stream)>& native,
                      const std::function<bool(Stream)>& vendor);

// Throws where this machine cannot run the CPU's kernels, as the registered check says
// (core/cpu/isa.cpp).
void check_cpu_kernels();
using CpuCheck = void (*)();
bool register_cpu_check(CpuCheck check);

// Stands between its thread and the kernels that it calls, to measure them:
// core/kernels/kernel_profile.h.
class KernelObserver {
 public:
  virtual ~KernelObserver() = default;
  // Calls run(), which is the kernel's implementation, once.
  virtual void call(const ObservedCall& call, const std::function<void()>& run) = 0;

  static KernelObserver* current() { return current_; }  // this thread's; null: none
  static void set_current(KernelObserver* observer) { current_ = observer; }

 private:
  static inline constinit thread_local KernelObserver* current_ = nullptr;
};

// Of a contract that a vendor's library may fill as well: Kernel<void(...), kVendorToo>.
inline constexpr bool kVendorToo = true;

template <class Signature, bool kVendor = false>
class Kernel;

template <class... Args, bool kVendor>
class Kernel<void(Args...), kVendor> : public KernelBase {
 public:
  template <Provider provider>
  using Implementation = std::conditional_t<provider == Provider::Vendor, bool, void> (*)(Stream,
                                                                                          Args...);

  constexpr explicit Kernel(const char* name) : KernelBase(name) {}

  template <Provider provider>
  bool set(DeviceType device, Implementation<provider> function) {
    static_assert(provider != Provider::Vendor || kVendor, "the contract does not say kVendorToo");
    return set_slot(device, provider, reinterpret_cast<AnyFunction>(function));
  }

  void operator()(std::type_identity_t<Args>... args) const {
    const Stream stream = current_stream(device_of(args...));
    KernelObserver* const observer = KernelObserver::current();
    if (!observer) return run(stream, args...);
    const CallArgument arguments[] = {as_argument(args)...};
    observer->call({*this, stream, arguments}, [&] { run(stream, args...); });
  }

 private:
  using Own = Implementation<Provider::Native>;
  using Vendor = Implementation<Provider::Vendor>;

  void run(Stream stream, std::type_identity_t<Args>... args) const {
    const auto own = reinterpret_cast<Own>(own_slot(stream.device.type));
    if constexpr (kVendor) {
      const AnyFunction vendor = slot(stream.device.type, Provider::Vendor);
      if (vendor && by_vendor(reinterpret_cast<Vendor>(vendor), own, stream, args...)) return;
    }
    own(stream, args...);
  }

  // Runs the vendor's implementation if that is wanted, and says whether that has done it.
  bool by_vendor(Vendor vendor, Own native, Stream stream,
                 std::type_identity_t<Args>... args) const {
    const Provider wanted = preferred_provider(stream.device.type);
    if (wanted == Provider::Native || wanted == Provider::Reference) return false;
    if (wanted == Provider::Vendor) return vendor(stream, args...);
    const CallArgument arguments[] = {as_argument(args)...};
    return is_vendor_chosen(
               {*this, stream, arguments}, [&](Stream on) { native(on, when_timed(args)...); },
               [&](Stream on) { return vendor(on, when_timed(args)...); }) &&
           vendor(stream, args...);
  }

  template <class T>
  static decltype(auto) when_timed(const T& argument) {
    if constexpr (requires { argument.when_timed(); })
      return argument.when_timed();
    else
      return (argument);
  }
  template <class... Rest>
  static Device device_of(const Tensor& first, const Rest&...) {
    return first.device();
  }
};

#define REGISTER_KERNEL(kernel, device, provider, function) \
  BEFORE_MAIN(function, kernels::kernel.set<Provider::provider>(DeviceType::device, function))

}  // namespace ringgrad
