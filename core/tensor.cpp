#include "ringgrad/core/tensor.h"

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"

namespace ringgrad {

const char* name(Layout layout) {
  constexpr const char* kNames[] = {"strided", "channels-last", "channel-blocked"};
  return kNames[static_cast<int>(layout)];
}

Tensor::Tensor(std::shared_ptr<Storage> storage, const Shape& shape, const Strides& strides, int64_t offset,
               DType dtype, bool channel_blocked)
    : impl_(std::make_shared<Impl>(Impl{std::move(storage), nullptr, offset, shape, strides, dtype, channel_blocked})) {
}

int64_t Tensor::size(int d) const { return impl("size").shape[normalize_dim("size", d, dim())]; }
int64_t Tensor::stride(int d) const { return impl("stride").strides[normalize_dim("stride", d, dim())]; }

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
  // Dense in another order of dimensions: each stride is the product of the sizes inside it.
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

Tensor Tensor::as_strided(const Shape& shape, const Strides& strides, int64_t offset) const {
  ASSERT(!is_channel_blocked());
  return Tensor(storage(), shape, strides, offset, dtype());
}

void Tensor::set_data(const Tensor& other) const {
  impl("set_data");
  CHECK(other.defined(), "set_data: the new data is an undefined tensor, expected one with elements");
  CHECK_AS(ShapeError, other.shape() == shape(), "set_data: the new data has shape ", other.shape(),
           ", the tensor has ", shape(), ", expected equal shapes");
  const Tensor grad = this->grad();
  CHECK_AS(DTypeError, !grad || grad.dtype() == other.dtype(), "set_data: the new data has dtype ", other.dtype(),
           ", the tensor's gradient ", grad.dtype(), ", expected equal dtypes; clear it first with set_grad({})");
  CHECK_AS(DeviceError, !grad || grad.device() == other.device(), "set_data: the new data is on ", other.device(),
           ", the tensor's gradient on ", grad.device(), ", expected one device; clear it first with set_grad({})");
  CHECK_AS(DTypeError, !requires_grad() || is_floating(other.dtype()), "set_data: the new data has dtype ",
           other.dtype(), ", and the tensor requires a gradient, expected a floating dtype");
  impl_->dtype = other.impl_->dtype;
  impl_->storage = other.impl_->storage;
  impl_->strides = other.impl_->strides;
  impl_->offset = other.impl_->offset;
  impl_->channel_blocked = other.impl_->channel_blocked;
}

void Tensor::throw_undefined(const char* asked) {
  throw Error(str(asked, ": asked of an undefined tensor, expected one with elements; a gradient is undefined until ",
                  "backward() has reached its leaf"));
}

void Tensor::throw_wrong_dtype(DType wanted) const {
  throw DTypeError(str("data: the tensor has dtype ", dtype(), ", and its elements were asked for as ", wanted));
}

template <class T>
T Tensor::item() const {
  impl("item");
  CHECK_AS(ShapeError, numel() == 1, "item: the tensor has shape ", shape(), ", expected one element");
  return to_vector<T>(*this)[0];
}
template float Tensor::item() const;
template double Tensor::item() const;
template int64_t Tensor::item() const;
template int32_t Tensor::item() const;
template uint8_t Tensor::item() const;
template bool Tensor::item() const;
template float16 Tensor::item() const;
template bfloat16 Tensor::item() const;

}  // namespace ringgrad
