// Nonlinearities as modules for Sequential. Elsewhere the functions of autograd/ops.h are shorter.
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
enum class GELUApproximate : uint8_t { None, Tanh };
struct GELUOptions {
  GELUApproximate approximate = GELUApproximate::None;
};
class GELU : public Module {
 public:
  explicit GELU(GELUOptions options = {}) : tanh_(options.approximate == GELUApproximate::Tanh) {}
  Tensor forward(const Tensor& x) override { return tanh_ ? gelu_tanh(x) : gelu(x); }
  std::string extra_repr() const override {
    return tanh_ ? "approximate='tanh'" : "approximate='none'";
  }

 private:
  bool tanh_;
};
class SiLU : public Nonlinearity<silu> {};
class Sigmoid : public Nonlinearity<sigmoid> {};
class Tanh : public Nonlinearity<tanh> {};
class Mish : public Nonlinearity<mish> {};
class Hardswish : public Nonlinearity<hardswish> {};
class Hardsigmoid : public Nonlinearity<hardsigmoid> {};
class ReLU6 : public Nonlinearity<relu6> {};
class SELU : public Nonlinearity<selu> {};
class LogSigmoid : public Nonlinearity<logsigmoid> {};
class Softsign : public Nonlinearity<softsign> {};
class Tanhshrink : public Nonlinearity<tanhshrink> {};

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
class Softmin : public AlongDimension<softmin> {
  using AlongDimension::AlongDimension;
};
class GLU : public AlongDimension<glu> {
  using AlongDimension::AlongDimension;
};

// Returns "name=number" in PyTorch's format.
std::string number_repr(const char* name, double number);

// Functions with one number, which is printed under PyTorch's name.
template <Tensor (*f)(const Tensor& x, Real number)>
class WithNumber : public Module {
 public:
  Tensor forward(const Tensor& x) override { return f(x, number_); }
  std::string extra_repr() const override { return number_repr(name_, number_); }

 protected:
  WithNumber(const char* name, double number) : name_(name), number_(number) {}

 private:
  const char* name_;
  double number_;
};
class LeakyReLU : public WithNumber<leaky_relu> {
 public:
  explicit LeakyReLU(Real slope = 0.01) : WithNumber("negative_slope=", slope) {}
};
class ELU : public WithNumber<elu> {
 public:
  explicit ELU(Real alpha = 1) : WithNumber("alpha=", alpha) {}
};
class CELU : public WithNumber<celu> {
 public:
  explicit CELU(Real alpha = 1) : WithNumber("alpha=", alpha) {}
};
class Hardshrink : public WithNumber<hardshrink> {
 public:
  explicit Hardshrink(Real lambda = 0.5) : WithNumber("", lambda) {}
};
class Softshrink : public WithNumber<softshrink> {
 public:
  explicit Softshrink(Real lambda = 0.5) : WithNumber("", lambda) {}
};

class Softplus : public Module {
 public:
  explicit Softplus(Real beta = 1) : beta_(beta) {}
  Tensor forward(const Tensor& x) override { return softplus(x, beta_); }
  std::string extra_repr() const override;

 private:
  double beta_;
};

// Limits values to the range between the two numbers.
class Hardtanh : public Module {
 public:
  explicit Hardtanh(Real min_val = -1, Real max_val = 1) : min_(min_val), max_(max_val) {}
  Tensor forward(const Tensor& x) override { return clamp(x, min_, max_); }
  std::string extra_repr() const override;

 private:
  double min_;
  double max_;
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
