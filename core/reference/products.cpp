// Reference: products of matrices, and convolutions with both of their gradients.
#include "ringgrad/core/reference/elements.h"

namespace ringgrad::reference {
namespace {

// c[b] = a[b] · b[b] + bias
void matmul(Stream, const Tensor& c_out, const Tensor& a_in, const Tensor& b_in,
            const Tensor& bias_in) {
  const Results<double> c(c_out);
  const Elements<double> a(a_in);
  const Elements<double> b(b_in);
  const Elements<double> bias(bias_in);
  const int64_t terms = a.shape()[2];
  for_each_index(c.shape(), [&](const Shape& i) {
    double sum = bias.value_or(0, i[2]);
    for (int64_t k = 0; k < terms; ++k) sum += a(i[0], i[1], k) * b(i[0], k, i[2]);
    c(i) = sum;
  });
}

// body(out, in, weight) for each product x[in] w[weight] that a convolution adds up for y[out]: its
// definition. In the forward pass such products are added for each y, in the gradient of x for each
// x, and in that of w for each w. Pixels in the padding are 0, and add nothing.
template <class Body>
void for_each_product(const Shape& y, const Shape& x, const Shape& w, const Conv2dOptions& o,
                      const Body& body) {
  const int64_t filters_of_group = w[0] / o.groups;
  Shape in = x;
  Shape weight = w;
  for_each_index(y, [&](const Shape& out) {
    in[0] = out[0];
    weight[0] = out[1];
    for_each_index({w[1], w[2], w[3]}, [&](const Shape& tap) {
      for (int d = 0; d < 3; ++d) weight[d + 1] = tap[d];
      in[1] = out[1] / filters_of_group * w[1] + tap[0];
      in[2] = out[2] * o.stride.h + tap[1] * o.dilation.h - o.padding.h;
      in[3] = out[3] * o.stride.w + tap[2] * o.dilation.w - o.padding.w;
      if (in[2] >= 0 && in[2] < x[2] && in[3] >= 0 && in[3] < x[3]) body(out, in, weight);
    });
  });
}

void conv2d(Stream, const Tensor& y_out, const Tensor& x_in, const Tensor& w_in, const Tensor& b_in,
            const Conv2dOptions& options) {
  const Elements<double> x(x_in);
  const Elements<double> w(w_in);
  const Elements<double> b(b_in);
  const Results<double> y(y_out);
  Sums sums(y.shape());
  for_each_product(
      y.shape(), x.shape(), w.shape(), options,
      [&](const auto& out, const auto& in, const auto& weight) { sums(out) += x(in) * w(weight); });
  for_each_index(y.shape(), [&](const Shape& i) { y(i) = sums(i) + b.value_or(0, i[1]); });
}

void conv2d_backward_input(Stream, const Tensor& dx_out, const Tensor& dy_in, const Tensor& w_in,
                           const Tensor& addend_in, const Conv2dOptions& options) {
  const Elements<double> dy(dy_in);
  const Elements<double> w(w_in);
  const Elements<double> addend(addend_in);
  const Results<double> dx(dx_out);
  Sums sums(dx.shape());
  for_each_product(dy.shape(), dx.shape(), w.shape(), options,
                   [&](const auto& out, const auto& in, const auto& weight) {
                     sums(in) += dy(out) * w(weight);
                   });
  for_each_index(dx.shape(), [&](const Shape& i) { dx(i) = sums(i) + addend.value_or(0, i); });
}

void conv2d_backward_weight(Stream, const Tensor& dw_out, const Tensor& dy_in, const Tensor& x_in,
                            const Conv2dOptions& options) {
  const Elements<double> dy(dy_in);
  const Elements<double> x(x_in);
  const Results<double> dw(dw_out);
  Sums sums(dw.shape());
  for_each_product(dy.shape(), x.shape(), dw.shape(), options,
                   [&](const auto& out, const auto& in, const auto& weight) {
                     sums(weight) += dy(out) * x(in);
                   });
  for_each_index(dw.shape(), [&](const Shape& i) { dw(i) = sums(i); });
}

REGISTER_KERNEL(matmul, DeviceType::CPU, Provider::Reference, matmul);
REGISTER_KERNEL(conv2d, DeviceType::CPU, Provider::Reference, conv2d);
REGISTER_KERNEL(conv2d_backward_input, DeviceType::CPU, Provider::Reference, conv2d_backward_input);
REGISTER_KERNEL(conv2d_backward_weight, DeviceType::CPU, Provider::Reference,
                conv2d_backward_weight);

}  // namespace
}  // namespace ringgrad::reference
