// OpSpec: one row per operation. From the rows tests/kernels/op_test.cpp makes its suites over
// devices, providers, dtypes and arrangements in memory. A row says how to call the operation, on
// which inputs, which kernels it reaches, and which mistakes it refuses with what words. Results
// are compared with those of the reference kernels. If the row has a formula of its own (in double,
// by plain loops that share no code with the library), they are also compared with that.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ringgrad/core/kernels/kernel.h"
#include "ringgrad/core/tensor.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test {

// A row-major array of doubles: what references take and return.
struct Array {
  Shape shape;
  std::vector<double> values;

  Array() : values(1) {}
  explicit Array(const Shape& shape, double value = 0)
      : shape(shape), values(shape.numel(), value) {}

  int64_t size(int d) const { return shape[d]; }
  int64_t numel() const { return shape.numel(); }
  template <class... Index>
  double& operator()(Index... index) {
    return values[offset({static_cast<int64_t>(index)...})];
  }
  template <class... Index>
  double operator()(Index... index) const {
    return values[offset({static_cast<int64_t>(index)...})];
  }
  int64_t offset(const Shape& index) const;
  Shape index(int64_t offset) const;  // the inverse
};
using Arrays = std::vector<Array>;
using Tensors = std::vector<Tensor>;

// The description of a sample's input; its values are the same in every run.
struct Input {
  enum class Values { Uniform, Distinct, Integers, Literal } values = Values::Uniform;
  Shape shape;
  // of uniform numbers, and of integers (high excluded)
  double low = -2;
  double high = 2;
  std::vector<double> kinks = {};  // points where the derivative jumps: no value closer than 0.05
  std::vector<double> literal = {};
  std::optional<DType> dtype = {};  // instead of the dtype under test: int64 for indices
  bool per_channel = false;         // float32 where the dtype under test has 16 bits
  bool wants_grad = true;           // where the dtype is a floating one

  Input away_from(double kink) const;
  Input without_grad() const;
  Input kept_wide() const;  // per_channel
  DType dtype_for(DType tested) const;
};
Input uniform(const Shape& shape, double low = -2, double high = 2);
inline Input any(const Shape& shape) { return uniform(shape); }
// Multiples of 1/8 in a random order, exact in every dtype; at most 256 elements.
Input distinct(const Shape& shape);
// int64 in [low, high).
Input integers(const Shape& shape, int64_t low, int64_t high);
// Whole numbers in the dtype under test.
Input whole(const Shape& shape, int64_t low, int64_t high);
Input literal(const Shape& shape, const std::vector<double>& values);
// int64 [n].
Input labels(const std::vector<double>& values);

struct Sample {
  std::vector<Input> inputs;
  bool smooth = true;  // false: at a kink, a tie or a NaN, where finite differences say nothing

  Sample(std::initializer_list<Input> inputs) : inputs(inputs) {}
  Sample(std::vector<Input> inputs, bool smooth) : inputs(std::move(inputs)), smooth(smooth) {}
  bool is_empty() const;
  // So large that kernels cut it: in fewer arrangements, and not each derivative is checked.
  bool is_large() const;
};
Sample not_smooth(std::vector<Input> inputs);

struct ErrorCase {
  std::string text;            // what the message must contain
  std::function<void()> test;  // requires the error
};
template <class E, class F>
ErrorCase error(const std::string& text, F run) {
  return {text, [text, run] { require_error<E>(text, run); }};
}

inline const std::vector<DType> kFloatingDTypes = {DType::Float64, DType::Float32, DType::BFloat16,
                                                   DType::Float16};
inline const std::vector<DType> kIntegerDTypes = {DType::Int64, DType::Int32, DType::UInt8};

struct OpSpec {
  std::string name;
  std::vector<std::string> kernels = {};
  std::function<Tensors(const Tensors&)> run;
  std::function<Arrays(const Arrays&)> reference = {};
  std::vector<Sample> samples;
  std::vector<ErrorCase> errors = {};
  // The longest sum behind an element of a result or a gradient, or the longest part in which
  // kernels sum a larger one; see Note [Tolerances].
  int64_t terms = 1;
  // A channel-blocked input gives such a result; on CUDA a channels-last one, too.
  bool keeps_blocked = false;
  // Calls a kernel directly: contiguous inputs only, no graph, its own rules when empty.
  bool bare_kernel = false;
  // The reason why no sample has zero elements.
  std::string never_empty = {};
  std::vector<DType> dtypes = kFloatingDTypes;
};

inline OpSpec keep_blocked(OpSpec spec) {
  spec.keeps_blocked = true;
  return spec;
}

const std::vector<OpSpec>& op_specs();
const KernelBase* find_kernel(const std::string& name);  // nullptr when nothing implements it

// -- making inputs --------------------------------------------------------------------------------
enum class Arrangement {
  Contiguous,
  Reversed,  // the first dimension is the innermost in memory
  Gaps,      // every second element of a larger tensor, behind an offset
  // Images, that is four dimensions and a floating dtype; other inputs are contiguous:
  ChannelsLast,
  ChannelBlocked,
  Mixed,  // each input in another of these, or contiguous
};
const char* name(Arrangement arrangement);

// The values of input number `i` of a sample, rounded to the dtype it will have.
Array values_of(const Input& input, int i, DType tested);
// As input number `i` would lie in memory.
Tensor arrange(const Array& values, DType dtype, Device device, Arrangement arrangement,
               size_t i = 0);

// -- for references -------------------------------------------------------------------------------
Array map(const Array& x, const std::function<double(double)>& f);
// f over two arrays, broadcast against each other.
Array map(const Array& a, const Array& b, const std::function<double(double, double)>& f);
// [O, N, I]: x seen around dimension d, for loops over (o, n, i).
Array around(const Array& x, int d);
Array reshaped(Array x, const Shape& shape);

// One list of rows per file.
std::vector<OpSpec> arithmetic_specs();
std::vector<OpSpec> comparison_specs();
std::vector<OpSpec> function_specs();
std::vector<OpSpec> view_specs();
std::vector<OpSpec> reduce_specs();
std::vector<OpSpec> matmul_specs();
std::vector<OpSpec> conv_specs();
std::vector<OpSpec> pool_specs();
std::vector<OpSpec> norm_specs();
std::vector<OpSpec> loss_specs();
std::vector<OpSpec> indexing_specs();
std::vector<OpSpec> random_specs();
std::vector<OpSpec> image_specs();
std::vector<OpSpec> memory_specs();
std::vector<OpSpec> optimizer_specs();

}  // namespace ringgrad::test
