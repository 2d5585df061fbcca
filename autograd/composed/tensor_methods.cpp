// The methods of Tensor that are operations. Each calls the free function of its name.
#include "ringgrad/autograd/graph.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"

namespace ringgrad {

std::shared_ptr<Node> Tensor::grad_fn() const {
  return autograd_meta() ? autograd_meta()->grad_fn : nullptr;
}

Tensor Tensor::add(const Tensor& other) const { return ringgrad::add(*this, other); }
Tensor Tensor::sub(const Tensor& other) const { return ringgrad::sub(*this, other); }
Tensor Tensor::mul(const Tensor& other) const { return ringgrad::mul(*this, other); }
Tensor Tensor::div(const Tensor& other) const { return ringgrad::div(*this, other); }
Tensor Tensor::neg() const { return ringgrad::neg(*this); }
Tensor Tensor::pow(Scalar exponent) const { return ringgrad::pow(*this, exponent); }
Tensor Tensor::exp() const { return ringgrad::exp(*this); }
Tensor Tensor::log() const { return ringgrad::log(*this); }
Tensor Tensor::log1p() const { return ringgrad::log1p(*this); }
Tensor Tensor::sqrt() const { return ringgrad::sqrt(*this); }
Tensor Tensor::square() const { return ringgrad::square(*this); }
Tensor Tensor::abs() const { return ringgrad::abs(*this); }
Tensor Tensor::sin() const { return ringgrad::sin(*this); }
Tensor Tensor::cos() const { return ringgrad::cos(*this); }
Tensor Tensor::clamp(std::optional<Scalar> low, std::optional<Scalar> high) const {
  return ringgrad::clamp(*this, low, high);
}
Tensor Tensor::clamp_min(Scalar low) const { return ringgrad::clamp_min(*this, low); }
Tensor Tensor::clamp_max(Scalar high) const { return ringgrad::clamp_max(*this, high); }
Tensor Tensor::floor() const { return ringgrad::floor(*this); }
Tensor Tensor::ceil() const { return ringgrad::ceil(*this); }
Tensor Tensor::round() const { return ringgrad::round(*this); }
Tensor Tensor::trunc() const { return ringgrad::trunc(*this); }
Tensor Tensor::sign() const { return ringgrad::sign(*this); }
Tensor Tensor::relu() const { return ringgrad::relu(*this); }
Tensor Tensor::sigmoid() const { return ringgrad::sigmoid(*this); }
Tensor Tensor::tanh() const { return ringgrad::tanh(*this); }
Tensor Tensor::softmax(Int dim) const { return ringgrad::softmax(*this, dim); }
Tensor Tensor::log_softmax(Int dim) const { return ringgrad::log_softmax(*this, dim); }
Mask Tensor::eq(const Tensor& other) const { return ringgrad::eq(*this, other); }
Mask Tensor::eq(Scalar c) const { return ringgrad::eq(*this, c); }
Mask Tensor::any(const Dims& dims, Flag keepdim) const {
  return ringgrad::any(*this, dims, keepdim);
}
Mask Tensor::all(const Dims& dims, Flag keepdim) const {
  return ringgrad::all(*this, dims, keepdim);
}
Tensor Tensor::masked_fill(const Tensor& mask, Scalar value) const {
  return ringgrad::masked_fill(*this, mask, value);
}
Tensor Tensor::sum(const Dims& dims, Flag keepdim) const {
  return ringgrad::sum(*this, dims, keepdim);
}
Tensor Tensor::mean(const Dims& dims, Flag keepdim) const {
  return ringgrad::mean(*this, dims, keepdim);
}
Tensor Tensor::var(const Dims& dims, Int correction, Flag keepdim) const {
  return ringgrad::var(*this, dims, correction, keepdim);
}
Tensor Tensor::std(const Dims& dims, Int correction, Flag keepdim) const {
  return ringgrad::std(*this, dims, correction, keepdim);
}
Tensor Tensor::var(const Dims& dims, Flag unbiased, Flag keepdim) const {
  return ringgrad::var(*this, dims, unbiased, keepdim);
}
Tensor Tensor::std(const Dims& dims, Flag unbiased, Flag keepdim) const {
  return ringgrad::std(*this, dims, unbiased, keepdim);
}
Tensor Tensor::var(Flag unbiased) const { return ringgrad::var(*this, unbiased); }
Tensor Tensor::std(Flag unbiased) const { return ringgrad::std(*this, unbiased); }
Tensor Tensor::norm(Real p, const Dims& dims, Flag keepdim) const {
  return ringgrad::norm(*this, p, dims, keepdim);
}
Tensor Tensor::max() const { return ringgrad::max(*this); }
Tensor Tensor::min() const { return ringgrad::min(*this); }
ValuesAndIndices Tensor::max(Int dim, Flag keepdim) const {
  return ringgrad::max(*this, dim, keepdim);
}
ValuesAndIndices Tensor::min(Int dim, Flag keepdim) const {
  return ringgrad::min(*this, dim, keepdim);
}
Tensor Tensor::argmax() const { return ringgrad::argmax(*this); }
Tensor Tensor::argmin() const { return ringgrad::argmin(*this); }
Tensor Tensor::argmax(Int dim, Flag keepdim) const { return ringgrad::argmax(*this, dim, keepdim); }
Tensor Tensor::argmin(Int dim, Flag keepdim) const { return ringgrad::argmin(*this, dim, keepdim); }
Tensor Tensor::prod() const { return ringgrad::prod(*this); }
Tensor Tensor::prod(Int dim, Flag keepdim) const { return ringgrad::prod(*this, dim, keepdim); }
Tensor Tensor::cumsum(Int dim) const { return ringgrad::cumsum(*this, dim); }
Tensor Tensor::cumprod(Int dim) const { return ringgrad::cumprod(*this, dim); }
ValuesAndIndices Tensor::sort(Int dim, Flag descending) const {
  return ringgrad::sort(*this, dim, descending);
}
ValuesAndIndices Tensor::topk(Int64 k, Int dim, Flag largest) const {
  return ringgrad::topk(*this, k, dim, largest);
}
Tensor Tensor::matmul(const Tensor& other) const { return ringgrad::matmul(*this, other); }
Tensor Tensor::mm(const Tensor& other) const { return ringgrad::mm(*this, other); }
Tensor Tensor::view(const Shape& shape) const { return ringgrad::view(*this, shape); }
Tensor Tensor::reshape(const Shape& shape) const { return ringgrad::reshape(*this, shape); }
Tensor Tensor::flatten(Int start_dim, Int end_dim) const {
  return ringgrad::flatten(*this, start_dim, end_dim);
}
Tensor Tensor::squeeze() const { return ringgrad::squeeze(*this); }
Tensor Tensor::squeeze(Int dim) const { return ringgrad::squeeze(*this, dim); }
Tensor Tensor::unsqueeze(Int dim) const { return ringgrad::unsqueeze(*this, dim); }
Tensor Tensor::transpose(Int dim0, Int dim1) const {
  return ringgrad::transpose(*this, dim0, dim1);
}
Tensor Tensor::permute(const Dims& order) const { return ringgrad::permute(*this, order); }
Tensor Tensor::expand(const Shape& shape) const { return ringgrad::expand(*this, shape); }
Tensor Tensor::repeat(const Shape& times) const { return ringgrad::repeat(*this, times); }
Tensor Tensor::flip(const Dims& dims) const { return ringgrad::flip(*this, dims); }
Tensor Tensor::roll(const std::vector<int64_t>& shifts, const Dims& dims) const {
  return ringgrad::roll(*this, shifts, dims);
}
Tensor Tensor::view_as(const Tensor& other) const { return view(other.shape()); }
Tensor Tensor::reshape_as(const Tensor& other) const { return reshape(other.shape()); }
Tensor Tensor::expand_as(const Tensor& other) const { return expand(other.shape()); }
Tensor Tensor::type_as(const Tensor& other) const { return to(other.dtype()).to(other.device()); }
Tensor Tensor::new_empty(const Shape& shape) const {
  return ringgrad::empty(shape, {dtype(), device()});
}
Tensor Tensor::new_zeros(const Shape& shape) const { return new_full(shape, 0); }
Tensor Tensor::new_ones(const Shape& shape) const { return new_full(shape, 1); }
Tensor Tensor::new_full(const Shape& shape, Scalar value) const {
  return ringgrad::full(shape, value, {dtype(), device()});
}
Tensor Tensor::slice(Int dim, Int64 begin, Int64 end, Int64 step) const {
  return ringgrad::slice(*this, dim, begin, end, step);
}
Tensor Tensor::narrow(Int dim, Int64 begin, Int64 length) const {
  return ringgrad::narrow(*this, dim, begin, length);
}
Tensor Tensor::select(Int dim, Int64 place) const { return ringgrad::select(*this, dim, place); }
Tensor Tensor::index(const std::vector<Index>& at) const { return ringgrad::index(*this, at); }
Tensor Tensor::index_select(Int dim, const Tensor& index) const {
  return ringgrad::index_select(*this, dim, index);
}
Tensor Tensor::gather(Int dim, const Tensor& index) const {
  return ringgrad::gather(*this, dim, index);
}
std::vector<Tensor> Tensor::chunk(Int64 chunks, Int dim) const {
  return ringgrad::chunk(*this, chunks, dim);
}
std::vector<Tensor> Tensor::split(Int64 size, Int dim) const {
  return ringgrad::split(*this, size, dim);
}
Tensor Tensor::to(DType dtype) const { return ringgrad::to(*this, dtype); }
Tensor Tensor::to(ringgrad::Device device) const { return ringgrad::to(*this, device); }
Tensor Tensor::contiguous() const { return ringgrad::contiguous(*this); }
Tensor Tensor::clone() const { return ringgrad::clone(*this); }
Tensor Tensor::operator[](Int64 place) const { return ringgrad::select(*this, 0, place); }
Tensor Tensor::t() const {
  CHECK_AS(ShapeError, dim() <= 2, "t: shape ", shape(),
           ", expected at most two dimensions; transpose() takes any");
  return dim() < 2 ? *this : ringgrad::transpose(*this, 0, 1);
}
Tensor Tensor::cpu() const { return to(ringgrad::Device(DeviceType::CPU)); }
Tensor Tensor::cuda() const { return to(ringgrad::Device(DeviceType::CUDA)); }

}  // namespace ringgrad
