// How to walk several strided tensors of one shape together: dimensions are ordered by the first
// operand's strides and merged wherever every operand can walk two of them as one, so most calls
// end with a single loop. Shared by the CPU and the CUDA kernels.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>

#include "ringgrad/core/tensor.h"

namespace ringgrad {

inline constexpr int kMaxOperands = 5;

struct LoopPlan {
  // 0 when there is nothing to do; at least 1 otherwise.
  int dims = 0;
  int operands = 0;
  int64_t numel = 0;
  // Outermost first.
  std::array<int64_t, kMaxDims> sizes{};
  // The strides of each operand, in its elements.
  std::array<std::array<int64_t, kMaxDims>, kMaxOperands> strides{};

  int64_t inner_size() const { return sizes[dims - 1]; }
  int64_t inner_stride(int operand) const { return strides[operand][dims - 1]; }

  // The offset of each operand's element number `index`, counted in the order of the loops.
  std::array<int64_t, kMaxOperands> offsets(int64_t index) const;

  // body(offsets, n) for each run of n elements along the innermost loop in the elements [begin,
  // end). Divides for the first one only, and keeps the offsets of kOperands operands, which is
  // all, in registers: runs may be short.
  template <int kOperands, class Body>
  void for_each_run(int64_t begin, int64_t end, Body&& body) const {
    std::array<int64_t, kOperands> offset;
    std::copy_n(offsets(begin).begin(), kOperands, offset.begin());
    std::array<int64_t, kMaxDims> at{};
    for (int64_t d = dims - 1, index = begin; d >= 0; index /= sizes[d--]) at[d] = index % sizes[d];
    while (begin < end) {
      const int64_t n = std::min(end - begin, inner_size() - at[dims - 1]);
      body(offset, n);
      begin += n;
      at[dims - 1] += n;
      for (int i = 0; i < kOperands; ++i) offset[i] += n * inner_stride(i);
      for (int d = dims - 1; d > 0 && at[d] == sizes[d]; --d) {
        for (int i = 0; i < kOperands; ++i)
          offset[i] += strides[i][d - 1] - sizes[d] * strides[i][d];
        at[d] = 0;
        ++at[d - 1];
      }
    }
  }
};

// REQUIRES: all operands have the same shape, and either all are strided or all channel-blocked
// (then one flat loop over the padding too).
LoopPlan plan_loops(std::initializer_list<const Tensor*> operands);

}  // namespace ringgrad
