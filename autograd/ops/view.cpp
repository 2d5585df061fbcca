#include <algorithm>
#include <cstdint>
#include <optional>

#include "ringgrad/autograd/ops/common.h"
#include "ringgrad/core/base/check.h"

namespace ringgrad {
namespace {

// Returns the strides that give x's elements, in row-major order, the new shape, or nothing if no
// strides can. Dimensions of x that can be walked as one form a chunk, and each chunk must be the
// product of consecutive new sizes.
std::optional<Strides> strides_of_reshaped(const Tensor& x, const Shape& shape) {
  if (x.numel() == 0 || x.dim() == 0) return contiguous_strides(shape);
  Strides strides = shape;
  int to = shape.dim() - 1;
  int64_t chunk_stride = x.strides().back();
  int64_t chunk_size = 1;
  for (int from = x.dim() - 1; from >= 0; --from) {
    chunk_size *= x.shape()[from];
    const bool goes_on = from > 0 && (x.shape()[from - 1] == 1 ||
                                      x.strides()[from - 1] == chunk_size * chunk_stride);
    if (goes_on) continue;
    int64_t size = 1;
    for (; to >= 0 && (size < chunk_size || shape[to] == 1); --to) {
      strides[to] = size * chunk_stride;
      size *= shape[to];
    }
    if (size != chunk_size) return std::nullopt;
    if (from > 0) chunk_stride = x.strides()[from - 1];
    chunk_size = 1;
  }
  return strides;
}

// Returns `shape` with its -1 replaced by the size that x's number of elements requires.
Shape resolve_shape(const Tensor& x, Shape shape) {
  const Shape wanted = shape;
  int unknown = -1;
  for (int d = 0; d < shape.dim(); ++d) {
    CHECK_AS(ShapeError, shape[d] >= 0 || (shape[d] == -1 && unknown < 0), "reshape: shape ",
             wanted, " has negative sizes, expected at most one -1 (what is left)");
    if (shape[d] < 0) shape[unknown = d] = 1;
  }
  const int64_t known = count_elements("reshape", shape);
  if (unknown >= 0) {
    CHECK_AS(ShapeError, known > 0 && x.numel() % known == 0, "reshape: a tensor of shape ",
             x.shape(), " has ", x.numel(), " elements, which leaves no size for the -1 in ",
             wanted);
    shape[unknown] = x.numel() / known;
  }
  CHECK_AS(ShapeError, unknown >= 0 || known == x.numel(), "reshape: a tensor of shape ", x.shape(),
           " has ", x.numel(), " elements, shape ", shape, " has ", known, ", expected as many");
  return shape;
}

}  // namespace

Tensor part_of(const Tensor& x, int d, int64_t begin, int64_t length, int64_t step) {
  Shape shape = x.shape();
  Strides strides = x.strides();
  shape[d] = length;
  const int64_t offset = x.storage_offset() + begin * strides[d];
  if (length > 1) strides[d] *= step;
  return x.as_strided(shape, strides, length > 0 ? offset : x.storage_offset());
}

Tensor viewable(const Tensor& x) {
  const Tensor y = strided(x);
  if (x.is_channel_blocked()) y.storage()->twins = x.storage()->twins;
  return y;
}

Tensor reshape(const Tensor& x_, const Shape& wanted) {
  OpScope scope("reshape");
  check_defined("reshape", x_);
  const Shape shape = resolve_shape(x_, wanted);
  Tensor x = viewable(x_);
  auto strides = strides_of_reshaped(x, shape);
  if (!strides) {
    x = contiguous(x);
    strides = contiguous_strides(shape);
  }
  return differentiable(
      "reshape", {x}, x.as_strided(shape, *strides, x.storage_offset()),
      [from = x.shape()](const Tensor& dy) -> Gradients { return {reshape(dy, from)}; });
}

Tensor flatten(const Tensor& x, Int start_dim, Int end_dim) {
  check_defined("flatten", x);
  if (x.dim() == 0) return reshape(x, {1});
  const int start = normalize_dim("flatten", start_dim, x.dim());
  const int end = normalize_dim("flatten", end_dim, x.dim());
  CHECK_AS(ShapeError, start <= end, "flatten: dimensions ", start, " to ", end, " of shape ",
           x.shape(), " are in the wrong order");
  Shape shape;
  for (int d = 0; d < x.dim(); ++d) {
    if (d > start && d <= end)
      shape[start] *= x.shape()[d];
    else
      shape.push_back(x.shape()[d]);
  }
  return reshape(x, shape);
}

// The part that y = pad(x, widths) has in common with x: of y, or with sign -1 of x.
static Tensor padded_part(Tensor t, const Shape& common, const std::vector<int64_t>& widths,
                          int sign) {
  for (int d = t.dim() - 1, i = 0; i + 1 < static_cast<int>(widths.size()); --d, i += 2)
    t = part_of(t, d, std::max<int64_t>(sign * widths[i], 0), common[d]);
  return t;
}

Tensor pad(const Tensor& x, const std::vector<int64_t>& widths, Scalar value) {
  OpScope scope("pad");
  check_defined("pad", x);
  const int pairs = static_cast<int>(widths.size() / 2);
  CHECK_AS(ShapeError, widths.size() % 2 == 0 && pairs <= x.dim(), "pad: ", widths.size(),
           " widths for shape ", x.shape(),
           ", expected a pair (before, after) for each of at most ", x.dim(), " dimensions");
  Shape shape = x.shape();
  Shape common = shape;  // the shape of y, and of the part that both have
  for (int i = 0; i < pairs; ++i)
    for (const int64_t width : {widths[2 * i], widths[2 * i + 1]}) {
      const int d = x.dim() - 1 - i;
      common[d] += std::max(std::min<int64_t>(width, 0), -common[d] - 1);
      CHECK_AS(ShapeError, common[d] >= 0 && !__builtin_add_overflow(shape[d], width, &shape[d]),
               "pad: shape ", x.shape(), " with ", widths[2 * i], " elements before and ",
               widths[2 * i + 1], " behind in dimension ", d, ", expected 0 to ", INT64_MAX,
               " in all, and to remove no more than there are");
    }
  Tensor y = full(shape, value,
                  {x.dtype(), x.device(), x.is_channel_blocked() ? Layout::Strided : x.layout()});
  kernels::copy(padded_part(y, common, widths, 1),
                common == x.shape() ? x : padded_part(strided(x), common, widths, -1));
  return differentiable(
      "pad", {x}, y, [common, from = x.shape(), widths](const Tensor& dy) -> Gradients {
        Tensor dx = padded_part(strided(dy), common, widths, 1);
        if (common != from) {
          const Tensor kept = std::exchange(dx, zeros(from, {dy.dtype(), dy.device()}));
          kernels::copy(padded_part(dx, common, widths, -1), kept);
        }
        if (!grad_enabled()) return {dx};
        return {linear_gradient("pad_backward", dy, dx,
                                [widths](const Tensor& g) { return pad(g, widths); })};
      });
}

}  // namespace ringgrad
