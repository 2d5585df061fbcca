#include "ringgrad/core/factory.h"

#include <algorithm>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/kernels/classifier_kernels.h"
#include "ringgrad/core/overlap.h"
#include "ringgrad/core/program_observer.h"

namespace ringgrad {
namespace {

Tensor allocate(const Shape& shape, const Strides& strides, int64_t elements, DType dtype,
                Device device, bool channel_blocked = false) {
  auto storage = std::make_shared<Storage>(static_cast<size_t>(elements) * itemsize(dtype), device);
  if (channel_blocked) storage->twins = std::make_shared<char>();
  return Tensor(std::move(storage), shape, strides, 0, dtype, channel_blocked);
}

// Sets x to the value. In the channel-blocked layout the channels beyond C must stay zero. A copy
// keeps them zero, so those tensors are filled by a copy.
void fill(const Tensor& x, Scalar value) {
  if (!x.is_channel_blocked() || value.to<double>() == 0) {
    kernels::fill(x, value);
    return;
  }
  const Tensor one = scalar(value, {x.dtype(), x.device()});
  kernels::copy(x, one.as_strided(x.shape(), {0, 0, 0, 0}, 0));
}

// Returns true if `a` and `b` share memory, unless each element lies exactly where its counterpart
// lies.
bool overlap_partly(const Tensor& a, const Tensor& b) {
  const bool same_places = a.raw_data() == b.raw_data() && a.strides() == b.strides() &&
                           a.dtype() == b.dtype() &&
                           a.is_channel_blocked() == b.is_channel_blocked();
  return !same_places && have_memory_in_common(a, b);
}

}  // namespace

Tensor empty(const Shape& shape, TensorOptions options) {
  const int64_t elements = count_elements("empty", shape);
  const auto& [dtype, device, layout] = options;
  if (layout == Layout::Strided)
    return allocate(shape, contiguous_strides(shape), elements, dtype, device);
  CHECK_AS(ShapeError, shape.dim() == 4, "empty: the ", name(layout),
           " layout needs 4 dimensions, the shape is ", shape);
  if (layout == Layout::ChannelsLast)
    return allocate(shape, channels_last_strides(shape), elements, dtype, device);
  const int64_t blocks = (shape[1] + kChannelBlock - 1) / kChannelBlock;
  return allocate(shape, contiguous_strides(shape),
                  shape[0] * blocks * kChannelBlock * shape[2] * shape[3], dtype, device, true);
}

Tensor empty_like(const Tensor& x, DType dtype) {
  check_defined("empty_like", x, "the model");
  if (x.is_channel_blocked() || x.is_contiguous() || x.flat_numel() == 0)
    return empty(x.shape(), {dtype, x.device(), x.layout()});
  return allocate(x.shape(), x.strides(), x.numel(), dtype, x.device());
}
Tensor empty_like(const Tensor& x) {
  check_defined("empty_like", x, "the model");
  return empty_like(x, x.dtype());
}

Tensor full(const Shape& shape, Scalar value, TensorOptions options) {
  check_holds("full", options.dtype, value);
  Tensor x = empty(shape, options);
  fill(x, value);
  return x;
}
Tensor zeros(const Shape& shape, TensorOptions options) { return full(shape, 0, options); }
Tensor ones(const Shape& shape, TensorOptions options) { return full(shape, 1, options); }
Tensor scalar(Scalar value, TensorOptions options) { return full({}, value, options); }

static Tensor full_like(const char* operation, const Tensor& x, Scalar value) {
  check_defined(operation, x, "the model");
  check_holds(operation, x.dtype(), value);
  Tensor y = empty_like(x);
  fill(y, value);
  return y;
}
Tensor full_like(const Tensor& x, Scalar value) { return full_like("full_like", x, value); }
Tensor zeros_like(const Tensor& x) { return full_like("zeros_like", x, 0); }
Tensor ones_like(const Tensor& x) { return full_like("ones_like", x, 1); }

template <class T>
Tensor tensor(const std::vector<T>& values, const Shape& shape, Device device) {
  CHECK_AS(ShapeError, static_cast<int64_t>(values.size()) == shape.numel(),
           "tensor: ", values.size(), " values for shape ", shape, ", expected ", shape.numel());
  Tensor host = empty(shape, {.dtype = dtype_of<T>});
  std::ranges::copy(values, host.data<T>());
  return on_device(host, device);
}

// Throws if T cannot hold an element of x, which is on the host, after its fraction is dropped.
template <class T>
static void check_range(const Tensor& x) {
  visit_dtype("to_vector", x.dtype(), [&]<class X>() {
    const auto* elements = x.data<X>();
    for (int64_t i = 0; i < x.numel(); ++i) {
      const Scalar element = elements[i];
      CHECK_AS(DTypeError,
               holds(dtype_of<T>, element) && (element.to<double>() > -1 || std::is_signed_v<T>),
               "to_vector: element ", i, " is ", element, ", which ", dtype_of<T>,
               " cannot hold; ask for a wider type, or convert with to(), which wraps");
    }
  });
}

template <class T>
std::vector<T> to_vector(const Tensor& x) {
  check_defined("to_vector", x, "the source");
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
    if (x.dtype() != dtype_of<T>) check_range<T>(copy_of(x, {.dtype = x.dtype()}));
  Tensor host = empty(x.shape(), {.dtype = dtype_of<T>});
  copy_(host, x);
  return std::vector<T>(host.data<T>(), host.data<T>() + host.numel());
}

template <class T>
T Tensor::item() const {
  impl("item");
  CHECK_AS(ShapeError, numel() == 1, "item: the tensor has shape ", shape(),
           ", expected one element");
  if (program_observer) program_observer->read(*this);
  return to_vector<T>(*this)[0];
}

#define INSTANTIATE(T)                                                 \
  template Tensor tensor(const std::vector<T>&, const Shape&, Device); \
  template std::vector<T> to_vector(const Tensor&);                    \
  template T Tensor::item() const;
INSTANTIATE(float)
INSTANTIATE(double)
INSTANTIATE(int64_t)
INSTANTIATE(int32_t)
INSTANTIATE(uint8_t)
INSTANTIATE(bool)
INSTANTIATE(float16)
INSTANTIATE(bfloat16)
#undef INSTANTIATE

void fill_(const Tensor& x, Scalar value) {
  check_defined("fill_", x, "the destination");
  check_holds("fill_", x.dtype(), value);
  begin_write("fill_", x);
  fill(x, value);
}

void copy_(const Tensor& destination, const Tensor& source) {
  check_defined("copy_", destination, "the destination");
  check_defined("copy_", source, "the source");
  CHECK_AS(ShapeError, destination.shape() == source.shape(), "copy_: the destination has shape ",
           destination.shape(), ", the source ", source.shape(), ", expected equal shapes");
  CHECK(!overlap_partly(destination, source), "copy_: the source and the destination of shape ",
        destination.shape(),
        " have memory in common, expected none: some elements would be overwritten before they are "
        "read; copy from another copy of the source");
  begin_write("copy_", destination);
  // A kernel runs on the device of its first tensor. When a device copies to the host, that
  // device's kernel must do the work. copy_to_host therefore takes the source first.
  if (destination.device().is_cpu() && !source.device().is_cpu())
    kernels::copy_to_host(source, destination);
  else
    kernels::copy(destination, source);
}

Tensor copy_of(const Tensor& x, TensorOptions options) {
  const Tensor y = empty(x.shape(), options);
  copy_(y, x);
  return y;
}

Tensor on_device(const Tensor& x, Device device) {
  return x.device() == device ? x : copy_of(x, {x.dtype(), device});
}

Tensor as_contiguous(const Tensor& x) {
  if (x.is_contiguous()) return x;
  Tensor y = empty(x.shape(), {x.dtype(), x.device()});
  kernels::copy(y, x);
  return y;
}

}  // namespace ringgrad
