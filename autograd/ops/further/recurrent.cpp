#include "ringgrad/autograd/recurrent_ops.h"

#include <algorithm>

#include "ringgrad/autograd/autocast.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/autograd/ops/further/common.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/core/kernels/recurrent_kernels.h"

namespace ringgrad {
namespace {

// Returns rows begin, … of x, which is contiguous and seen as [rows, columns], without history.
Tensor rows_of(const Tensor& x, int64_t begin, int64_t count) {
  const int64_t columns = x.size(-1);
  return x.as_strided({count, columns}, {columns, 1}, x.storage_offset() + begin * columns);
}

// The steps of a layer. Arrays of states, [T + 1, N, H], have a position for each state before and
// after a step.
struct Steps {
  std::vector<int64_t> begin;  // the first row of each step, and the number of all rows
  int64_t samples = 0;
  bool reverse = false;
  bool packed = false;  // else x is [T, N, ...]

  int64_t count() const { return static_cast<int64_t>(begin.size()) - 1; }
  int64_t rows(int64_t t) const { return begin[t + 1] - begin[t]; }
  // Calls f(t) in the order of the steps.
  template <class F>
  void forward(const F& f) const {
    for (int64_t i = 0; i < count(); ++i) f(reverse ? count() - 1 - i : i);
  }
  template <class F>
  void backward(const F& f) const {
    for (int64_t i = count() - 1; i >= 0; --i) f(reverse ? count() - 1 - i : i);
  }
  // Returns the part of x, an array with a row for each sample of each step.
  Tensor at(const Tensor& x, int64_t t) const { return rows_of(x, begin[t], rows(t)); }
  // Return the states of step t's samples before and after it.
  Tensor before(const Tensor& states, int64_t t) const {
    return rows_of(states, (t + reverse) * samples, rows(t));
  }
  Tensor after(const Tensor& states, int64_t t) const {
    return rows_of(states, (t + 1 - reverse) * samples, rows(t));
  }
  // The samples that step t does not have keep their states.
  void carry(const Tensor& states, int64_t t) const {
    const int64_t rest = samples - rows(t);
    if (rest > 0)
      kernels::copy(rows_of(states, (t + 1 - reverse) * samples + rows(t), rest),
                    rows_of(states, (t + reverse) * samples + rows(t), rest));
  }
  // Return the states before and after all steps, with a row for each sample of each step.
  Tensor before(const Tensor& states) const { return of_all(states, reverse); }
  Tensor after(const Tensor& states) const { return of_all(states, !reverse); }
  Tensor last(const Tensor& states) const {
    return copy_of(rows_of(states, reverse ? 0 : count() * samples, samples), states.options());
  }

 private:
  Tensor of_all(const Tensor& states, int64_t from) const {
    if (!packed) return part_of(states, 0, from, count());
    const Tensor all = empty({begin.back(), states.size(2)}, states.options());
    for (int64_t t = 0; t < count(); ++t)
      kernels::copy(at(all, t), rows_of(states, (t + from) * samples, rows(t)));
    return all;
  }
};

// The operands of a layer, checked and contiguous.
struct Layer {
  Steps steps;
  int64_t size;
  Tensor x;
  Tensor h;
  Tensor weight;

  Layer(const char* name, int gates, const Tensor& x_, const Tensor& h_, const Tensor& weight_,
        bool reverse, const std::vector<int64_t>& batch_sizes) {
    check_floating(name, x_);
    const bool packed = !batch_sizes.empty();
    check_dim(name, "the input", x_, packed ? 2 : 3);
    check_dim(name, "the weight", weight_, 2);
    size = weight_.size(1);
    CHECK_AS(ShapeError, weight_.size(0) == gates * size && x_.size(-1) == gates * size && size > 0,
             name, ": the input has shape ", x_.shape(), ", the weight ", weight_.shape(),
             ", expected [T, N, ", gates, " H] and [", gates, " H, H]");
    steps = {{0}, packed ? batch_sizes[0] : x_.size(1), reverse, packed};
    for (int64_t t = 0; t < (packed ? std::ssize(batch_sizes) : x_.size(0)); ++t) {
      const int64_t rows = packed ? batch_sizes[t] : steps.samples;
      CHECK_AS(ShapeError,
               !packed || (rows > 0 && rows <= batch_sizes[std::max(t - 1, int64_t{0})]), name,
               ": batch size ", t, " is ", rows,
               ", expected at least 1 and at most the one before");
      CHECK_AS(ShapeError, !packed || rows <= x_.size(0) - steps.begin.back(), name,
               ": the input has ", x_.size(0),
               " rows, the batch sizes together more, expected as many");
      steps.begin.push_back(steps.begin.back() + rows);
    }
    CHECK_AS(ShapeError, !packed || steps.begin.back() == x_.size(0), name, ": the input has ",
             x_.size(0), " rows, the batch sizes together ", steps.begin.back(),
             ", expected as many");
    x = strided_contiguous(x_);
    h = state(name, h_);
    weight = strided_contiguous(to(weight_, x.dtype()));
    CHECK_AS(DeviceError, weight.device() == x.device(), name, ": the weight is on ",
             weight.device(), ", the input on ", x.device(), ", expected one device");
  }

