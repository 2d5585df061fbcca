#include "ringgrad/autograd/recurrent_ops.h"

#include "ringgrad/autograd/ops.h"
#include "ringgrad/autograd/ops/common.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/core/kernels/recurrent_kernels.h"

namespace ringgrad {
namespace {

// Returns step t of x [T, …], contiguous, without history.
Tensor at_step(const Tensor& x, int64_t t) {
  Shape shape = x.shape();
  shape.erase(0);
  return x.as_strided(shape, contiguous_strides(shape), x.storage_offset() + t * shape.numel());
}

// The steps of a layer, in their order.
struct Steps {
  int64_t count = 0;
  bool reverse = false;

  // Calls f(t, position of the state before step t, position of the state after it).
  template <class F>
  void forward(const F& f) const {
    for (int64_t i = 0; i < count; ++i) visit(i, f);
  }
  template <class F>
  void backward(const F& f) const {
    for (int64_t i = count - 1; i >= 0; --i) visit(i, f);
  }
  // These select from an array that has a position for each state before and after a step.
  Tensor behind(const Tensor& all) const { return part_of(all, 0, reverse ? 0 : 1, count); }
  Tensor before(const Tensor& all) const { return part_of(all, 0, reverse ? 1 : 0, count); }
  int64_t first() const { return reverse ? count : 0; }
  int64_t last() const { return reverse ? 0 : count; }

 private:
  template <class F>
  void visit(int64_t i, const F& f) const {
    const int64_t t = reverse ? count - 1 - i : i;
    f(t, t + reverse, t + 1 - reverse);
  }
};

// The operands of a layer, checked and contiguous.
struct Layer {
  Steps steps;
  int64_t samples;
  int64_t size;
  Tensor x;
  Tensor h;
  Tensor weight;

  Layer(const char* name, int gates, const Tensor& x_, const Tensor& h_, const Tensor& weight_,
        bool reverse) {
    check_floating(name, x_);
    check_dim(name, "the input", x_, 3);
    check_dim(name, "the weight", weight_, 2);
    steps = {x_.size(0), reverse};
    samples = x_.size(1);
    size = weight_.size(1);
    CHECK_AS(ShapeError, weight_.size(0) == gates * size && x_.size(2) == gates * size && size > 0,
             name, ": the input has shape ", x_.shape(), ", the weight ", weight_.shape(),
             ", expected [T, N, ", gates, " H] and [", gates, " H, H]");
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
    if (!given) return zeros({samples, size}, {x.dtype(), x.device()});
    CHECK_AS(ShapeError, given.shape() == Shape({samples, size}), name, ": the state has shape ",
             given.shape(), ", expected [", samples, ", ", size, "]");
    const Tensor own = strided_contiguous(to(given, x.dtype()));
    check_same_kind(name, x, own);
    return own;
  }

