#include "ringgrad/nn/conv2d.h"

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/nn/init.h"

namespace ringgrad::nn {
namespace {

void check_sizes(const char* layer, int64_t in_channels, int64_t out_channels, Pair kernel, int64_t groups) {
  CHECK(kernel.h > 0 && kernel.w > 0, layer, ": the kernel is ", kernel.h, "×", kernel.w, ", expected at least 1×1");
  CHECK(groups > 0 && in_channels > 0 && out_channels > 0 && in_channels % groups == 0 && out_channels % groups == 0,
        layer, ": ", in_channels, " input and ", out_channels, " output channels in ", groups,
        " groups, expected multiples of the number of groups");
}

}  // namespace

Conv2d::Conv2d(int64_t in_channels, int64_t out_channels, Pair kernel, Conv2dOptions options)
    : options_{options.stride, options.padding, options.dilation, options.groups} {
  check_sizes("Conv2d", in_channels, out_channels, kernel, options.groups);
  weight = register_parameter("weight", empty({out_channels, in_channels / options.groups, kernel.h, kernel.w}));
  if (options.bias) bias = register_parameter("bias", empty({out_channels}));
  init::layer_default_(weight, bias);
}

Tensor Conv2d::forward(const Tensor& x) { return conv2d(x, weight, bias, options_); }

ConvTranspose2d::ConvTranspose2d(int64_t in_channels, int64_t out_channels, Pair kernel, ConvTranspose2dOptions options)
    : options_{options.stride, options.padding, options.output_padding, options.dilation, options.groups} {
  check_sizes("ConvTranspose2d", in_channels, out_channels, kernel, options.groups);
  weight = register_parameter("weight", empty({in_channels, out_channels / options.groups, kernel.h, kernel.w}));
  if (options.bias) bias = register_parameter("bias", empty({out_channels}));
  init::layer_default_(weight, bias);
}

Tensor ConvTranspose2d::forward(const Tensor& x) { return conv_transpose2d(x, weight, bias, options_); }

}  // namespace ringgrad::nn
