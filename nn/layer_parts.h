// Code that the layers share: the check of a convolution's sizes, and numbers in PyTorch's printed
// format. Private to nn.
#pragma once

#include <charconv>
#include <string>

#include "ringgrad/core/error.h"
#include "ringgrad/core/kernels/geometry.h"
#include "ringgrad/core/shape.h"

namespace ringgrad::nn {

// Throws Error in the layer's name if a size is invalid.
void check_sizes(const char* layer, int64_t in_channels, int64_t out_channels, Pair kernel,
                 int64_t groups);

inline std::string text(bool value) { return value ? "True" : "False"; }

// Returns the shortest decimals that read back as the same number: 1e-05, 0.1, 1.0.
inline std::string text(double value) {
  char digits[32];
  std::string number(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
  return number.find_first_of(".en") == std::string::npos ? number + ".0" : number;
}

inline std::string tuple(Pair pair) { return str("(", pair.h, ", ", pair.w, ")"); }
inline std::string text(Pair pair) { return pair.h == pair.w ? str(pair.h) : tuple(pair); }

inline std::string tuple(int64_t number) { return str("(", number, ",)"); }

// Describes a convolution of any kind. Apart from kernel and stride only values other than the
// defaults are listed.
template <class Numbers, class Options>
std::string convolution(int64_t in, int64_t out, Numbers kernel, const Options& o,
                        Pair output_padding, bool bias) {
  std::string all =
      str(in, ", ", out, ", kernel_size=", tuple(kernel), ", stride=", tuple(o.stride));
  if (o.padding != Numbers(0)) all += ", padding=" + tuple(o.padding);
  if (o.dilation != Numbers(1)) all += ", dilation=" + tuple(o.dilation);
  if (output_padding != Pair(0)) all += ", output_padding=" + tuple(output_padding);
  if (o.groups != 1) all += str(", groups=", o.groups);
  return all + (bias ? "" : ", bias=False");
}

}  // namespace ringgrad::nn
