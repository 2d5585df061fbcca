#include "ringgrad/core/kernels/call_signature.h"

#include <charconv>

namespace ringgrad {
namespace {

// No stream is used, because building a signature should cost no more than launching a kernel.
template <class Number>
void append(std::string& text, Number value) {
  char digits[32];
  text.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
}

// Appends "[64,3,32,32]" for a shape or "(3072,1024,32,1)" for strides.
template <class Numbers>
void append_list(std::string& text, char open, const Numbers& numbers, int count, char close) {
  text += open;
  for (int d = 0; d < count; ++d) {
    if (d > 0) text += ',';
    append(text, numbers[d]);
  }
  text += close;
}

void append(std::string& text, Pair value) {
  append(text, int64_t{value.h});
  text += 'x';
  append(text, int64_t{value.w});
}

// A tensor's layout affects the speed as much as its shape. Row-major order is the usual one and is
// not written out.
void append(std::string& text, const Tensor* x) {
  if (!*x) {
    text += '-';
    return;
  }
  text += name(x->dtype());
  append_list(text, '[', x->shape(), x->dim(), ']');
  if (x->layout() == Layout::ChannelBlocked)
    text += "blocked";
  else if (x->is_contiguous())
    return;
  else if (x->is_channels_last())
    text += "nhwc";
  else
    append_list(text, '(', x->strides(), x->dim(), ')');
}

void append(std::string& text, bool value) { text += value ? "yes" : "no"; }

void append(std::string& text, std::initializer_list<Pair> pairs) {
  for (const Pair pair : pairs) {
    append(text, pair);
    text += ' ';
  }
}
void append(std::string& text, const Conv2dOptions* o) {
  append(text, {o->stride, o->padding, o->dilation});
  append(text, o->groups);
}
void append(std::string& text, const Pool2dOptions* o) {
  append(text, {o->kernel, o->stride, o->padding});
  append(text, o->count_padding);
}
void append(std::string&, std::monostate) {}

}  // namespace

std::string call_signature(const char* kernel, std::span<const CallArgument> arguments) {
  std::string text;
  // This is more than a convolution of three tensors needs, so there is only one allocation.
  text.reserve(256);
  text += kernel;
  for (const CallArgument& argument : arguments) {
    if (std::holds_alternative<std::monostate>(argument)) continue;
    text += ' ';
    std::visit([&text](auto value) { append(text, value); }, argument);
  }
  return text;
}

}  // namespace ringgrad