  // Allocates an array that has a position for each state before and after a step.
  Tensor states(const Tensor& first) const {
    const Tensor all = empty({steps.count + 1, samples, size}, {x.dtype(), x.device()});
    kernels::copy(at_step(all, steps.first()), first.detach());
    return all;
  }
  Tensor last(const Tensor& all) const {
    return copy_of(at_step(all, steps.last()), {x.dtype(), x.device()});
  }
};

// The gradient of the weight: Σ over steps and samples of dᵀ before.
Tensor weight_gradient(const Tensor& d, const Tensor& before) {
  const int64_t rows = d.size(0) * d.size(1);
  const Shape left = {rows, d.size(2)};
  const Shape right = {rows, before.size(2)};
  return matrix_product(
      swapped_matrix(d.as_strided(left, contiguous_strides(left), d.storage_offset())),
      before.as_strided(right, contiguous_strides(right), before.storage_offset()));
}

// Returns dh of a step: the sum of y's gradient and of what comes from the following step.
Tensor arriving(const Tensor& dy, int64_t t, const Tensor& from_behind) {
  if (!dy) return from_behind;
  const Tensor sum = empty_like(from_behind);
  kernels::add(sum, at_step(dy, t), from_behind);
  return sum;
}

// Returns the gradient of an output, contiguous, or undefined if the loss does not depend on it.
Tensor contiguous_gradient(const Tensor& dy) { return dy ? strided_contiguous(dy) : dy; }
Tensor gradient_or_zero(const Tensor& dy, const Tensor& like) {
  return dy ? strided_contiguous(dy) : zeros_like(like);
}

}  // namespace

RecurrentResult lstm_layer(const Tensor& x_, const Tensor& h_, const Tensor& c_,
                           const Tensor& weight_, Flag reverse) {
  OpScope scope("lstm_layer");
  const Layer layer("lstm_layer", 4, x_, h_, weight_, reverse);
  const Tensor c_first = layer.state("lstm_layer", c_);
  const Tensor h = layer.states(layer.h);
  const Tensor c = layer.states(c_first);
  const Tensor gates = empty_like(layer.x);
  const Tensor turned = layer.turned_weight();
  layer.steps.forward([&](int64_t t, int64_t before, int64_t behind) {
    kernels::lstm_cell(at_step(h, behind), at_step(c, behind), at_step(gates, t),
                       at_step(layer.x, t), matrix_product(at_step(h, before), turned),
                       at_step(c, before));
  });
  const std::vector<Tensor> inputs = {layer.x, layer.h, c_first, layer.weight};
  const std::vector<Tensor> results = differentiable(
      "lstm_layer", inputs, {layer.steps.behind(h), layer.last(h), layer.last(c)},
      [h = save(h), c = save(c), gates = save(gates), weight = save(layer.weight),
       steps = layer.steps](std::span<const Tensor> dy) -> Gradients {
        const Tensor of_y = contiguous_gradient(dy[0]);
        const Tensor dx = empty_like(gates.get());
        const Tensor first = at_step(h.get(), 0);
        Tensor dh = gradient_or_zero(dy[1], first);
        Tensor dc = gradient_or_zero(dy[2], first);
        steps.backward([&](int64_t t, int64_t before, int64_t behind) {
          const Tensor next = empty_like(first);
          kernels::lstm_cell_backward(at_step(dx, t), next, arriving(of_y, t, dh), dc,
                                      at_step(gates.get(), t), at_step(c.get(), before),
                                      at_step(c.get(), behind));
          dc = next;
          dh = matrix_product(at_step(dx, t), weight.get());
        });
        return {dx, dh, dc, weight_gradient(dx, steps.before(h.get()))};
      });
  return {results[0], results[1], results[2]};
}

RecurrentResult gru_layer(const Tensor& x_, const Tensor& h_, const Tensor& weight_,
                          const Tensor& bias_, Flag reverse) {
  OpScope scope("gru_layer");
  const Layer layer("gru_layer", 3, x_, h_, weight_, reverse);
  const Tensor bias = bias_ ? strided_contiguous(to(bias_, layer.x.dtype()))
                            : zeros({3 * layer.size}, {layer.x.dtype(), layer.x.device()});
  CHECK_AS(ShapeError, bias.shape() == Shape({3 * layer.size}), "gru_layer: the bias has shape ",
           bias.shape(), ", expected [", 3 * layer.size, "]");
  const Tensor h = layer.states(layer.h);
  const Tensor gates = empty({layer.steps.count, layer.samples, 4 * layer.size},
                             {layer.x.dtype(), layer.x.device()});
  const Tensor turned = layer.turned_weight();
  layer.steps.forward([&](int64_t t, int64_t before, int64_t behind) {
    kernels::gru_cell(at_step(h, behind), at_step(gates, t), at_step(layer.x, t),
                      matrix_product(at_step(h, before), turned, bias.detach()),
                      at_step(h, before));
  });
  const std::vector<Tensor> inputs = {layer.x, layer.h, layer.weight, bias};
  const std::vector<Tensor> results = differentiable(
      "gru_layer", inputs, {layer.steps.behind(h), layer.last(h)},
      [h = save(h), gates = save(gates), weight = save(layer.weight), from = layer.x.shape(),
       steps = layer.steps](std::span<const Tensor> dy) -> Gradients {
        const Tensor of_y = contiguous_gradient(dy[0]);
        const Tensor dx = empty(from, gates.get().options());
        const Tensor dr = empty_like(dx);
        const Tensor first = at_step(h.get(), 0);
        Tensor dh = gradient_or_zero(dy[1], first);
        steps.backward([&](int64_t t, int64_t before, int64_t) {
          const Tensor past = empty_like(first);
          kernels::gru_cell_backward(at_step(dx, t), at_step(dr, t), past, arriving(of_y, t, dh),
                                     at_step(gates.get(), t), at_step(h.get(), before));
          dh = matrix_product(at_step(dr, t), weight.get());
          kernels::add(dh, dh, past);
        });
        return {dx, dh, weight_gradient(dr, steps.before(h.get())), sum_to(dr, {dr.size(2)})};
      });
  return {results[0], results[1], {}};
}

RecurrentResult rnn_layer(const Tensor& x_, const Tensor& h_, const Tensor& weight_,
                          RecurrentActivation activation, Flag reverse) {
  OpScope scope("rnn_layer");
  const Layer layer("rnn_layer", 1, x_, h_, weight_, reverse);
  const bool relu = activation == RecurrentActivation::Relu;
  const Tensor h = layer.states(layer.h);
  const Tensor turned = layer.turned_weight();
  layer.steps.forward([&](int64_t t, int64_t before, int64_t behind) {
    const Tensor sum = matrix_product(at_step(h, before), turned);
    kernels::add(sum, sum, at_step(layer.x, t));
    (relu ? kernels::relu : kernels::tanh)(at_step(h, behind), sum);
  });
  const std::vector<Tensor> inputs = {layer.x, layer.h, layer.weight};
  const std::vector<Tensor> results =
      differentiable("rnn_layer", inputs, {layer.steps.behind(h), layer.last(h)},
                     [h = save(h), weight = save(layer.weight), relu, from = layer.x.shape(),
                      steps = layer.steps](std::span<const Tensor> dy) -> Gradients {
                       const Tensor of_y = contiguous_gradient(dy[0]);
                       const Tensor dx = empty(from, h.get().options());
                       Tensor dh = gradient_or_zero(dy[1], at_step(h.get(), 0));
                       steps.backward([&](int64_t t, int64_t, int64_t behind) {
                         (relu ? kernels::relu_backward : kernels::tanh_backward)(
                             at_step(dx, t), arriving(of_y, t, dh), at_step(h.get(), behind));
                         dh = matrix_product(at_step(dx, t), weight.get());
                       });
                       return {dx, dh, weight_gradient(dx, steps.before(h.get()))};
                     });
  return {results[0], results[1], {}};
}

}  // namespace ringgrad
