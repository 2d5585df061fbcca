#include "ringgrad/nn/recurrent.h"

#include <cmath>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/nn/init.h"
#include "ringgrad/nn/layer_parts.h"

namespace ringgrad::nn {

Recurrent::Recurrent(const char* name, int gates, int64_t input_size, int64_t hidden_size,
                     RecurrentOptions options)
    : name_(name),
      gates_(gates),
      input_size_(input_size),
      hidden_size_(hidden_size),
      options_(options) {
  constexpr int64_t kMost = int64_t{1} << 56;  // whose products with small numbers fit
  CHECK(input_size > 0 && hidden_size > 0 && hidden_size <= kMost && options.num_layers > 0, name,
        ": ", input_size, " inputs, ", hidden_size, " units in ", options.num_layers,
        " layers, expected at least 1 each, and at most ", kMost, " units");
  CHECK(options.dropout >= 0 && options.dropout <= 1, name, ": the dropout is ", options.dropout,
        ", expected a number in [0, 1]");
  const int directions = options.bidirectional ? 2 : 1;
  const double bound = 1 / std::sqrt(static_cast<double>(hidden_size));
  for (int64_t layer = 0; layer < options.num_layers; ++layer)
    for (int direction = 0; direction < directions; ++direction) {
      const std::string end = "_l" + std::to_string(layer) + (direction == 1 ? "_reverse" : "");
      const auto add = [&](const char* what, const Shape& shape) {
        const Tensor value = empty(shape);
        init::uniform_(value, -bound, bound);
        parameters_.emplace_back(register_parameter(what + end, value));
      };
      const int64_t inputs = layer == 0 ? input_size : directions * hidden_size;
      add("weight_ih", {gates * hidden_size, inputs});
      add("weight_hh", {gates * hidden_size, hidden_size});
      if (!options.bias) continue;
      add("bias_ih", {gates * hidden_size});
      add("bias_hh", {gates * hidden_size});
    }
}

RecurrentResult Recurrent::all_layers(const Tensor& x_, const Tensor& h, const Tensor& c) const {
  CHECK(x_.defined(), name_, ": the input is an undefined tensor, expected [T, N, ", input_size_,
        "]");
  const auto with_batch = [](const Tensor& state) { return state ? unsqueeze(state, 1) : state; };
  if (x_.dim() == 2) {
    const RecurrentResult of =
        all_layers(unsqueeze(x_, options_.batch_first ? 0 : 1), with_batch(h), with_batch(c));
    return {squeeze(of.y, options_.batch_first ? 0 : 1), squeeze(of.h, 1),
            of.c ? squeeze(of.c, 1) : of.c};
  }
  CHECK_AS(ShapeError, x_.dim() == 3 && x_.size(2) == input_size_, name_, ": the input has shape ",
           x_.shape(), ", expected ", options_.batch_first ? "[N, T, " : "[T, N, ", input_size_,
           "]");
  RecurrentResult of = layers(options_.batch_first ? transpose(x_, 0, 1) : x_, h, c, {});
  if (options_.batch_first) of.y = transpose(of.y, 0, 1);
  return of;
}

RecurrentResult Recurrent::all_layers(const PackedSequence& given, const Tensor& h,
                                      const Tensor& c) const {
  const PackedSequence x = with_both_orders(given);
  CHECK_AS(ShapeError, x.data.defined() && x.data.dim() == 2 && x.data.size(1) == input_size_,
           name_, ": the packed rows have shape ", x.data ? str(x.data.shape()) : "undefined",
           ", expected [rows, ", input_size_, "]");
  CHECK(!x.batch_sizes.empty(), name_, ": the packed sequence has no steps, expected at least one");
  const auto in_order = [](const Tensor& state, const Tensor& order) {
    return state && order && state.dim() == 3 ? index_select(state, 1, order) : state;
  };
  RecurrentResult of =
      layers(x.data, in_order(h, x.sorted_indices), in_order(c, x.sorted_indices), x.batch_sizes);
  of.h = in_order(of.h, x.unsorted_indices);
  of.c = in_order(of.c, x.unsorted_indices);
  return of;
}

RecurrentResult Recurrent::layers(Tensor y, const Tensor& h, const Tensor& c,
                                  const std::vector<int64_t>& batch_sizes) const {
  const int64_t directions = options_.bidirectional ? 2 : 1;
  for (const Tensor* state : {&h, &c})
    CHECK_AS(ShapeError,
             !*state || (state->dim() == 3 && state->size(0) == options_.num_layers * directions),
             name_, ": the state has shape ", state->defined() ? str(state->shape()) : "",
             ", expected [", options_.num_layers * directions, ", N, ", hidden_size_, "]");
  std::vector<Tensor> last_h;
  std::vector<Tensor> last_c;
  const Parameter* next = parameters_.data();
  for (int64_t layer = 0; layer < options_.num_layers; ++layer) {
    std::vector<Tensor> outputs;
    for (int64_t direction = 0; direction < directions; ++direction) {
      const Tensor of_input = *next++;
      const Tensor of_state = *next++;
      Tensor bias;
      Tensor state_bias;
      if (options_.bias) {
        bias = *next++;
        state_bias = *next++;
        if (gates_ != 3) bias = add(bias, state_bias);
      }
      const int64_t i = layer * directions + direction;
      const auto of = [i](const Tensor& state) { return state ? select(state, 0, i) : state; };
      const RecurrentResult result =
          run(linear(y, of_input, bias), of(h), of(c), of_state,
              gates_ == 3 ? state_bias : Tensor(), {direction == 1, batch_sizes});
      outputs.push_back(result.y);
      last_h.push_back(result.h);
      if (result.c) last_c.push_back(result.c);
    }
    y = directions == 1 ? outputs[0] : cat(outputs, -1);
    if (options_.dropout > 0 && layer + 1 < options_.num_layers)
      y = ringgrad::dropout(y, options_.dropout, is_training());
  }
  return {y, stack(last_h), last_c.empty() ? Tensor() : stack(last_c)};
}

std::string Recurrent::extra_repr() const {
  std::string all = std::to_string(input_size_) + ", " + std::to_string(hidden_size_);
  if (options_.num_layers != 1) all += ", num_layers=" + std::to_string(options_.num_layers);
  if (!options_.bias) all += ", bias=False";
  if (options_.batch_first) all += ", batch_first=True";
  if (options_.dropout != 0) all += ", dropout=" + text(options_.dropout);
  if (options_.bidirectional) all += ", bidirectional=True";
  return all;
}

// Returns other rows of the same samples and steps.
static PackedSequence with_data(PackedSequence x, const Tensor& data) {
  x.data = data;
  return x;
}

std::tuple<Tensor, LSTM::State> LSTM::operator()(const Tensor& x, const State& state) {
  const RecurrentResult of = all_layers(x, std::get<0>(state), std::get<1>(state));
  return {of.y, {of.h, of.c}};
}
std::tuple<PackedSequence, LSTM::State> LSTM::operator()(const PackedSequence& x,
                                                         const State& state) {
  const RecurrentResult of = all_layers(x, std::get<0>(state), std::get<1>(state));
  return {with_data(x, of.y), {of.h, of.c}};
}
RecurrentResult LSTM::run(const Tensor& x, const Tensor& h, const Tensor& c, const Tensor& weight,
                          const Tensor&, const Course& course) const {
  return lstm_layer(x, h, c, weight, course.reverse, course.batch_sizes);
}

std::tuple<Tensor, Tensor> GRU::operator()(const Tensor& x, const Tensor& h) {
  const RecurrentResult of = all_layers(x, h, {});
  return {of.y, of.h};
}
std::tuple<PackedSequence, Tensor> GRU::operator()(const PackedSequence& x, const Tensor& h) {
  const RecurrentResult of = all_layers(x, h, {});
  return {with_data(x, of.y), of.h};
}
RecurrentResult GRU::run(const Tensor& x, const Tensor& h, const Tensor&, const Tensor& weight,
                         const Tensor& bias, const Course& course) const {
  return gru_layer(x, h, weight, bias, course.reverse, course.batch_sizes);
}

std::tuple<Tensor, Tensor> RNN::operator()(const Tensor& x, const Tensor& h) {
  const RecurrentResult of = all_layers(x, h, {});
  return {of.y, of.h};
}
std::tuple<PackedSequence, Tensor> RNN::operator()(const PackedSequence& x, const Tensor& h) {
  const RecurrentResult of = all_layers(x, h, {});
  return {with_data(x, of.y), of.h};
}
RecurrentResult RNN::run(const Tensor& x, const Tensor& h, const Tensor&, const Tensor& weight,
                         const Tensor&, const Course& course) const {
  return rnn_layer(x, h, weight, activation_, course.reverse, course.batch_sizes);
}

}  // namespace ringgrad::nn
