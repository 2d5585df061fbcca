// Plans a walk over several strided tensors of one shape. Dimensions are ordered by the first
// operand's strides. Two dimensions are merged if every operand can walk them as one, so most calls
// need a single loop. The CPU's and the CUDA kernels share it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>

#include "ringgrad/core/tensor.h"

namespace ringgrad {

inline constexpr int kMaxOperands = 5;

struct LoopPlan {
  // 0 if there are no elements, otherwise at least 1.
  int dims = 0;
  int operands = 0;
  int64_t numel = 0;
  // The loops' lengths, outermost first.
  std::array<int64_t, kMaxDims> sizes{};
  // The strides of each operand, in its elements.
  std::array<std::array<int64_t, kMaxDims>, kMaxOperands> strides{};

  int64_t inner_size() const { return sizes[dims - 1]; }
  int64_t inner_stride(int operand) const { return strides[operand][dims - 1]; }

  // Returns each operand's offset of element number `index`, counted in the order of the loops.
  std::array<int64_t, kMaxOperands> offsets(int64_t index) const;

  // Calls body(offsets, n) for each run of n elements along the innermost loop within elements
  // [begin, end). Only the first run takes divisions. The offsets of all kOperands operands stay in
  // registers, because runs may be short.
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

// REQUIRES: all operands have the same shape. Either all are strided, or all are channel-blocked;
// the latter are one flat loop that includes the padding.
LoopPlan plan_loops(std::initializer_list<const Tensor*> operands);

}  // namespace ringgrad