  // Returns the weight as [H, G H]. It is turned once, and not in the product of each step.
  Tensor turned_weight() const { return as_contiguous(swapped_matrix(weight.detach())); }

  // Returns the given initial state, or zeros.
  Tensor state(const char* name, const Tensor& given) const {
    if (!given) return zeros({steps.samples, size}, {x.dtype(), x.device()});
    CHECK_AS(ShapeError, given.shape() == Shape({steps.samples, size}), name,
             ": the state has shape ", given.shape(), ", expected [", steps.samples, ", ", size,
             "]");
    const Tensor own = strided_contiguous(to(given, x.dtype()));
    check_same_kind(name, x, own);
    return own;
  }

  // Allocates an array of states.
  Tensor states(const Tensor& first) const {
    const Tensor all = empty({steps.count() + 1, steps.samples, size}, {x.dtype(), x.device()});
    kernels::copy(rows_of(all, steps.reverse ? steps.count() * steps.samples : 0, steps.samples),
                  first.detach());
    return all;
  }
};

// ---- backward by kernels ------------------------------------------------------------------------

// The gradient of the weight: Σ over steps and samples of dᵀ before.
Tensor weight_gradient(const Tensor& d, const Tensor& before) {
  const int64_t rows = before.numel() / before.size(-1);
  return matrix_product(swapped_matrix(rows_of(d, 0, rows)), rows_of(before, 0, rows));
}

// The gradient of all samples' states, on its way from the last step to the first.
class StateGradient {
 public:
  StateGradient(const Tensor& given, const Tensor& states)
      : all_(given ? copy_of(given, {states.dtype(), states.device()})
                   : zeros({states.size(1), states.size(2)}, states.options())) {}

  // Returns the part of the samples of step t, to be overwritten.
  Tensor of(const Steps& steps, int64_t t) const { return rows_of(all_, 0, steps.rows(t)); }
  // The same, after the gradient of y, which may be undefined, is added.
  Tensor with(const Tensor& dy, const Steps& steps, int64_t t) const {
    const Tensor part = of(steps, t);
    if (dy) kernels::add(part, steps.at(dy, t), part);
    return part;
  }
  void replace(const Tensor& part) {
    if (part.size(0) == all_.size(0))
      all_ = part;
    else
      kernels::copy(rows_of(all_, 0, part.size(0)), part);
  }
  const Tensor& all() const { return all_; }

