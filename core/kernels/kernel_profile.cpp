#include "ringgrad/core/kernels/kernel_profile.h"

#include <algorithm>
#include <utility>

#include "ringgrad/core/device/device_backend.h"
#include "ringgrad/core/kernels.h"

namespace ringgrad {
namespace {

double bytes_of(const Tensor& t) {
  int64_t elements = t.flat_numel();  // with the padding of a channel-blocked tensor
  if (elements == 0 && t.numel() > 0) {
    elements = 1;  // an expanded dimension repeats the same elements
    for (int d = 0; d < t.dim(); ++d) elements *= t.stride(d) == 0 ? 1 : t.size(d);
  }
  return static_cast<double>(elements) * static_cast<double>(itemsize(t.dtype()));
}

// Each element of y [N, K, P, Q] is a sum of as many products as a filter of w [K, C, R, S] has
// weights.
double convolution_operations(const Tensor& y, const Tensor& w) {
  return w.numel() == 0
             ? 0
             : 2.0 * static_cast<double>(y.numel()) * static_cast<double>(w.numel() / w.size(0));
}

double operations_of(const KernelBase& kernel, std::span<const Tensor* const> arguments) {
  if (&kernel == &kernels::conv2d) return convolution_operations(*arguments[0], *arguments[2]);
  if (&kernel == &kernels::conv2d_backward_input)
    return convolution_operations(*arguments[1], *arguments[2]);
  if (&kernel == &kernels::conv2d_backward_weight)
    return convolution_operations(*arguments[1], *arguments[0]);
  if (&kernel == &kernels::matmul)
    return 2.0 * static_cast<double>(arguments[0]->numel()) *
           static_cast<double>(arguments[1]->size(2));
  return 0;
}

}  // namespace

KernelProfile::KernelProfile() : previous_(current()) { set_current(this); }
KernelProfile::~KernelProfile() { set_current(previous_); }

void KernelProfile::call(const KernelBase& kernel, Stream stream,
                         std::span<const Tensor* const> arguments,
                         const std::function<void()>& run) {
  KernelCall call{kernel.name(), arguments[0]->dtype(), 0, operations_of(kernel, arguments), 0};
  for (const Tensor* argument : arguments)
    if (argument) call.bytes += bytes_of(*argument);
  const Sum siblings = std::exchange(inner_, {});
  DeviceBackend& device = device_backend(stream.device.type);
  double ms = 0;
  if (device.capturing()) {
    run();
  } else {
    synchronize(stream);
    const auto timer = device.start_timer(stream);
    run();
    timer->stop();
    ms = timer->milliseconds();
  }
  // What it called may have read and written more than its own arguments: it has nothing left to do
  // then.
  const Sum whole{ms, std::max(call.operations, inner_.operations),
                  std::max(call.bytes, inner_.bytes)};
  call.milliseconds = ms - inner_.milliseconds;
  call.operations = whole.operations - inner_.operations;
  call.bytes = whole.bytes - inner_.bytes;
  inner_ = {siblings.milliseconds + whole.milliseconds, siblings.operations + whole.operations,
            siblings.bytes + whole.bytes};
  calls_.push_back(call);
}

}  // namespace ringgrad
