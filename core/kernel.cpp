#include "core/kernel.h"

#include "core/check.h"

namespace ringgrad {
namespace {

constinit const KernelBase* kernels_head = nullptr;
constinit thread_local Provider preferred = Provider::Native;

}  // namespace

const char* name(Provider provider) { return provider == Provider::Native ? "native" : "vendor"; }

Provider preferred_provider() { return preferred; }
ProviderGuard::ProviderGuard(Provider provider) : previous_(preferred) { preferred = provider; }
ProviderGuard::~ProviderGuard() { preferred = previous_; }

const KernelBase* first_kernel() { return kernels_head; }

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

KernelBase::AnyFunction KernelBase::select(DeviceType device) const {
  if (AnyFunction function = slot(device, preferred)) return function;
  const Provider other = preferred == Provider::Native ? Provider::Vendor : Provider::Native;
  AnyFunction function = slot(device, other);
  CHECK_AS(NotImplementedError, function != nullptr, name_, ": no implementation for ", ringgrad::name(device),
           " tensors in this build");
  return function;
}

}  // namespace ringgrad