 private:
  Tensor all_;
};

// Returns the gradient of an output, contiguous, or undefined if the loss does not depend on it.
Tensor contiguous_gradient(const Tensor& dy) { return dy ? strided_contiguous(dy) : dy; }

// ---- backward by operations ---------------------------------------------------------------------
// For a pass that keeps a graph of the gradients, and for those that differentiate it. The gates
// and the cells are outputs of the layer, which no user sees: so they have a history, and more
// gradients may arrive at them.

Tensor plus(const Tensor& a, const Tensor& b) { return b ? add(a, b) : a; }

// Returns an array of all samples of all steps as [R, columns]. It may be undefined.
Tensor flat_rows(const Tensor& x) {
  return x ? reshape(x, {x.numel() / x.size(-1), x.size(-1)}) : x;
}

// Returns the part of step t. x is of flat_rows(), and may be undefined.
Tensor at_step(const Tensor& x, const Steps& steps, int64_t t) {
  return x ? narrow(x, 0, steps.begin[t], steps.rows(t)) : x;
}

// Returns the states before step t, of those after the steps and the first ones.
Tensor before_step(const Tensor& after, const Tensor& first, const Steps& steps, int64_t t) {
  const int64_t rows = steps.rows(t);
  const int64_t previous = steps.reverse ? t + 1 : t - 1;
  if (previous < 0 || previous == steps.count()) return narrow(first, 0, 0, rows);
  const int64_t known = std::min(rows, steps.rows(previous));
  const Tensor part = narrow(after, 0, steps.begin[previous], known);
  return known == rows ? part : cat({part, narrow(first, 0, known, rows - known)});
}

// Returns `all` with `part` in place of its first rows.
Tensor with_first(const Tensor& all, const Tensor& part) {
  const int64_t rows = part.size(0);
  return rows == all.size(0) ? part : cat({part, narrow(all, 0, rows, all.size(0) - rows)});
}

// The gradients of a step: of x, of the product of the state and the weight, and of the state
// itself, past the gates, which may be undefined.
struct StepGradients {
  Tensor dx;
  Tensor dr;
  Tensor dh;
};

// Returns the gradients of x, of the first h, of the weight, and of a bias of the products.
// cell(t, dh, h before step t) gives those of a step, of which there is at least one. y and h are
// with their history.
template <class Cell>
Gradients by_operations(const Steps& steps, const Tensor& dy, const Tensor& dh_last,
                        const Tensor& y_, const Tensor& h, const Tensor& weight, const Cell& cell) {
  const AutocastGuard no_autocast(std::nullopt);
  const Tensor y = flat_rows(y_);
  const Tensor of_y = flat_rows(dy);
  Tensor dh = dh_last ? dh_last : zeros_like(h.detach());
  std::vector<Tensor> dx(steps.count());
  std::vector<Tensor> dr(steps.count());
  std::vector<Tensor> before(steps.count());
  steps.backward([&](int64_t t) {
    before[t] = before_step(y, h, steps, t);
    const Tensor down = plus(narrow(dh, 0, 0, steps.rows(t)), at_step(of_y, steps, t));
    const StepGradients of = cell(t, down, before[t]);
    dx[t] = of.dx;
    dr[t] = of.dr;
    dh = with_first(dh, plus(matmul(of.dr, weight), of.dh));
  });
  const Tensor all = cat(dr);
  Shape shape = y_.shape();
  shape[shape.dim() - 1] = all.size(1);
  return {reshape(cat(dx), shape), dh, matmul(transpose(all, 0, 1), cat(before)), sum(all, 0)};
}

}  // namespace

RecurrentResult lstm_layer(const Tensor& x_, const Tensor& h_, const Tensor& c_,
                           const Tensor& weight_, Flag reverse,
                           const std::vector<int64_t>& batch_sizes) {
  OpScope scope("lstm_layer");
  const Layer layer("lstm_layer", 4, x_, h_, weight_, reverse, batch_sizes);
  const Steps& steps = layer.steps;
  const Tensor c_first = layer.state("lstm_layer", c_);
  const Tensor h = layer.states(layer.h);
  const Tensor c = layer.states(c_first);
  const Tensor gates = empty_like(layer.x);
  const Tensor turned = layer.turned_weight();
  steps.forward([&](int64_t t) {
    kernels::lstm_cell(steps.after(h, t), steps.after(c, t), steps.at(gates, t),
                       steps.at(layer.x, t), matrix_product(steps.before(h, t), turned),
                       steps.before(c, t));
    steps.carry(h, t);
    steps.carry(c, t);
  });
  const Tensor y = steps.after(h);
  const Tensor cells = steps.after(c);
  const std::vector<Tensor> inputs = {layer.x, layer.h, c_first, layer.weight};
  const std::vector<Tensor> results = differentiable(
      "lstm_layer", inputs, {y, steps.last(h), steps.last(c), gates, cells},
      [h = save(h, kSavedConstant), c = save(c, kSavedConstant), y = save(y, kSavedOutput),
       gates = save(gates, saved_output(3)), cells = save(cells, saved_output(4)),
       h_first = save(layer.h, 1), c_first = save(c_first, 2), weight = save(layer.weight, 3),
       steps](std::span<const Tensor> dy) -> Gradients {
        if (steps.count() > 0 && (grad_enabled() || dy[3] || dy[4])) {
          const Tensor of_gates = flat_rows(dy[3]);
          const Tensor of_cells = flat_rows(dy[4]);
          const Tensor all_gates = flat_rows(gates.get());
          const Tensor all_cells = flat_rows(cells.get());
          const Tensor first = c_first.get();
          Tensor dc = dy[2] ? dy[2] : zeros_like(first.detach());
          Gradients of = by_operations(
              steps, dy[0], dy[1], y.get(), h_first.get(), weight.get(),
              [&](int64_t t, const Tensor& dh, const Tensor&) -> StepGradients {
                const std::vector<Tensor> gate = chunk(at_step(all_gates, steps, t), 4, 1);
                const Tensor& i = gate[0];
                const Tensor& f = gate[1];
                const Tensor& g = gate[2];
                const Tensor& o = gate[3];
                const Tensor bent = tanh(at_step(all_cells, steps, t));
                const Tensor behind =
                    plus(narrow(dc, 0, 0, steps.rows(t)), at_step(of_cells, steps, t));
                const Tensor slope = behind + dh * o * (1 - bent * bent);
                const Tensor past = before_step(all_cells, first, steps, t);
                const Tensor d = cat({slope * g, slope * past, slope * i, dh * bent}, 1);
                const Tensor dx = plus(d, at_step(of_gates, steps, t)) *
                                  cat({i * (1 - i), f * (1 - f), 1 - g * g, o * (1 - o)}, 1);
                dc = with_first(dc, slope * f);
                return {dx, dx, {}};
              });
          return {of[0], of[1], dc, of[2]};
        }
        const Tensor of_y = contiguous_gradient(dy[0]);
        const Tensor dx = empty_like(gates.get());
        StateGradient dh(dy[1], h.get());
        const StateGradient dc(dy[2], h.get());
        steps.backward([&](int64_t t) {
          const Tensor of_cell = dc.of(steps, t);
          kernels::lstm_cell_backward(steps.at(dx, t), of_cell, dh.with(of_y, steps, t), of_cell,
                                      steps.at(gates.get(), t), steps.before(c.get(), t),
                                      steps.after(c.get(), t));
          dh.replace(matrix_product(steps.at(dx, t), weight.get()));
        });
        return {dx, dh.all(), dc.all(), weight_gradient(dx, steps.before(h.get()))};
      });
  return {results[0], results[1], results[2]};
}

RecurrentResult gru_layer(const Tensor& x_, const Tensor& h_, const Tensor& weight_,
                          const Tensor& bias_, Flag reverse,
                          const std::vector<int64_t>& batch_sizes) {
  OpScope scope("gru_layer");
  const Layer layer("gru_layer", 3, x_, h_, weight_, reverse, batch_sizes);
  const Steps& steps = layer.steps;
  const Tensor bias = bias_ ? strided_contiguous(to(bias_, layer.x.dtype()))
                            : zeros({3 * layer.size}, {layer.x.dtype(), layer.x.device()});
  CHECK_AS(ShapeError, bias.shape() == Shape({3 * layer.size}), "gru_layer: the bias has shape ",
           bias.shape(), ", expected [", 3 * layer.size, "]");
  const Tensor h = layer.states(layer.h);
  Shape shape = layer.x.shape();
  shape[shape.dim() - 1] = 4 * layer.size;
  const Tensor gates = empty(shape, {layer.x.dtype(), layer.x.device()});
  const Tensor turned = layer.turned_weight();
  steps.forward([&](int64_t t) {
    kernels::gru_cell(steps.after(h, t), steps.at(gates, t), steps.at(layer.x, t),
                      matrix_product(steps.before(h, t), turned, bias.detach()),
                      steps.before(h, t));
    steps.carry(h, t);
  });
  const Tensor y = steps.after(h);
  const std::vector<Tensor> inputs = {layer.x, layer.h, layer.weight, bias};
  const std::vector<Tensor> results = differentiable(
      "gru_layer", inputs, {y, steps.last(h), gates},
      [h = save(h, kSavedConstant), y = save(y, kSavedOutput), gates = save(gates, saved_output(2)),
       h_first = save(layer.h, 1), weight = save(layer.weight, 2), from = layer.x.shape(),
       steps](std::span<const Tensor> dy) -> Gradients {
        if (steps.count() > 0 && (grad_enabled() || dy[2])) {
          const Tensor of_gates = flat_rows(dy[2]);
          const Tensor all_gates = flat_rows(gates.get());
          return by_operations(
              steps, dy[0], dy[1], y.get(), h_first.get(), weight.get(),
              [&](int64_t t, const Tensor& dh, const Tensor& past) -> StepGradients {
                const std::vector<Tensor> gate = chunk(at_step(all_gates, steps, t), 4, 1);
                const Tensor& reset = gate[0];
                const Tensor& keep = gate[1];
                const Tensor& fresh = gate[2];
                const Tensor& part = gate[3];
                std::vector<Tensor> more(4);
                if (of_gates) more = chunk(at_step(of_gates, steps, t), 4, 1);
                const Tensor slope = plus(dh * (1 - keep), more[2]) * (1 - fresh * fresh);
                const Tensor of_reset = plus(slope * part, more[0]) * reset * (1 - reset);
                const Tensor of_keep = plus(dh * (past - fresh), more[1]) * keep * (1 - keep);
                return {cat({of_reset, of_keep, slope}, 1),
                        cat({of_reset, of_keep, plus(slope * reset, more[3])}, 1), dh * keep};
              });
        }
        const Tensor of_y = contiguous_gradient(dy[0]);
        const Tensor dx = empty(from, gates.get().options());
        const Tensor dr = empty_like(dx);
        StateGradient dh(dy[1], h.get());
        steps.backward([&](int64_t t) {
          const Tensor arriving = dh.with(of_y, steps, t);
          const Tensor past = empty_like(arriving);
          kernels::gru_cell_backward(steps.at(dx, t), steps.at(dr, t), past, arriving,
                                     steps.at(gates.get(), t), steps.before(h.get(), t));
          const Tensor down = matrix_product(steps.at(dr, t), weight.get());
          kernels::add(down, down, past);
          dh.replace(down);
        });
        return {dx, dh.all(), weight_gradient(dr, steps.before(h.get())),
                sum_to(dr, {dr.size(-1)})};
      });
  return {results[0], results[1], {}};
}

RecurrentResult rnn_layer(const Tensor& x_, const Tensor& h_, const Tensor& weight_,
                          RecurrentActivation activation, Flag reverse,
                          const std::vector<int64_t>& batch_sizes) {
  OpScope scope("rnn_layer");
  const Layer layer("rnn_layer", 1, x_, h_, weight_, reverse, batch_sizes);
  const Steps& steps = layer.steps;
  const bool relu = activation == RecurrentActivation::Relu;
  const Tensor h = layer.states(layer.h);
  const Tensor turned = layer.turned_weight();
  steps.forward([&](int64_t t) {
    const Tensor sum = matrix_product(steps.before(h, t), turned);
    kernels::add(sum, sum, steps.at(layer.x, t));
    (relu ? kernels::relu : kernels::tanh)(steps.after(h, t), sum);
    steps.carry(h, t);
  });
  const Tensor y = steps.after(h);
  const std::vector<Tensor> inputs = {layer.x, layer.h, layer.weight};
  const std::vector<Tensor> results = differentiable(
      "rnn_layer", inputs, {y, steps.last(h)},
      [h = save(h, kSavedConstant), y = save(y, kSavedOutput), h_first = save(layer.h, 1),
       weight = save(layer.weight, 2), relu, from = layer.x.shape(),
       steps](std::span<const Tensor> dy) -> Gradients {
        if (steps.count() > 0 && grad_enabled()) {
          const Tensor all = flat_rows(y.get());
          Gradients of = by_operations(
              steps, dy[0], dy[1], y.get(), h_first.get(), weight.get(),
              [&](int64_t t, const Tensor& dh, const Tensor&) -> StepGradients {
                const Tensor after = at_step(all, steps, t);
                const Tensor dx = relu ? where(after > 0, dh, 0) : dh * (1 - after * after);
                return {dx, dx, {}};
              });
          of.resize(3);
          return of;
        }
        const Tensor of_y = contiguous_gradient(dy[0]);
        const Tensor dx = empty(from, h.get().options());
        StateGradient dh(dy[1], h.get());
        steps.backward([&](int64_t t) {
          (relu ? kernels::relu_backward : kernels::tanh_backward)(
              steps.at(dx, t), dh.with(of_y, steps, t), steps.after(h.get(), t));
          dh.replace(matrix_product(steps.at(dx, t), weight.get()));
        });
        return {dx, dh.all(), weight_gradient(dx, steps.before(h.get()))};
      });
  return {results[0], results[1], {}};
}

}  // namespace ringgrad
