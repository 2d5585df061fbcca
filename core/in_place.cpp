#include "ringgrad/core/in_place.h"

#include "ringgrad/core/base/check.h"

namespace ringgrad {

bool has_internal_overlap(const Tensor& x) {
  if (x.is_channel_blocked() || x.numel() == 0) return false;
  for (int d = 0; d < x.dim(); ++d)
    if (x.shape()[d] > 1 && x.strides()[d] == 0) return true;
  return false;
}

void begin_write(const char* operation, const Tensor& x) {
  CHECK(x.defined(), operation, ": the destination is an undefined tensor, expected one to write to");
  CHECK(!has_internal_overlap(x), operation, ": the destination has shape ", x.shape(), " and strides ", x.strides(),
        ", so that several elements lie in one place; expected a place for each: write to contiguous(x) instead");
  CHECK(x.is_leaf(), operation, ": the destination of shape ", x.shape(),
        " was computed from leaves that want a gradient, which would be wrong after a write that the graph does not "
        "know; write before, or to x.detach() where nothing else needs the values");
  x.storage()->bump_version();
}

}  // namespace ringgrad
