// Rows for random numbers, against a Philox of our own; cpu_random_test has the published vectors.
#include <array>
#include <cmath>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/tests/kernels/op_spec.h"

namespace ringgrad::test {
namespace {

constexpr int64_t kSeed = 0x123456789abcdef;
constexpr int64_t kOffset = (int64_t{1} << 32) - 2;  // the counter carries into its upper word

// Philox4x32-10 (Salmon et al. 2011): ten rounds on a counter of four words with a key of two.
std::array<uint32_t, 4> philox_of(uint64_t key, uint64_t counter) {
  std::array<uint32_t, 4> c = {static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32),
                               0, 0};
  uint32_t k0 = static_cast<uint32_t>(key);
  uint32_t k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
    const uint64_t a = uint64_t{0xD2511F53u} * c[0];
    const uint64_t b = uint64_t{0xCD9E8D57u} * c[2];
    c = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(b),
         static_cast<uint32_t>(a >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(a)};
  }
  return c;
}

uint32_t word_of(uint64_t seed, uint64_t offset, int64_t i) {
  return philox_of(seed, offset + i / 4)[i % 4];
}

// Returns number i of a draw, in [0, 1). It has 24 random bits, or 53 in float64.
double unit(int64_t i) { return (word_of(kSeed, kOffset, i) >> 8) * 0x1p-24; }
double wide_unit(int64_t i) {
  const uint64_t low = word_of(kSeed, kOffset, 2 * i);
  const uint64_t high = word_of(kSeed, kOffset, 2 * i + 1);
  return static_cast<double>((high << 32 | low) >> 11) * 0x1p-53;
}

// Box & Muller (1958) make each pair of numbers from a radius and an angle.
double normal(double (*unit)(int64_t i), int64_t i) {
  const double u = unit(i - i % 2);
  const double v = unit(i - i % 2 + 1);
  const long double angle = 2 * std::acos(-1.0L) * v;  // in double it would lose what is allowed
  return std::sqrt(-2 * std::log(1 - u)) *
         static_cast<double>(i % 2 ? std::sin(angle) : std::cos(angle));
}

Tensor state_of(const Tensor& x) { return tensor<int64_t>({kSeed, kOffset}, x.device()); }

const std::vector<Sample> kShapes = {{uniform({3, 5})},
                                     {uniform({2, 3, 4, 5})},
                                     {uniform({1})},
                                     {uniform({0, 3})},
                                     {uniform({131})}};

OpSpec draw(const std::string& name, const std::vector<DType>& dtypes, void (*run)(const Tensor& x),
            double (*f)(int64_t i)) {
  OpSpec spec;
  spec.name = str(name, " in ", dtypes[0]);
  spec.dtypes = dtypes;
  spec.kernels = {name};
  spec.run = [run](const Tensors& in) {
    const Tensor x = empty_like(in[0]);
    run(x);
    return Tensors{x};
  };
  spec.reference = [f](const Arrays& in) {
    Array x(in[0].shape);
    for (int64_t i = 0; i < x.numel(); ++i) x.values[i] = f(i);
    return Arrays{x};
  };
  spec.samples = kShapes;
  spec.bare_kernel = true;
  return spec;
}

}  // namespace

std::vector<OpSpec> random_specs() {
  std::vector<OpSpec> specs;
  specs.push_back(
      {.name = "dropout",
       .kernels = {"dropout", "advance_random_state"},
       .run =
           [](const Tensors& in) {
             default_generator(in[0].device()).set_state(kSeed, kOffset);
             return Tensors{dropout(in[0], 0.3)};
           },
       .reference =
           [](const Arrays& in) {
             Array y = in[0];
             for (int64_t i = 0; i < y.numel(); ++i)
               y.values[i] = word_of(kSeed, kOffset, i) >= 0.3 * 0x1p32 ? y.values[i] / 0.7 : 0;
             return Arrays{y};
           },
       .samples = kShapes,
       .errors = {error<Error>("dropout: the probability is 1.1, expected a number in [0, 1]",
                               [] { dropout(zeros({2}), 1.1); }),
                  error<DTypeError>("dropout: unsupported dtype int64",
                                    [] { dropout(zeros({2}, {.dtype = DType::Int64})); })}});
  OpSpec all = specs[0];
  all.name = "dropout of everything";
  all.run = [](const Tensors& in) { return Tensors{dropout(in[0], 1)}; };
  all.reference = [](const Arrays& in) { return Arrays{Array(in[0].shape)}; };
  all.errors = {};
  specs.push_back(all);

  const std::vector<DType> narrow = {DType::Float32, DType::BFloat16, DType::Float16};
  const auto uniform = [](const Tensor& x) { kernels::uniform(x, state_of(x), -1, 3); };
  specs.push_back(draw("uniform", narrow, uniform, [](int64_t i) { return -1 + 4 * unit(i); }));
  specs.push_back(
      draw("uniform", {DType::Float64}, uniform, [](int64_t i) { return -1 + 4 * wide_unit(i); }));
  const auto normals = [](const Tensor& x) { kernels::normal(x, state_of(x), 0.5, 2); };
  specs.push_back(
      draw("normal", narrow, normals, [](int64_t i) { return 0.5 + 2 * normal(unit, i); }));
  specs.push_back(draw("normal", {DType::Float64}, normals,
                       [](int64_t i) { return 0.5 + 2 * normal(wide_unit, i); }));
  // Takes the upper bits of the product. A rejection is too rare to occur here;
  // tests/core/random_integers_test.cpp has some.
  specs.push_back(draw(
      "randint", {DType::Int64}, [](const Tensor& x) { kernels::randint(x, state_of(x), -3, 10); },
      [](int64_t i) { return -3 + std::floor(10 * wide_unit(i)); }));
  specs.back().samples = {{whole({3, 5}, 0, 9)}, {whole({0, 3}, 0, 9)}, {whole({131}, 0, 9)}};
  specs.push_back({.name = "advance_random_state",
                   .kernels = {"advance_random_state"},
                   .run =
                       [](const Tensors& in) {
                         Tensor state = empty_like(in[0]);
                         Tensor snapshot = empty_like(in[0]);
                         kernels::copy(state, in[0]);
                         kernels::advance_random_state(snapshot, state, 9);
                         return Tensors{snapshot, state};
                       },
                   .reference =
                       [](const Arrays& in) {
                         Array state = in[0];
                         state(1) += 9;
                         return Arrays{in[0], state};
                       },
                   .samples = {{labels({5, 77})}},
                   .bare_kernel = true,
                   .never_empty = "a state is a pair",
                   .dtypes = {DType::Float32}});
  return specs;
}

}  // namespace ringgrad::test
