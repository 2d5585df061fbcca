#include "ringgrad/distributed/ddp/buffer_numbers.h"

#include "ringgrad/autograd/engine.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels.h"

namespace ringgrad {
namespace {

constexpr size_t kWordBytes = 4;

// Views a contiguous tensor as the words that make up its elements.
Tensor words_of(const Tensor& x) {
  const size_t word = std::min(itemsize(x.dtype()), kWordBytes);
  const auto words = static_cast<int64_t>(itemsize(x.dtype()) / word);
  return Tensor(x.storage(), {x.numel() * words}, {1}, x.storage_offset() * words,
                word == kWordBytes ? DType::Int32 : DType::UInt8);
}

}  // namespace

int64_t count_of_numbers(const Tensor& buffer) {
  const size_t words =
      is_floating(buffer.dtype()) ? 1 : std::max<size_t>(itemsize(buffer.dtype()) / kWordBytes, 1);
  return buffer.numel() * static_cast<int64_t>(words);
}

Tensor numbers_of(const Tensor& buffer) {
  const Tensor x = as_contiguous(buffer);
  return is_floating(x.dtype()) ? x.as_strided({x.numel()}, {1}, x.storage_offset()) : words_of(x);
}

void take_numbers(const Tensor& buffer, const Tensor& numbers) {
  const Tensor whole =
      buffer.is_contiguous() ? buffer : empty(buffer.shape(), {buffer.dtype(), buffer.device()});
  copy_(numbers_of(whole), numbers);
  if (!whole.is_same(buffer)) copy_(buffer, whole);
}

void multiply(const Tensor& x, double factor) { kernels::affine(x, x, factor, -0.0); }

Tensor apart_from(const Tensor& base, const Tensor& x) {
  const NoGradGuard no_grad;
  return where(x == base, zeros_like(x), x - base);
}

Tensor moved_from(const Tensor& base, const Tensor& apart) {
  const NoGradGuard no_grad;
  return where(apart == zeros_like(apart), base, base + apart);
}

}  // namespace ringgrad
