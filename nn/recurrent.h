// Recurrent layers, with PyTorch's names and state: nn::LSTM lstm{3, 4, {.num_layers = 2}};
// auto [y, state] = lstm(x).
#pragma once

#include <tuple>
#include <vector>

#include "ringgrad/autograd/recurrent_ops.h"
#include "ringgrad/core/kernels/geometry.h"
#include "ringgrad/nn/module.h"
#include "ringgrad/nn/packed_sequence.h"

namespace ringgrad::nn {

struct RecurrentOptions {
  OnlyByName only_by_name = OnlyByName();
  int64_t num_layers = 1;
  bool bias = true;
  bool batch_first = false;  // x and y are [N, T, …] instead of [T, N, …]; the state is unchanged
  double dropout = 0;        // on every layer's output except the last, in training
  bool bidirectional = false;
};

// The base of LSTM, GRU and RNN. x is [T, N, input_size], or lacks N; y is [T, N, D hidden_size],
// where D = 2 if bidirectional, else 1. A state is [num_layers D, N, hidden_size]. A PackedSequence
// gives one; the states are in the order of its samples, each at its sample's own end.
class Recurrent : public Module {
 public:
  std::string extra_repr() const override;
  using Module::forward;

 protected:
  // The order of a layer's steps, and how many samples each has (autograd/recurrent_ops.h).
  struct Course {
    bool reverse;
    const std::vector<int64_t>& batch_sizes;
  };
  // There are G gates. The initial values are uniform(±1 / √hidden_size).
  Recurrent(const char* name, int gates, int64_t input_size, int64_t hidden_size,
            RecurrentOptions options);
  // Runs one layer in one direction. `bias` is that of a GRU's state; it is undefined for the
  // others.
  virtual RecurrentResult run(const Tensor& x, const Tensor& h, const Tensor& c,
                              const Tensor& weight, const Tensor& bias,
                              const Course& course) const = 0;
  // These throw ShapeError if the input or a state has another shape.
  RecurrentResult all_layers(const Tensor& x, const Tensor& h, const Tensor& c) const;
  // y has the rows of the result.
  RecurrentResult all_layers(const PackedSequence& x, const Tensor& h, const Tensor& c) const;

 private:
  RecurrentResult layers(Tensor y, const Tensor& h, const Tensor& c,
                         const std::vector<int64_t>& batch_sizes) const;

  const char* name_;
  int gates_;
  int64_t input_size_;
  int64_t hidden_size_;
  RecurrentOptions options_;
  std::vector<Parameter> parameters_;  // for each layer and direction, in order of registration
};

// (y, (h, c)) from x and (h, c), which are 0 if omitted (Hochreiter & Schmidhuber 1997).
class LSTM : public Recurrent {
 public:
  using State = std::tuple<Tensor, Tensor>;
  LSTM(Int64 input_size, Int64 hidden_size, RecurrentOptions options = {})
      : Recurrent("LSTM", 4, input_size, hidden_size, options) {}
  std::tuple<Tensor, State> operator()(const Tensor& x, const State& state = {});
  std::tuple<PackedSequence, State> operator()(const PackedSequence& x, const State& state = {});

 private:
  RecurrentResult run(const Tensor& x, const Tensor& h, const Tensor& c, const Tensor& weight,
                      const Tensor& bias, const Course& course) const override;
};

// (y, h) from x and h (Cho et al. 2014).
class GRU : public Recurrent {
 public:
  GRU(Int64 input_size, Int64 hidden_size, RecurrentOptions options = {})
      : Recurrent("GRU", 3, input_size, hidden_size, options) {}
  std::tuple<Tensor, Tensor> operator()(const Tensor& x, const Tensor& h = {});
  std::tuple<PackedSequence, Tensor> operator()(const PackedSequence& x, const Tensor& h = {});

 private:
  RecurrentResult run(const Tensor& x, const Tensor& h, const Tensor& c, const Tensor& weight,
                      const Tensor& bias, const Course& course) const override;
};

// (y, h) from x and h (Elman 1990).
class RNN : public Recurrent {
 public:
  RNN(Int64 input_size, Int64 hidden_size, RecurrentOptions options = {},
      RecurrentActivation activation = RecurrentActivation::Tanh)
      : Recurrent("RNN", 1, input_size, hidden_size, options), activation_(activation) {}
  std::tuple<Tensor, Tensor> operator()(const Tensor& x, const Tensor& h = {});
  std::tuple<PackedSequence, Tensor> operator()(const PackedSequence& x, const Tensor& h = {});

 private:
  RecurrentResult run(const Tensor& x, const Tensor& h, const Tensor& c, const Tensor& weight,
                      const Tensor& bias, const Course& course) const override;
  RecurrentActivation activation_;
};

}  // namespace ringgrad::nn
