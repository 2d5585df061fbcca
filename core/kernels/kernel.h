// Kernel<void(Args...)>: one named primitive with a slot for each device type and provider.
//
// core/kernels.h declares a kernel and states its contract. The file that implements it fills the
// slot with REGISTER_KERNEL, so this layer never names CUDA or a vendor library:
//
//   static void exp_cpu(Stream stream, const Tensor& y, const Tensor& x) { ... }
//   REGISTER_KERNEL(exp, CPU, Native, exp_cpu);
//
// A call names no device and no stream. kernels::exp(y, x) runs on the device of its first tensor,
// on that device's current stream, which the implementation receives as its first argument. The
// tables are constinit, and registration comes before a program's own initialisers, so that its
// global tensors find every kernel.
//
// A vendor's implementation stands beside a native one. It returns true if its library has a kernel
// for the call; otherwise the native one runs and overwrites its outputs. Autotuning runs both to
// see which is faster. So a kernel may have a vendor's implementation only if it overwrites its
// outputs, does not read them and allows no output among its inputs. The contracts of such kernels
// say kVendorToo. An argument that both runs may not share has a member when_timed(), whose result
// replaces it while the kernels are timed.
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
  // This library's kernels, written for speed.
  Native,
  // oneDNN on the CPU, cuBLAS and cuDNN on CUDA.
  Vendor,
  // The definition, on the CPU: loops that follow each formula literally (core/reference/).
  Reference,
  // Not an implementation: autotune.h chooses the faster of the first two by measurement.
  Fastest,
};
inline constexpr int kProviders = 3;  // Fastest is not one of them
const char* name(Provider provider);

// Sets the provider that kernels use on every thread if they have several. nullopt restores the
// default: Native on the CPU and Fastest on CUDA. A kernel without a vendor's implementation uses
// the native one, and without a native one the reference. Nothing replaces the reference: if it is
// chosen and missing, a call throws NotImplementedError. The setting holds for the process.
void set_provider(std::optional<Provider> provider);

// Does the same for this thread only, while the guard lives. nullopt cancels an outer guard.
class ProviderGuard {
 public:
  explicit ProviderGuard(std::optional<Provider> provider);
  ~ProviderGuard();
  ProviderGuard(const ProviderGuard&) = delete;

 private:
  std::optional<Provider> previous_;
};

std::optional<Provider> provider_of_thread();  // set by a guard; nullopt: none

// Returns the provider that applies to this thread's kernels on a type of device.
Provider preferred_provider(DeviceType device);

// The vendor libraries of this build, for the user: "oneDNN 2.6.3". The files that use one add it
// before main.
bool add_vendor_library(DeviceType device, const std::string& library);
const std::vector<std::string>& vendor_libraries(DeviceType device);

// The part of a kernel that does not depend on its signature. `doctor` and the completeness test
// read it.
class KernelBase {
 public:
  const char* name() const { return name_; }
  bool has(DeviceType device, Provider provider) const { return slot(device, provider) != nullptr; }
  // Returns the next kernel that has any implementation, or nullptr at the end. Begin with
  // first_kernel().
  const KernelBase* next() const { return next_; }

 protected:
  using AnyFunction = void (*)();
  constexpr explicit KernelBase(const char* name) : name_(name) {}
  AnyFunction slot(DeviceType device, Provider provider) const {
    return slots_[static_cast<int>(device)][static_cast<int>(provider)];
  }
  bool set_slot(DeviceType device, Provider provider, AnyFunction function);
  // Returns the reference if this thread prefers it or if there is no native implementation, and
  // otherwise the native one. Throws NotImplementedError that names the kernel if there is neither.
  AnyFunction own_slot(DeviceType device) const;

 private:
  const char* name_;
  const KernelBase* next_ = nullptr;
  std::array<std::array<AnyFunction, kProviders>, kDeviceTypes> slots_{};
};
const KernelBase* first_kernel();

// An argument of a call, for observers of all kernels. monostate stands for other types; the speed
// does not depend on them.
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
// It is valid while the call lasts.
struct ObservedCall {
  const KernelBase& kernel;
  Stream stream;
  std::span<const CallArgument> arguments;

  // Returns nullptr if argument i is not a tensor, or is undefined.
  const Tensor* tensor(size_t i) const {
    const auto* tensor = std::get_if<const Tensor*>(&arguments[i]);
    return tensor && **tensor ? *tensor : nullptr;
  }
};

// Chooses between a kernel's two providers for Provider::Fastest. True means the vendor's.
// autotune.cpp sets the choice before main; autotune.h describes the two functions. Without it the
// native one is chosen.
using VendorChoice = bool (*)(const ObservedCall& call, const std::function<void(Stream)>& native,
                              const std::function<bool(Stream)>& vendor);
inline constinit VendorChoice vendor_choice = nullptr;
bool is_vendor_chosen(const ObservedCall& call, const std::function<void(Stream)>& native,
                      const std::function<bool(Stream)>& vendor);

// check_cpu_kernels() throws if this machine cannot run the CPU's kernels. core/cpu/isa.cpp sets
// the check before main. Without it every machine can.
using CpuCheck = void (*)();
inline constinit CpuCheck cpu_check = nullptr;
void check_cpu_kernels();

// Is called around every kernel of its thread, to measure it: core/kernels/kernel_profile.h.
class KernelObserver {
 public:
  virtual ~KernelObserver() = default;
  // Calls run(), which is the kernel's implementation, once.
  virtual void call(const ObservedCall& call, const std::function<void()>& run) = 0;

  static KernelObserver* current() { return current_; }  // this thread's observer, or null
  static void set_current(KernelObserver* observer) { current_ = observer; }

 private:
  static inline constinit thread_local KernelObserver* current_ = nullptr;
};

// Marks a contract that a vendor's library may implement as well: Kernel<void(...), kVendorToo>.
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

  // Runs the vendor's implementation if it is wanted. Returns true if that has done the work.
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
