#include "ringgrad/core/kernels/call_signature.h"

#include <charconv>

namespace ringgrad {
namespace {

// Not a stream: a call that is chosen by its signature should cost no more than the launch of a
// kernel.
template <class Number>
void append(std::string& text, Number value) {
  char digits[32];
  text.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
}

// "[64,3,32,32]" for a shape, "(3072,1024,32,1)" for strides.
template <class Numbers>
void append_list(std::string& text, char open, const Numbers& numbers, int count, char close) {
  text += open;
  for (int d = 0; d < count; ++d) {
    if (d > 0) text += ',';
    append(text, numbers[d]);
  }
  text += close;
}

}  // namespace

CallSignature::CallSignature(const char* kernel) {
  // More than a convolution of three tensors needs: one allocation, whatever follows.
  text_.reserve(256);
  text_ += kernel;
}

CallSignature& CallSignature::operator<<(const Tensor& x) {
  text_ += ' ';
  if (!x) {
    text_ += '-';
    return *this;
  }
  text_ += name(x.dtype());
  append_list(text_, '[', x.shape(), x.dim(), ']');
  // How it lies in memory decides the speed as much as its shape; row-major order, the usual one,
  // is not spelled out.
  if (x.layout() == Layout::ChannelBlocked)
    text_ += "blocked";
  else if (x.is_contiguous())
    return *this;
  else if (x.is_channels_last())
    text_ += "nhwc";
  else
    append_list(text_, '(', x.strides(), x.dim(), ')');
  return *this;
}

CallSignature& CallSignature::operator<<(int64_t value) {
  append(text_ += ' ', value);
  return *this;
}
CallSignature& CallSignature::operator<<(double value) {
  append(text_ += ' ', value);
  return *this;
}
CallSignature& CallSignature::operator<<(bool value) {
  text_ += value ? " yes" : " no";
  return *this;
}
CallSignature& CallSignature::operator<<(Pair value) {
  append(text_ += ' ', value.h);
  append(text_ += 'x', value.w);
  return *this;
}
CallSignature& CallSignature::operator<<(const Conv2dOptions& options) {
  return *this << options.stride << options.padding << options.dilation << options.groups;
}
CallSignature& CallSignature::operator<<(const Pool2dOptions& options) {
  return *this << options.kernel << options.stride << options.padding << options.count_padding;
}

}  // namespace ringgrad
