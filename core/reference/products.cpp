// Reference: matrix products, and convolutions with both gradients.
#include "ringgrad/core/reference/elements.h"

namespace ringgrad::reference {
namespace {

// c[b] = a[b] · b[b] + bias
void matmul(Stream, const Tensor& c_out, const Tensor& a_in, const Tensor& b_in,
            const Tensor& bias_in) {
  const std::vector<double> a = wide(a_in);
  const std::vector<double> b = wide(b_in);
  const Elements<double> bias(bias_in);
  const int64_t rows = c_out.size(1);
  const int64_t columns = c_out.size(2);
  const int64_t terms = a_in.size(2);
  const Results<double> c(c_out);
  for_each_index(c_out.shape(), [&](const Shape& i) {
    double sum = bias.value_or(0, i[2]);
    const int64_t row = (i[0] * rows + i[1]) * terms;
    const int64_t column = i[0] * terms * columns + i[2];
    for (int64_t k = 0; k < terms; ++k) sum += a[row + k] * b[column + k * columns];
    c(i) = sum;
  });
}

// Calls body(out, in, weight) for each product x[in] w[weight] that a convolution adds up for
// y[out]. This is its definition; positions are in row-major order. The forward pass adds such
// products for each y, the gradient of x for each x, and that of w for each w. Pixels in the
// padding are 0 and contribute nothing.
template <class Body>
void for_each_product(const Shape& y, const Shape& x, const Shape& w, const Conv2dOptions& o,
                      const Body& body) {
  const int64_t filters_of_group = w[0] / o.groups;
  int64_t out = 0;
  for_each_index(y, [&](const Shape& i) {
    const int64_t first_plane = i[0] * x[1] + i[1] / filters_of_group * w[1];
    int64_t weight = i[1] * w[1] * w[2] * w[3];
    for (int64_t channel = 0; channel < w[1]; ++channel)
      for (int64_t r = 0; r < w[2]; ++r)
        for (int64_t s = 0; s < w[3]; ++s, ++weight) {
          const int64_t h = i[2] * o.stride.h + r * o.dilation.h - o.padding.h;
          const int64_t v = i[3] * o.stride.w + s * o.dilation.w - o.padding.w;
          if (h < 0 || h >= x[2] || v < 0 || v >= x[3]) continue;
          body(out, ((first_plane + channel) * x[2] + h) * x[3] + v, weight);
        }
    ++out;
  });
}

void conv2d(Stream, const Tensor& y_out, const Tensor& x_in, const Tensor& w_in, const Tensor& b_in,
            const Conv2dOptions& options) {
  const std::vector<double> x = wide(x_in);
  const std::vector<double> w = wide(w_in);
  const Elements<double> b(b_in);
  std::vector<double> y(y_out.numel());
  for_each_product(y_out.shape(), x_in.shape(), w_in.shape(), options,
                   [&](int64_t out, int64_t in, int64_t weight) { y[out] += x[in] * w[weight]; });
  store(y_out, y, [&](double sum, const Shape& i) { return sum + b.value_or(0, i[1]); });
}

void conv2d_backward_input(Stream, const Tensor& dx_out, const Tensor& dy_in, const Tensor& w_in,
                           const Tensor& addend_in, const Conv2dOptions& options) {
  const std::vector<double> dy = wide(dy_in);
  const std::vector<double> w = wide(w_in);
  const Elements<double> addend(addend_in);
  std::vector<double> dx(dx_out.numel());
  for_each_product(dy_in.shape(), dx_out.shape(), w_in.shape(), options,
                   [&](int64_t out, int64_t in, int64_t weight) { dx[in] += dy[out] * w[weight]; });
  store(dx_out, dx, [&](double sum, const Shape& i) { return sum + addend.value_or(0, i); });
}

void conv2d_backward_weight(Stream, const Tensor& dw_out, const Tensor& dy_in, const Tensor& x_in,
                            const Conv2dOptions& options) {
  const std::vector<double> dy = wide(dy_in);
  const std::vector<double> x = wide(x_in);
  std::vector<double> dw(dw_out.numel());
  for_each_product(dy_in.shape(), x_in.shape(), dw_out.shape(), options,
                   [&](int64_t out, int64_t in, int64_t weight) { dw[weight] += dy[out] * x[in]; });
  store(dw_out, dw, [](double sum, const Shape&) { return sum; });
}

REFERENCE(matmul);
REFERENCE(conv2d);
REFERENCE(conv2d_backward_input);
REFERENCE(conv2d_backward_weight);

}  // namespace
}  // namespace ringgrad::reference
