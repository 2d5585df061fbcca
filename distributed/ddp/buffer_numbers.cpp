#include "ringgrad/distributed/ddp/buffer_numbers.h"

#include <algorithm>
#include <cstddef>
#include <span>

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

// Multiplies x by `factor` in place. A product of -0.0 stays -0.0.
void multiply(const Tensor& x, double factor) { kernels::affine(x, x, factor, -0.0); }

// Returns x - base, or 0 if both are equal, even if they are infinite.
Tensor apart_from(const Tensor& base, const Tensor& x) {
  const NoGradGuard no_grad;
  return where(x == base, zeros_like(x), x - base);
}

// Returns base + apart, or base itself if `apart` is 0.
Tensor moved_from(const Tensor& base, const Tensor& apart) {
  const NoGradGuard no_grad;
  return where(apart == zeros_like(apart), base, base + apart);
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
  const Tensor own = numbers_of(buffer);
  const Tensor given = copy_of(numbers, own.options());
  const auto bytes_of = [](const Tensor& x) {
    return std::span(static_cast<const std::byte*>(x.raw_data()),
                     static_cast<size_t>(x.numel()) * itemsize(x.dtype()));
  };
  // A graph that is kept may have saved the buffer, and a write is a modification.
  if (own.device().is_cpu() && std::ranges::equal(bytes_of(own), bytes_of(given))) return;
  const Tensor whole =
      buffer.is_contiguous() ? buffer : empty(buffer.shape(), {buffer.dtype(), buffer.device()});
  copy_(numbers_of(whole), given);
  if (!whole.is_same(buffer)) copy_(buffer, whole);
}

void pack_buffer(const Tensor& packed, const Tensor& buffer, const Tensor& base, double samples,
                 bool first) {
  const double weight = is_floating(buffer.dtype()) ? samples : first ? 1 : 0;
  if (weight == 0) return kernels::fill(packed, -0.0);  // 0.0 would turn a sum of -0.0 into 0.0
  const Tensor x = on_device(numbers_of(buffer), packed.device());
  if (base || !x.device().is_cpu()) {
    copy_(packed, base ? apart_from(base, x) : x);
    return multiply(packed, weight);
  }
  auto* next = packed.data<double>();
  visit_dtype("pack_buffer", x.dtype(), [&]<class T>() {
    for (const T value : std::span(x.data<T>(), static_cast<size_t>(x.numel())))
      *next++ = weight * static_cast<double>(value);
  });
}

void unpack_buffer(const Tensor& buffer, const Tensor& packed, const Tensor& base, double samples) {
  if (is_floating(buffer.dtype())) multiply(packed, 1 / samples);
  take_numbers(buffer, base ? moved_from(base, packed) : packed);
}

}  // namespace ringgrad
