// oneDNN's matrix product.
#include <algorithm>

#include "ringgrad/core/cpu/onednn/primitive.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/core/kernels/call_signature.h"

namespace ringgrad::onednn {
namespace {

// Returns a matrix of each batch. If all batches share one matrix, it is a batch of one, which
// oneDNN repeats.
Tensor operand(const Tensor& x) {
  if (x.strides()[0] != 0 || x.size(0) == 1) return x;
  return x.as_strided({1, x.size(1), x.size(2)}, x.strides(), x.storage_offset());
}

bool matmul_onednn(Stream stream, const Tensor& c, const Tensor& a_, const Tensor& b_,
                   const Tensor& bias_) {
  const Tensor a = operand(a_);
  const Tensor b = operand(b_);
  // oneDNN refuses if both repeat.
  if (a.size(0) < c.size(0) && b.size(0) < c.size(0)) return false;
  if (!supports(c) || a.numel() == 0 || has_internal_overlap(a) || has_internal_overlap(b))
    return false;
  Tensor bias = in_dtype(bias_, DType::Float32);
  if (bias)
    bias = bias.as_strided({1, 1, c.size(2)}, {c.size(2), c.size(2), bias.strides()[0]},
                           bias.storage_offset());
  const auto primitive = find(stream, call_signature("matmul", c, a, b, bias), [&]() -> Primitive {
    const auto product =
        bias ? describe<dnnl::matmul>(std::tuple<>(), description(a), description(b),
                                      description(bias), description(c))
             : describe<dnnl::matmul>(std::tuple<>(), description(a), description(b),
                                      description(c));
    return {dnnl::matmul(product), product.scratchpad_desc()};
  });
  if (!primitive) return false;
  Arguments arguments = {
      {DNNL_ARG_SRC, as_memory(a)}, {DNNL_ARG_WEIGHTS, as_memory(b)}, {DNNL_ARG_DST, as_memory(c)}};
  if (bias) arguments.insert({DNNL_ARG_BIAS, as_memory(bias)});
  execute(stream, *primitive, std::move(arguments));
  return true;
}

REGISTER_KERNEL(matmul, CPU, Vendor, matmul_onednn);

}  // namespace
}  // namespace ringgrad::onednn
