#include "ringgrad/core/kernels/kernel_profile.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "ringgrad/core/device/device_backend.h"
#include "ringgrad/core/device/timer.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/core/kernels/conv_batch_norm.h"
#include "ringgrad/core/kernels/conv_plan.h"

namespace ringgrad {
namespace {

double bytes_of(const Tensor& t) {
  int64_t elements = t.flat_numel();  // includes the padding of a channel-blocked tensor
  if (elements == 0 && t.numel() > 0) {
    elements = 1;  // an expanded dimension repeats the same elements
    for (int d = 0; d < t.dim(); ++d) elements *= t.stride(d) == 0 ? 1 : t.size(d);
  }
  return static_cast<double>(elements) * static_cast<double>(itemsize(t.dtype()));
}

// Each element of y [N, K, P, Q] is a sum of products, one for each weight of a filter of w [K, C,
// R, S].
double convolution_operations(const Tensor& y, const Tensor& w) {
  return w.numel() == 0
             ? 0
             : 2.0 * static_cast<double>(y.numel()) * static_cast<double>(w.numel() / w.size(0));
}

double operations_of(const ObservedCall& call) {
  const auto tensor = [&call](size_t i) -> const Tensor& { return *call.tensor(i); };
  if (&call.kernel == &kernels::conv2d) return convolution_operations(tensor(0), tensor(2));
  if (&call.kernel == &kernels::conv2d_backward_input)
    return convolution_operations(tensor(1), tensor(2));
  if (&call.kernel == &kernels::conv2d_backward_weight)
    return convolution_operations(tensor(1), tensor(0));
  if (&call.kernel == &kernels::conv2d_batch_stats)
    return convolution_operations(tensor(0), tensor(4));
  if (&call.kernel == &kernels::conv2d_backward_batch_sums)
    return convolution_operations(tensor(3), tensor(4));
  if (&call.kernel == &kernels::matmul)
    return 2.0 * static_cast<double>(tensor(0).numel()) * static_cast<double>(tensor(1).size(2));
  return 0;
}

std::string plan_of(const ObservedCall& call) {
  const Device device = call.stream.device;
  const Conv2dOptions* options = nullptr;
  for (const CallArgument& argument : call.arguments)
    if (const auto* found = std::get_if<const Conv2dOptions*>(&argument)) options = *found;
  if (!options || preferred_provider(device.type) != Provider::Native) return "";
  const auto [pass, x, w, y] = [&]() -> std::tuple<ConvPass, int, int, int> {
    if (&call.kernel == &kernels::conv2d) return {ConvPass::Forward, 1, 2, 0};
    if (&call.kernel == &kernels::conv2d_batch_stats) return {ConvPass::Forward, 3, 4, 0};
    if (&call.kernel == &kernels::conv2d_backward_input) return {ConvPass::BackwardInput, 0, 2, 1};
    if (&call.kernel == &kernels::conv2d_backward_batch_sums)
      return {ConvPass::BackwardInput, 0, 4, 3};
    return {ConvPass::BackwardWeight, 2, 0, 1};
  }();
  return name(layout_policy(device).conv2d(
      conv_problem(pass, *call.tensor(x), *call.tensor(w), *call.tensor(y), *options)));
}

}  // namespace

KernelProfile::KernelProfile() : previous_(current()) { set_current(this); }
KernelProfile::~KernelProfile() { set_current(previous_); }

void KernelProfile::call(const ObservedCall& observed, const std::function<void()>& run) {
  const auto& [kernel, stream, arguments] = observed;
  KernelCall call{kernel.name(),    observed.tensor(0)->dtype(), 0, operations_of(observed), 0,
                  plan_of(observed)};
  for (size_t i = 0; i < arguments.size(); ++i)
    if (const Tensor* tensor = observed.tensor(i)) call.bytes += bytes_of(*tensor);
  const Sum siblings = std::exchange(inner_, {});
  double ms = 0;
  if (device_backend(stream.device.type).capturing()) {
    run();
  } else {
    synchronize(stream);
    const auto timer = start_timer(stream);
    run();
    timer->stop();
    ms = timer->milliseconds();
  }
  // Its inner kernels may have read and written more than its own arguments. Then nothing remains
  // for the call itself.
  const Sum whole{ms, std::max(call.operations, inner_.operations),
                  std::max(call.bytes, inner_.bytes)};
  call.milliseconds = ms - inner_.milliseconds;
  call.operations = whole.operations - inner_.operations;
  call.bytes = whole.bytes - inner_.bytes;
  inner_ = {siblings.milliseconds + whole.milliseconds, siblings.operations + whole.operations,
            siblings.bytes + whole.bytes};
  calls_.push_back(std::move(call));
}

}  // namespace ringgrad
