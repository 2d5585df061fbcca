// The cells of core/kernels/recurrent_kernels.h, written once for all devices. A device's Backend
// provides Math (elementwise_functions.h). It provides Memory<T>, which reads and writes numbers in
// the accumulation type. It also provides for_each(stream, rows, columns, f), which calls f(row,
// column) for each pair.
#pragma once

#include <cmath>

#include "ringgrad/core/base/number.h"
#include "ringgrad/core/dtype.h"
#include "ringgrad/core/tensor.h"

namespace ringgrad {

template <class Backend>
struct RecurrentCells {
  using Math = typename Backend::Math;
  template <class T>
  using Memory = typename Backend::template Memory<T>;

  template <class A>
  static RINGGRAD_HOST_DEVICE A logistic(A x) {
    return 1 / (1 + Math::exp(-x));
  }

  template <class A, class M>
  struct Lstm {
    int64_t size;
    M h;
    M c;
    M gates;
    M x;
    M r;
    M c_before;
    RINGGRAD_HOST_DEVICE void operator()(int64_t row, int64_t column) const {
      const int64_t at = row * size + column;
      const int64_t gate = 4 * row * size + column;
      const A i = logistic(x.read(gate) + r.read(gate));
      const A f = logistic(x.read(gate + size) + r.read(gate + size));
      const A g = Math::tanh(x.read(gate + 2 * size) + r.read(gate + 2 * size));
      const A o = logistic(x.read(gate + 3 * size) + r.read(gate + 3 * size));
      const A cell = f * c_before.read(at) + i * g;
      gates.write(gate, i);
      gates.write(gate + size, f);
      gates.write(gate + 2 * size, g);
      gates.write(gate + 3 * size, o);
      c.write(at, cell);
      h.write(at, o * Math::tanh(cell));
    }
  };
  static void lstm_cell(Stream stream, const Tensor& h, const Tensor& c, const Tensor& gates,
                        const Tensor& x, const Tensor& r, const Tensor& c_before) {
    visit_floating("lstm_cell", h.dtype(), [&]<class T>() {
      using M = Memory<T>;
      const Lstm<Accumulator<T>, M> cell{h.size(1), M(h), M(c), M(gates), M(x), M(r), M(c_before)};
      Backend::for_each(stream, h.size(0), h.size(1), cell);
    });
  }

  template <class A, class M>
  struct LstmBackward {
    int64_t size;
    M dx;
    M dc_before;
    M dh;
    M dc;
    M gates;
    M c_before;
    M c;
    RINGGRAD_HOST_DEVICE void operator()(int64_t row, int64_t column) const {
      const int64_t at = row * size + column;
      const int64_t gate = 4 * row * size + column;
      const A i = gates.read(gate);
      const A f = gates.read(gate + size);
      const A g = gates.read(gate + 2 * size);
      const A o = gates.read(gate + 3 * size);
      const A bent = Math::tanh(c.read(at));
      const A down = dh.read(at);
      const A slope = dc.read(at) + down * o * (1 - bent * bent);
      dx.write(gate, slope * g * i * (1 - i));
      dx.write(gate + size, slope * c_before.read(at) * f * (1 - f));
      dx.write(gate + 2 * size, slope * i * (1 - g * g));
      dx.write(gate + 3 * size, down * bent * o * (1 - o));
      dc_before.write(at, slope * f);
    }
  };
  static void lstm_cell_backward(Stream stream, const Tensor& dx, const Tensor& dc_before,
                                 const Tensor& dh, const Tensor& dc, const Tensor& gates,
                                 const Tensor& c_before, const Tensor& c) {
    visit_floating("lstm_cell_backward", dh.dtype(), [&]<class T>() {
      using M = Memory<T>;
      const LstmBackward<Accumulator<T>, M> cell{dh.size(1), M(dx),    M(dc_before), M(dh),
                                                 M(dc),      M(gates), M(c_before),  M(c)};
      Backend::for_each(stream, dh.size(0), dh.size(1), cell);
    });
  }

  template <class A, class M>
  struct Gru {
    int64_t size;
    M h;
    M gates;
    M x;
    M r;
    M h_before;
    RINGGRAD_HOST_DEVICE void operator()(int64_t row, int64_t column) const {
      const int64_t at = row * size + column;
      const int64_t from = 3 * row * size + column;
      const int64_t gate = 4 * row * size + column;
      const A reset = logistic(x.read(from) + r.read(from));
      const A keep = logistic(x.read(from + size) + r.read(from + size));
      const A part = r.read(from + 2 * size);
      const A fresh = Math::tanh(x.read(from + 2 * size) + reset * part);
      gates.write(gate, reset);
      gates.write(gate + size, keep);
      gates.write(gate + 2 * size, fresh);
      gates.write(gate + 3 * size, part);
      h.write(at, fresh + keep * (h_before.read(at) - fresh));
    }
  };
  static void gru_cell(Stream stream, const Tensor& h, const Tensor& gates, const Tensor& x,
                       const Tensor& r, const Tensor& h_before) {
    visit_floating("gru_cell", h.dtype(), [&]<class T>() {
      using M = Memory<T>;
      const Gru<Accumulator<T>, M> cell{h.size(1), M(h), M(gates), M(x), M(r), M(h_before)};
      Backend::for_each(stream, h.size(0), h.size(1), cell);
    });
  }

  template <class A, class M>
  struct GruBackward {
    int64_t size;
    M dx;
    M dr;
    M dh_before;
    M dh;
    M gates;
    M h_before;
    RINGGRAD_HOST_DEVICE void operator()(int64_t row, int64_t column) const {
      const int64_t at = row * size + column;
      const int64_t to = 3 * row * size + column;
      const int64_t gate = 4 * row * size + column;
      const A reset = gates.read(gate);
      const A keep = gates.read(gate + size);
      const A fresh = gates.read(gate + 2 * size);
      const A down = dh.read(at);
      const A slope = down * (1 - keep) * (1 - fresh * fresh);
      const A of_reset = slope * gates.read(gate + 3 * size) * reset * (1 - reset);
      const A of_keep = down * (h_before.read(at) - fresh) * keep * (1 - keep);
      dx.write(to, of_reset);
      dr.write(to, of_reset);
      dx.write(to + size, of_keep);
      dr.write(to + size, of_keep);
      dx.write(to + 2 * size, slope);
      dr.write(to + 2 * size, slope * reset);
      dh_before.write(at, down * keep);
    }
  };
  static void gru_cell_backward(Stream stream, const Tensor& dx, const Tensor& dr,
                                const Tensor& dh_before, const Tensor& dh, const Tensor& gates,
                                const Tensor& h_before) {
    visit_floating("gru_cell_backward", dh.dtype(), [&]<class T>() {
      using M = Memory<T>;
      const GruBackward<Accumulator<T>, M> cell{dh.size(1), M(dx),    M(dr),      M(dh_before),
                                                M(dh),      M(gates), M(h_before)};
      Backend::for_each(stream, dh.size(0), dh.size(1), cell);
    });
  }
};

// Calls REGISTER(name, Cells) for each of these kernels.
#define RINGGRAD_RECURRENT_KERNELS(REGISTER) \
  REGISTER(lstm_cell, Cells)                 \
  REGISTER(lstm_cell_backward, Cells)        \
  REGISTER(gru_cell, Cells)                  \
  REGISTER(gru_cell_backward, Cells)

}  // namespace ringgrad
