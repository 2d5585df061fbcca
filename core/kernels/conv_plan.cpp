#include "ringgrad/core/kernels/conv_plan.h"

#include <array>

#include "ringgrad/core/tensor.h"

namespace ringgrad {
namespace {

// A device that registers no policy gets strided images, which the reference kernels read.
constexpr LayoutPolicy kStrided{
    .conv2d = [](const ConvProblem&) { return ConvPlan(); },
    .conv2d_filters = [](const Tensor&, const Tensor& w) { return w; },
    .pool2d = [](const Tensor&) { return Layout::Strided; },
    .batch_norm = [](const Tensor&) { return Layout::Strided; },
    .batch_norm_positive = [](const Tensor&) { return Tensor(); },
};
constinit std::array<LayoutPolicy, kDeviceTypes> policies = [] {
  std::array<LayoutPolicy, kDeviceTypes> all;
  all.fill(kStrided);
  return all;
}();

}  // namespace

ConvProblem conv_problem(ConvPass pass, const Tensor& x, const Tensor& w,
                         const Conv2dOptions& options) {
  return {.pass = pass,
          .dtype = x.dtype(),
          .x = x.shape(),
          .w = w.shape(),
          .options = options,
          .x_layout = x.layout(),
          .layout = {},
          .wanted = conv_algorithm()};
}

bool register_layout_policy(DeviceType device, const LayoutPolicy& policy) {
  policies[static_cast<size_t>(device)] = policy;
  return true;
}

const LayoutPolicy& layout_policy(Device device) {
  return policies[static_cast<size_t>(device.type)];
}

}  // namespace ringgrad
