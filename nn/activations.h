// Nonlinearities as modules, for Sequential; elsewhere the functions of autograd/ops.h are shorter.
#pragma once

#include "ringgrad/autograd/ops.h"
#include "ringgrad/nn/module.h"

namespace ringgrad::nn {

template <Tensor (*f)(const Tensor& x)>
class Nonlinearity : public Module {
 public:
  Tensor forward(const Tensor& x) override { return f(x); }
};
class ReLU : public Nonlinearity<relu> {};
class GELU : public Nonlinearity<gelu> {
 public:
  std::string extra_repr() const override { return "approximate='none'"; }
};
class SiLU : public Nonlinearity<silu> {};
class Sigmoid : public Nonlinearity<sigmoid> {};
class Tanh : public Nonlinearity<tanh> {};

template <Tensor (*f)(const Tensor& x, Int dim)>
class AlongDimension : public Module {
 public:
  explicit AlongDimension(Int dim = -1) : dim_(dim) {}
  Tensor forward(const Tensor& x) override { return f(x, dim_); }
  std::string extra_repr() const override { return "dim=" + std::to_string(dim_); }

 private:
  int dim_;
};
class Softmax : public AlongDimension<softmax> {
  using AlongDimension::AlongDimension;
};
class LogSoftmax : public AlongDimension<log_softmax> {
  using AlongDimension::AlongDimension;
};

class LeakyReLU : public Module {
 public:
  explicit LeakyReLU(Real slope = 0.01) : slope_(slope) {}
  Tensor forward(const Tensor& x) override { return leaky_relu(x, slope_); }
  std::string extra_repr() const override;

 private:
  double slope_;
};

class ELU : public Module {
 public:
  explicit ELU(Real alpha = 1) : alpha_(alpha) {}
  Tensor forward(const Tensor& x) override { return elu(x, alpha_); }
  std::string extra_repr() const override;

 private:
  double alpha_;
};

// x > 0 ? x : weight x, with one weight, or one for each channel of x [N, C, …] (He et al. 2015).
class PReLU : public Module {
 public:
  explicit PReLU(Int64 num_parameters = 1, Real init = 0.25);
  Tensor forward(const Tensor& x) override;
  std::string extra_repr() const override;

  Parameter weight;  // [num_parameters]
};

}  // namespace ringgrad::nn
