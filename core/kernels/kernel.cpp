#include "ringgrad/core/kernels/kernel.h"

#include <atomic>

#include "ringgrad/core/base/check.h"

namespace ringgrad {
namespace {

constinit const KernelBase* kernels_head = nullptr;
std::atomic<std::optional<Provider>> of_process;
constinit thread_local std::optional<Provider> of_thread;

}  // namespace

const char* name(Provider provider) {
  static constexpr std::array kNames = {"native", "vendor", "reference", "fastest"};
  return kNames[static_cast<size_t>(provider)];
}

void set_provider(std::optional<Provider> provider) { of_process = provider; }
ProviderGuard::ProviderGuard(std::optional<Provider> provider)
    : previous_(std::exchange(of_thread, provider)) {}
ProviderGuard::~ProviderGuard() { of_thread = previous_; }
std::optional<Provider> provider_of_thread() { return of_thread; }

Provider preferred_provider(DeviceType device) {
  if (of_thread) return *of_thread;
  if (const std::optional<Provider> provider = of_process) return *provider;
  return device == DeviceType::CPU ? Provider::Native : Provider::Fastest;
}

const KernelBase* first_kernel() { return kernels_head; }

bool is_vendor_chosen(const ObservedCall& call, const std::function<void(Stream)>& native,
                      const std::function<bool(Stream)>& vendor) {
  return vendor_choice && vendor_choice(call, native, vendor);
}

void check_cpu_kernels() {
  if (cpu_check) cpu_check();
}

bool KernelBase::set_slot(DeviceType device, Provider provider, AnyFunction function) {
  bool first = true;
  for (const auto& providers : slots_)
    for (AnyFunction filled : providers) first = first && !filled;
  if (first) {
    next_ = kernels_head;
    kernels_head = this;
  }
  slots_[static_cast<int>(device)][static_cast<int>(provider)] = function;
  return true;
}

KernelBase::AnyFunction KernelBase::own_slot(DeviceType device) const {
  const bool wants_reference = preferred_provider(device) == Provider::Reference;
  const AnyFunction native = slot(device, Provider::Native);
  const AnyFunction function =
      wants_reference || !native ? slot(device, Provider::Reference) : native;
  CHECK_AS(NotImplementedError, function != nullptr || !wants_reference, name_,
           ": no reference implementation for ", ringgrad::name(device),
           " tensors; the reference kernels run on the CPU");
  CHECK_AS(NotImplementedError, function != nullptr, name_, ": no implementation for ",
           ringgrad::name(device), " tensors in this build");
  return function;
}

}  // namespace ringgrad
