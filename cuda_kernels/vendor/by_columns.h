// Describes a batch of matrices in memory for cuBLAS, which stores matrices by columns.
#pragma once

#include <algorithm>
#include <optional>

#include "ringgrad/core/tensor.h"

namespace ringgrad::cuda {

// x [·, rows, columns] stored by rows is its transpose stored by columns. Element (i, j) is at i ·
// leading + j, or, if x itself is stored by columns, at j · leading + i.
struct ByColumns {
  bool is_itself;
  int64_t leading;  // at least the length of the contiguous dimension, as cuBLAS requires
};

// Returns nullopt if neither rows nor columns are contiguous, or if they repeat. The stride of a
// dimension of size 1 has no meaning: a view that was made for a product has 0 there.
inline std::optional<ByColumns> by_columns(const Tensor& x) {
  const auto leading = [&](int unit, int other) -> std::optional<int64_t> {
    const int64_t length = std::max<int64_t>(1, x.size(unit));
    if (x.size(unit) != 1 && x.strides()[unit] != 1) return {};
    if (x.size(other) == 1) return length;
    return x.strides()[other] >= length ? std::optional(x.strides()[other]) : std::nullopt;
  };
  if (const auto rows = leading(2, 1)) return ByColumns{false, *rows};
  if (const auto columns = leading(1, 2)) return ByColumns{true, *columns};
  return {};
}

}  // namespace ringgrad::cuda
