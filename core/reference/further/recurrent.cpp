// Reference: the cells of recurrent networks, unit by unit.
#include <cmath>

#include "ringgrad/core/kernels/recurrent_kernels.h"
#include "ringgrad/core/reference/elements.h"

namespace ringgrad::reference {
namespace {

// The logistic function: 0 is a closed gate, 1 an open one.
double open_part(double x) { return 1 / (1 + std::exp(-x)); }

void lstm_cell(Stream, const Tensor& h_out, const Tensor& c_out, const Tensor& gates_out,
               const Tensor& x_in, const Tensor& r_in, const Tensor& c_before_in) {
  const Elements<double> x(x_in);
  const Elements<double> r(r_in);
  const Elements<double> c_before(c_before_in);
  const Results<double> h(h_out);
  const Results<double> c(c_out);
  const Results<double> gates(gates_out);
  const int64_t size = h_out.size(1);
  for (int64_t n = 0; n < h_out.size(0); ++n)
    for (int64_t j = 0; j < size; ++j) {
      const auto gate = [&](int64_t k) { return x(n, k * size + j) + r(n, k * size + j); };
      const double i = open_part(gate(0));
      const double f = open_part(gate(1));
      const double g = std::tanh(gate(2));
      const double o = open_part(gate(3));
      const double cell = f * c_before(n, j) + i * g;
      gates(n, j) = i;
      gates(n, size + j) = f;
      gates(n, 2 * size + j) = g;
      gates(n, 3 * size + j) = o;
      c(n, j) = cell;
      h(n, j) = o * std::tanh(cell);
    }
}

void lstm_cell_backward(Stream, const Tensor& dx_out, const Tensor& dc_before_out,
                        const Tensor& dh_in, const Tensor& dc_in, const Tensor& gates_in,
                        const Tensor& c_before_in, const Tensor& c_in) {
  const Elements<double> dh(dh_in);
  const Elements<double> dc(dc_in);
  const Elements<double> gates(gates_in);
  const Elements<double> c_before(c_before_in);
  const Elements<double> c(c_in);
  const Results<double> dx(dx_out);
  const Results<double> dc_before(dc_before_out);
  const int64_t size = dh_in.size(1);
  for (int64_t n = 0; n < dh_in.size(0); ++n)
    for (int64_t j = 0; j < size; ++j) {
      const double i = gates(n, j);
      const double f = gates(n, size + j);
      const double g = gates(n, 2 * size + j);
      const double o = gates(n, 3 * size + j);
      const double bent = std::tanh(c(n, j));
      const double slope = dc(n, j) + dh(n, j) * o * (1 - bent * bent);
      dx(n, j) = slope * g * i * (1 - i);
      dx(n, size + j) = slope * c_before(n, j) * f * (1 - f);
      dx(n, 2 * size + j) = slope * i * (1 - g * g);
      dx(n, 3 * size + j) = dh(n, j) * bent * o * (1 - o);
      dc_before(n, j) = slope * f;
    }
}

void gru_cell(Stream, const Tensor& h_out, const Tensor& gates_out, const Tensor& x_in,
              const Tensor& r_in, const Tensor& h_before_in) {
  const Elements<double> x(x_in);
  const Elements<double> r(r_in);
  const Elements<double> h_before(h_before_in);
  const Results<double> h(h_out);
  const Results<double> gates(gates_out);
  const int64_t size = h_out.size(1);
  for (int64_t n = 0; n < h_out.size(0); ++n)
    for (int64_t j = 0; j < size; ++j) {
      const double reset = open_part(x(n, j) + r(n, j));
      const double keep = open_part(x(n, size + j) + r(n, size + j));
      const double part = r(n, 2 * size + j);
      const double fresh = std::tanh(x(n, 2 * size + j) + reset * part);
      gates(n, j) = reset;
      gates(n, size + j) = keep;
      gates(n, 2 * size + j) = fresh;
      gates(n, 3 * size + j) = part;
      h(n, j) = (1 - keep) * fresh + keep * h_before(n, j);
    }
}

void gru_cell_backward(Stream, const Tensor& dx_out, const Tensor& dr_out,
                       const Tensor& dh_before_out, const Tensor& dh_in, const Tensor& gates_in,
                       const Tensor& h_before_in) {
  const Elements<double> dh(dh_in);
  const Elements<double> gates(gates_in);
  const Elements<double> h_before(h_before_in);
  const Results<double> dx(dx_out);
  const Results<double> dr(dr_out);
  const Results<double> dh_before(dh_before_out);
  const int64_t size = dh_in.size(1);
  for (int64_t n = 0; n < dh_in.size(0); ++n)
    for (int64_t j = 0; j < size; ++j) {
      const double reset = gates(n, j);
      const double keep = gates(n, size + j);
      const double fresh = gates(n, 2 * size + j);
      const double part = gates(n, 3 * size + j);
      const double of_fresh = dh(n, j) * (1 - keep) * (1 - fresh * fresh);
      const double of_keep = dh(n, j) * (h_before(n, j) - fresh) * keep * (1 - keep);
      const double of_reset = of_fresh * part * reset * (1 - reset);
      dx(n, j) = of_reset;
      dx(n, size + j) = of_keep;
      dx(n, 2 * size + j) = of_fresh;
      dr(n, j) = of_reset;
      dr(n, size + j) = of_keep;
      dr(n, 2 * size + j) = of_fresh * reset;
      dh_before(n, j) = dh(n, j) * keep;
    }
}

REFERENCE(lstm_cell);
REFERENCE(lstm_cell_backward);
REFERENCE(gru_cell);
REFERENCE(gru_cell_backward);

}  // namespace
}  // namespace ringgrad::reference
