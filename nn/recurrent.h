// Recurrent layers, with PyTorch's names and state: nn::LSTM lstm{3, 4, {.num_layers = 2}};
// auto [y, state] = lstm(x).
#pragma once

#include <tuple>
#include <vector>

#include "ringgrad/autograd/recurrent_ops.h"
#include "ringgrad/core/kernels/geometry.h"
#include "ringgrad/nn/module.h"

namespace ringgrad::nn {

struct RecurrentOptions {
  [[no_unique_address]] OnlyByName only_by_name = OnlyByName();
  int64_t num_layers = 1;
  bool bias = true;
  bool batch_first = false;  // x and y [N, T, …] instead of [T, N, …]; the state stays as it is
  double dropout = 0;        // of every layer's output but the last one's, in training
  bool bidirectional = false;
};

// What LSTM, GRU and RNN share. x [T, N, input_size], or without N; y [T, N, D hidden_size], D = 2
// where it is bidirectional, else 1. A state is [num_layers D, N, hidden_size].
class Recurrent : public Module {
 public:
  std::string extra_repr() const override;
  using Module::forward;

 protected:
  // G gates. Values as uniform(±1 / √hidden_size).
  Recurrent(const char* name, int gates, int64_t input_size, int64_t hidden_size,
            RecurrentOptions options);
  // One layer in one direction. `bias` is that of the state, of a GRU; elsewhere undefined.
  virtual RecurrentResult run(const Tensor& x, const Tensor& h, const Tensor& c,
                              const Tensor& weight, const Tensor& bias, bool reverse) const = 0;
  // Throws ShapeError on an input or a state of another shape.
  RecurrentResult all_layers(const Tensor& x, const Tensor& h, const Tensor& c) const;

 private:
  const char* name_;
  int gates_;
  int64_t input_size_;
  int64_t hidden_size_;
  RecurrentOptions options_;
  std::vector<Parameter> parameters_;  // of each layer and direction as they are registered
};

// Hochreiter & Schmidhuber 1997. (y, (h, c)) of x and (h, c), which are 0 where they are left out.
class LSTM : public Recurrent {
 public:
  using State = std::tuple<Tensor, Tensor>;
  LSTM(Int64 input_size, Int64 hidden_size, RecurrentOptions options = {})
      : Recurrent("LSTM", 4, input_size, hidden_size, options) {}
  std::tuple<Tensor, State> operator()(const Tensor& x, const State& state = {});

 private:
  RecurrentResult run(const Tensor& x, const Tensor& h, const Tensor& c, const Tensor& weight,
                      const Tensor& bias, bool reverse) const override;
};

// Cho et al. 2014. (y, h) of x and h.
class GRU : public Recurrent {
 public:
  GRU(Int64 input_size, Int64 hidden_size, RecurrentOptions options = {})
      : Recurrent("GRU", 3, input_size, hidden_size, options) {}
  std::tuple<Tensor, Tensor> operator()(const Tensor& x, const Tensor& h = {});

 private:
  RecurrentResult run(const Tensor& x, const Tensor& h, const Tensor& c, const Tensor& weight,
                      const Tensor& bias, bool reverse) const override;
};

// Elman 1990. (y, h) of x and h.
class RNN : public Recurrent {
 public:
  RNN(Int64 input_size, Int64 hidden_size, RecurrentOptions options = {},
      RecurrentActivation activation = RecurrentActivation::Tanh)
      : Recurrent("RNN", 1, input_size, hidden_size, options), activation_(activation) {}
  std::tuple<Tensor, Tensor> operator()(const Tensor& x, const Tensor& h = {});

 private:
  RecurrentResult run(const Tensor& x, const Tensor& h, const Tensor& c, const Tensor& weight,
                      const Tensor& bias, bool reverse) const override;
  RecurrentActivation activation_;
};

}  // namespace ringgrad::nn
