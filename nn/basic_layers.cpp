#include "ringgrad/nn/basic_layers.h"

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/program_observer.h"
#include "ringgrad/nn/classifier_init.h"
#include "ringgrad/nn/layer_parts.h"

namespace ringgrad::nn {

void check_sizes(const char* layer, int64_t in_channels, int64_t out_channels, Pair kernel,
                 int64_t groups) {
  CHECK(kernel.h > 0 && kernel.w > 0, layer, ": the kernel is ", kernel, ", expected at least 1×1");
  CHECK(groups > 0 && in_channels > 0 && out_channels > 0 && in_channels % groups == 0 &&
            out_channels % groups == 0,
        layer, ": ", in_channels, " input and ", out_channels, " output channels in ", groups,
        " groups, expected multiples of the number of groups");
}

Linear::Linear(Int64 in_features, Int64 out_features, LinearOptions options) {
  CHECK(in_features > 0 && out_features > 0, "Linear: ", in_features, " input and ", out_features,
        " output features, expected at least 1");
  weight = register_parameter("weight", empty({out_features, in_features}));
  bias = register_parameter("bias", options.bias ? empty({out_features}) : Tensor());
  init::layer_default_(weight, bias);
}

Tensor Linear::forward(const Tensor& x) { return linear(x, weight, bias); }

Conv2d::Conv2d(Int64 in_channels, Int64 out_channels, Pair kernel, Conv2dOptions options)
    : options_{.stride = options.stride,
               .padding = options.padding,
               .dilation = options.dilation,
               .groups = options.groups} {
  check_sizes("Conv2d", in_channels, out_channels, kernel, options.groups);
  weight = register_parameter(
      "weight", empty({out_channels, in_channels / options.groups, kernel.h, kernel.w}));
  bias = register_parameter("bias", options.bias ? empty({out_channels}) : Tensor());
  init::layer_default_(weight, bias);
}

Tensor Conv2d::forward(const Tensor& x) { return conv2d(x, weight, bias, options_); }

BatchNorm::BatchNorm(const char* name, int64_t features, BatchNorm2dOptions options)
    : options_(options), features_(features) {
  CHECK(features > 0, name, ": ", features, " features, expected at least 1");
  const auto where = [](bool wanted, const Tensor& value) { return wanted ? value : Tensor(); };
  const bool tracked = options.track_running_stats;
  weight = register_parameter("weight", where(options.affine, ones({features})));
  bias = register_parameter("bias", where(options.affine && options.bias, zeros({features})));
  running_mean = register_buffer("running_mean", where(tracked, zeros({features})));
  running_var = register_buffer("running_var", where(tracked, ones({features})));
  num_batches_tracked =
      register_buffer("num_batches_tracked", where(tracked, zeros({}, {.dtype = DType::Int64})));
}

void BatchNorm2d::check_shape(const Tensor& x) const {
  CHECK(x.defined(), "BatchNorm2d: the input is an undefined tensor, expected [N, C, H, W]");
  CHECK_AS(ShapeError, x.dim() == 4, "BatchNorm2d: the input has shape ", x.shape(),
           ", expected [N, C, H, W]");
}

void BatchNorm::follow_members(const Module& source) {
  normalization_ = static_cast<const BatchNorm&>(source).normalization_;
}

Tensor BatchNorm::forward(const Tensor& x, const BatchNormFusion& fusion) {
  check_shape(x);
  if (program_observer) program_observer->mode("batch_norm", is_training());
  return normalization_(x, weight, bias, running_mean, running_var,
                        {.training = is_training() || !options_.track_running_stats,
                         .momentum = options_.momentum,
                         .eps = options_.eps,
                         .activation = fusion.activation,
                         .residual = fusion.residual,
                         .max_pool = fusion.max_pool,
                         .batches = is_training() ? Tensor(num_batches_tracked) : Tensor()});
}

std::string Linear::extra_repr() const {
  return str("in_features=", weight.size(1), ", out_features=", weight.size(0),
             ", bias=", text(bias.defined()));
}

std::string Conv2d::extra_repr() const {
  return convolution(weight.size(1) * options_.groups, weight.size(0),
                     Pair(weight.size(2), weight.size(3)), options_, 0, bias.defined());
}

std::string BatchNorm::extra_repr() const {
  return str(features_, ", eps=", text(options_.eps), ", momentum=", text(options_.momentum),
             ", affine=", text(options_.affine), ", bias=", text(bias.defined()),
             ", track_running_stats=", text(options_.track_running_stats));
}

}  // namespace ringgrad::nn
