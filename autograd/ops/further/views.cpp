// Views in another order of dimensions or of a part, and joins of several tensors.
#include "ringgrad/autograd/ops.h"

#include <algorithm>

#include "ringgrad/autograd/ops/class_loss.h"
#include "ringgrad/autograd/ops/further/common.h"
#include "ringgrad/autograd/ops/further/image_memory.h"
#include "ringgrad/core/base/before_main.h"
#include "ringgrad/core/base/check.h"

namespace ringgrad {

Tensor permute(const Tensor& x_, const Dims& order) {
  OpScope scope("permute");
  check_defined("permute", x_);
  const int dims = x_.dim();
  CHECK_AS(ShapeError, static_cast<int>(order.size()) == dims, "permute: the order has ",
           order.size(), " entries, expected one for each of the ", dims, " dimensions of shape ",
           x_.shape());
  const Tensor x = viewable(x_);
  Shape shape = x.shape();
  Strides strides = x.strides();
  std::vector<int> inverse(dims, -1);
  for (int i = 0; i < dims; ++i) {
    const int d = normalize_dim("permute", order[i], dims);
    CHECK_AS(ShapeError, inverse[d] < 0, "permute: dimension ", d, " appears twice in the order");
    inverse[d] = i;
    shape[i] = x.shape()[d];
    strides[i] = x.strides()[d];
  }
  return differentiable(
      "permute", {x}, x.as_strided(shape, strides, x.storage_offset()),
      [inverse](const Tensor& dy) -> Gradients { return {permute(dy, inverse)}; });
}

Tensor transpose(const Tensor& x, Int dim0, Int dim1) {
  check_defined("transpose", x);
  std::vector<int> order(x.dim());
  for (int d = 0; d < x.dim(); ++d) order[d] = d;
  std::swap(order[normalize_dim("transpose", dim0, x.dim())],
            order[normalize_dim("transpose", dim1, x.dim())]);
  return permute(x, order);
}

// The strided form of some of the channel-blocked images, without history; the others are not read.
static Tensor some_images(const Tensor& images, int64_t begin, int64_t length) {
  Shape shape = images.shape();
  const int64_t offset = images.storage_offset() + begin * (images.flat_numel() / shape[0]);
  shape[0] = length;
  return viewable(Tensor(images.storage(), shape, contiguous_strides(shape), offset, images.dtype(),
                         images.is_channel_blocked()));
}

Tensor slice(const Tensor& x_, Int dim, Int64 begin, Int64 end, Int64 step) {
  OpScope scope("slice");
  check_defined("slice", x_);
  dim = normalize_dim("slice", dim, x_.dim());
  CHECK(step >= 1, "slice: the step is ", step, ", expected at least 1");
  const int64_t n = x_.shape()[dim];
  begin = std::clamp<int64_t>(begin + (begin < 0 ? n : 0), 0, n);
  end = std::clamp<int64_t>(end + (end < 0 ? n : 0), begin, n);
  const int64_t length = end == begin ? 0 : (end - begin - 1) / step + 1;
  const bool of_images = x_.is_channel_blocked() && dim == 0 && step == 1 && length > 0;
  const Tensor x = of_images ? x_ : viewable(x_);
  return differentiable(
      "slice", {x},
      of_images ? some_images(x, begin, length) : part_of(x, dim, begin, length, step),
      [from = x.shape(), dim, begin, end, length, step](const Tensor& dy) -> Gradients {
        Tensor dx = zeros(from, {dy.dtype(), dy.device()});
        kernels::copy(part_of(dx, dim, begin, length, step), dy);
        return {linear_gradient("slice_backward", dy, dx,
                                [=](const Tensor& g) { return slice(g, dim, begin, end, step); })};
      });
}

Tensor expand(const Tensor& x_, const Shape& wanted) {
  OpScope scope("expand");
  check_defined("expand", x_);
  const Tensor x = viewable(x_);
  Shape shape = wanted;
  const int added = shape.dim() - x.dim();
  CHECK_AS(ShapeError, added >= 0, "expand: shape ", wanted,
           " has fewer dimensions than the tensor's ", x.shape());
  for (int d = 0; d < shape.dim(); ++d) {
    if (shape[d] == -1 && d >= added) shape[d] = x.shape()[d - added];
    CHECK_AS(ShapeError,
             shape[d] >= 0 &&
                 (d < added || x.shape()[d - added] == 1 || x.shape()[d - added] == shape[d]),
             "expand: a tensor of shape ", x.shape(), " cannot be repeated to ", wanted,
             ": only dimensions of size 1 and new ones in front are repeated");
  }
  count_elements("expand", shape);
  // detach() makes a separate tensor even if the shape does not change
  return differentiable(
      "expand", {x}, broadcast_view(x, shape).detach(),
      [from = x.shape()](const Tensor& dy) -> Gradients { return {summed(dy, from)}; });
}

Tensor squeeze(const Tensor& x, Int dim) {
  check_defined("squeeze", x);
  dim = normalize_dim("squeeze", dim, x.dim());
  Shape shape = x.shape();
  CHECK_AS(ShapeError, shape[dim] == 1, "squeeze: dimension ", dim, " of shape ", shape,
           " has size ", shape[dim], ", expected 1");
  shape.erase(dim);
  return reshape(x, shape);
}

Tensor unsqueeze(const Tensor& x, Int dim) {
  check_defined("unsqueeze", x);
  Shape shape = x.shape();
  shape.insert(normalize_dim("unsqueeze", dim, x.dim() + 1), 1);
  return reshape(x, shape);
}

Tensor memory_in(const Tensor& images) {
  return differentiable(
      "memory_in", {images}, memory_of(images),
      [shape = images.shape()](const Tensor& dy) -> Gradients { return {images_in(dy, shape)}; });
}
Tensor images_in(const Tensor& memory, const Shape& shape) {
  const Tensor x = contiguous(memory);
  if (!x.storage()->twins) x.storage()->twins = std::make_shared<char>();
  const Tensor images(x.storage(), shape, contiguous_strides(shape), x.storage_offset(), x.dtype(),
                      true);
  return differentiable("images_in", {x}, images,
                        [from = x.shape()](const Tensor& dy) -> Gradients {
                          return {reshape(memory_in(to_layout(dy, Layout::ChannelBlocked)), from)};
                        });
}

// Some of the lanes of some blocks of channel-blocked images.
static Tensor lanes_of(const Tensor& images, int64_t block, int64_t blocks, int64_t lane,
                       int64_t lanes) {
  return part_of(part_of(memory_of(images), 1, block, blocks), 3, lane, lanes);
}

// Between all channels of `part` and those of `whole` from `first` on, both channel-blocked: a
// block of one is the end of a block of the other and the beginning of the next.
enum class Towards { Part, Whole };
static void copy_channels(Towards towards, const Tensor& whole, int64_t first, const Tensor& part) {
  const auto copy = [towards](const Tensor& of_whole, const Tensor& of_part) {
    towards == Towards::Part ? kernels::copy(of_part, of_whole) : kernels::copy(of_whole, of_part);
  };
  const int64_t blocks = memory_of(part).size(1);
  const int64_t block = first / kChannelBlock;
  const int64_t shift = first % kChannelBlock;
  copy(lanes_of(whole, block, blocks, shift, kChannelBlock - shift),
       lanes_of(part, 0, blocks, 0, kChannelBlock - shift));
  const int64_t more = std::min(blocks, memory_of(whole).size(1) - block - 1);
  if (shift > 0 && more > 0)
    copy(lanes_of(whole, block + 1, more, 0, shift),
         lanes_of(part, 0, more, kChannelBlock - shift, shift));
}

// Channels that there are not, of the last block. (As rows of zeros, which copies are quick with.)
static void clear_padding(const Tensor& images) {
  const int64_t used = images.size(1) % kChannelBlock;
  if (used == 0) return;
  const Tensor rest =
      lanes_of(images, images.size(1) / kChannelBlock, 1, used, kChannelBlock - used);
  kernels::copy(rest,
                broadcast_view(zeros({kChannelBlock - used}, {images.dtype(), images.device()}),
                               rest.shape()));
}

Tensor cat(const std::vector<Tensor>& all, Int dim) {
  OpScope scope("cat");
  CHECK(!all.empty(), "cat: the list of tensors is empty, expected at least one");
  for (const Tensor& x : all) check_defined("cat", x);
  // The list may contain empty tensors of shape [0], whatever the other shapes.
  const auto is_nothing = [](const Tensor& x) { return x.shape() == Shape{0}; };
  const auto found = std::find_if_not(all.begin(), all.end(), is_nothing);
  const Tensor& first = found == all.end() ? all[0] : *found;
  dim = normalize_dim("cat", dim, first.dim());
  Shape shape = first.shape();
  shape[dim] = 0;
  bool blocked = dim == 1;  // true if all are
  for (const Tensor& x : all) {
    if (is_nothing(x)) continue;
    blocked = blocked && x.is_channel_blocked() && x.numel() > 0;
    check_same_kind("cat", first, x);
    bool fits = x.dim() == first.dim();
    for (int d = 0; fits && d < x.dim(); ++d) fits = d == dim || x.shape()[d] == shape[d];
    CHECK_AS(ShapeError, fits, "cat: shapes ", first.shape(), " and ", x.shape(),
             " differ outside dimension ", dim, ", along which they are joined");
    shape[dim] += x.shape()[dim];
  }
  const Layout layout = blocked ? Layout::ChannelBlocked : Layout::Strided;
  Tensor y = empty(shape, {first.dtype(), first.device(), layout});
  Gradients of_nothing;  // by input: the gradient of an empty one
  std::vector<int64_t> lengths;
  int64_t begin = 0;
  for (const Tensor& x : all) {
    of_nothing.push_back(is_nothing(x) ? empty_like(x) : Tensor());
    lengths.push_back(is_nothing(x) ? 0 : x.shape()[dim]);
    if (blocked && lengths.back() > 0)
      copy_channels(Towards::Whole, y, begin, x);
    else if (lengths.back() > 0)
      kernels::copy(part_of(y, dim, begin, lengths.back()), x);
    begin += lengths.back();
  }
  if (blocked) clear_padding(y);
  return differentiable("cat", all, y, [of_nothing, lengths, shape, dim, layout](const Tensor& dy) {
    const Tensor g = to_layout(dy, layout);
    Gradients parts = of_nothing;
    Shape one = shape;
    int64_t begin = 0;
    for (size_t i = 0; i < parts.size(); begin += lengths[i++]) {
      if (parts[i]) continue;
      if (grad_enabled()) {
        parts[i] = slice(dy, dim, begin, begin + lengths[i]);
        continue;
      }
      one[dim] = lengths[i];
      if (layout == Layout::Strided) {
        parts[i] = part_of(g, dim, begin, lengths[i]);
        continue;
      }
      parts[i] = empty(one, g.options());
      copy_channels(Towards::Part, g, begin, parts[i]);
      clear_padding(parts[i]);
    }
    return parts;
  });
}

Tensor stack(const std::vector<Tensor>& tensors, Int dim) {
  CHECK(!tensors.empty(), "stack: the list of tensors is empty, expected at least one");
  std::vector<Tensor> unsqueezed;
  for (const Tensor& x : tensors) {
    check_same_kind("stack", tensors[0], x);
    CHECK_AS(ShapeError, x.shape() == tensors[0].shape(), "stack: shapes ", tensors[0].shape(),
             " and ", x.shape(), " differ, expected equal ones");
    unsqueezed.push_back(unsqueeze(x, dim));
  }
  return cat(unsqueezed, dim);
}

Tensor view(const Tensor& x_, const Shape& shape) {
  check_defined("view", x_);
  const Tensor x = viewable(x_);
  const Tensor y = reshape(x, shape);
  CHECK_AS(ShapeError, y.shares_memory_with(x), "view: a tensor of shape ", x.shape(),
           " with strides ", x.strides(), " cannot be seen with shape ", shape,
           " without a copy; reshape() makes one");
  return y;
}

// x [N, C, H, W]
static Tensor pixels_as_rows(const Tensor& x) {
  std::vector<int> channels_to_end = {0};
  for (int d = 2; d < x.dim(); ++d) channels_to_end.push_back(d);
  channels_to_end.push_back(1);
  return reshape(permute(x, channels_to_end), {x.numel() / x.size(1), x.size(1)});
}
BEFORE_MAIN(pixels, rows_of_pixels = pixels_as_rows);

}  // namespace ringgrad
