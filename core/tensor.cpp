#include "ringgrad/core/tensor.h"

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/device/device_backend.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/overlap.h"

namespace ringgrad {

Storage::Storage(size_t nbytes, Device device) : nbytes_(nbytes), stream_(current_stream(device)) {
  data_ = allocate(stream_, nbytes);
}

Storage::Storage(void* data, size_t nbytes, Device device, std::function<void()> release)
    : data_(data), nbytes_(nbytes), stream_{device, nullptr}, release_(std::move(release)) {}

Storage::~Storage() {
  if (release_)
    release_();
  else
    deallocate(stream_, data_, nbytes_);
}

const char* name(Layout layout) {
  constexpr const char* kNames[] = {"strided", "channels-last", "channel-blocked"};
  return kNames[static_cast<int>(layout)];
}

Tensor::Tensor(std::shared_ptr<Storage> storage, const Shape& shape, const Strides& strides,
               Int64 offset, DType dtype, Flag channel_blocked)
    : impl_(std::make_shared<Impl>(
          Impl{std::move(storage), nullptr, offset, shape, strides, dtype, channel_blocked})) {}

int64_t Tensor::size(Int d) const { return impl("size").shape[normalize_dim("size", d, dim())]; }
int64_t Tensor::stride(Int d) const {
  return impl("stride").strides[normalize_dim("stride", d, dim())];
}

Layout Tensor::layout() const {
  if (is_channel_blocked()) return Layout::ChannelBlocked;
  return is_channels_last() && !is_contiguous() ? Layout::ChannelsLast : Layout::Strided;
}

bool Tensor::is_contiguous() const {
  if (is_channel_blocked()) return false;
  int64_t expected = 1;
  for (int d = dim() - 1; d >= 0; --d) {
    if (shape()[d] == 1) continue;
    if (strides()[d] != expected) return numel() == 0;
    expected *= shape()[d];
  }
  return true;
}

bool Tensor::is_channels_last() const {
  if (is_channel_blocked() || dim() != 4) return false;
  const Strides wanted = channels_last_strides(shape());
  for (int d = 0; d < 4; ++d)
    if (shape()[d] != 1 && strides()[d] != wanted[d]) return numel() == 0;
  return true;
}

int64_t Tensor::flat_numel() const {
  if (is_channel_blocked()) {
    const int64_t blocks = (shape()[1] + kChannelBlock - 1) / kChannelBlock;
    return shape()[0] * blocks * kChannelBlock * shape()[2] * shape()[3];
  }
  if (is_contiguous()) return numel();
  // The tensor is dense in another order of dimensions if each stride is the product of the sizes
  // inside it.
  const DimOrder order = memory_order(shape(), strides());
  int64_t expected = 1;
  for (int i = order.count - 1; i >= 0; --i) {
    if (strides()[order.dim[i]] != expected) return 0;
    expected *= shape()[order.dim[i]];
  }
  return numel();
}

Tensor Tensor::detach() const {
  impl("detach");
  return Tensor(storage(), shape(), strides(), storage_offset(), dtype(), is_channel_blocked());
}

Tensor Tensor::as_strided(const Shape& shape, const Strides& strides, Int64 offset) const {
  CHECK(!is_channel_blocked(), "as_strided: the tensor of shape ", this->shape(),
        " is channel-blocked, where strides do not lead from one element to the "
        "next; contiguous(x) has them");
  const Tensor view(storage(), shape, strides, offset, dtype());
  const auto [first, last] = extent(view);
  const auto elements = static_cast<int64_t>(storage()->nbytes() / itemsize(dtype()));
  CHECK_AS(ShapeError,
           strides.dim() == shape.dim() && (count_elements("as_strided", shape) == 0 ||
                                            (offset >= -first && last < elements - offset)),
           "as_strided: shape ", shape, " with strides ", strides, " from element ", offset,
           " on, in a storage of ", elements,
           " elements, expected a stride for each size and all elements inside");
  return view;
}

void Tensor::set_data(const Tensor& other) const {
  impl("set_data");
  check_defined("set_data", other, "the new data");
  CHECK_AS(ShapeError, other.shape() == shape(), "set_data: the new data has shape ", other.shape(),
           ", the tensor has ", shape(), ", expected equal shapes");
  const Tensor grad = this->grad();
  CHECK_AS(DTypeError, !grad || grad.dtype() == other.dtype(), "set_data: the new data has dtype ",
           other.dtype(), ", the tensor's gradient ", grad.dtype(),
           ", expected equal dtypes; clear it first with set_grad({})");
  CHECK_AS(DeviceError, !grad || grad.device() == other.device(), "set_data: the new data is on ",
           other.device(), ", the tensor's gradient on ", grad.device(),
           ", expected one device; clear it first with set_grad({})");
  CHECK_AS(DTypeError, !requires_grad() || is_floating(other.dtype()),
           "set_data: the new data has dtype ", other.dtype(),
           ", and the tensor requires a gradient, expected a floating dtype");
  impl_->dtype = other.impl_->dtype;
  impl_->storage = other.impl_->storage;
  impl_->strides = other.impl_->strides;
  impl_->offset = other.impl_->offset;
  impl_->channel_blocked = other.impl_->channel_blocked;
}

void Tensor::throw_undefined(const char* asked) {
  throw Error(str(
      asked,
      ": asked of an undefined tensor, expected one with elements; a gradient is undefined until ",
      "backward() has reached its leaf"));
}

void Tensor::throw_wrong_dtype(DType wanted) const {
  throw DTypeError(
      str("data: the tensor has dtype ", dtype(), ", and its elements were asked for as ", wanted));
}

void check_defined(const char* operation, const Tensor& x, const char* what) {
  CHECK(x.defined(), operation, ": ", what,
        " is an undefined tensor, expected one with elements; a gradient is undefined until "
        "backward() has reached its leaf");
}

void begin_write(const char* operation, const Tensor& x) {
  check_defined(operation, x, "the destination");
  CHECK(!has_internal_overlap(x), operation, ": the destination has shape ", x.shape(),
        " and strides ", x.strides(),
        ", so that several elements lie in one place; expected a place for each: "
        "write to contiguous(x) instead");
  CHECK(x.is_leaf(), operation, ": the destination of shape ", x.shape(),
        " was computed from leaves that want a gradient, "
        "which would be wrong after a write that the graph does not know; "
        "write before, or to x.detach() where nothing else needs the values");
  CHECK(x.storage()->twins.use_count() <= 1, operation, ": the elements of shape ", x.shape(),
        " are seen by others, too: the tensor is channel-blocked and has views, or is such a view, "
        "which are copies; take y = contiguous(y) before the first view of y");
  x.storage()->bump_version();
}

}  // namespace ringgrad
