// A packed batch gives what its samples give one by one, and so do its derivatives.
#include "ringgrad/nn/packed_sequence.h"

#include <algorithm>

#include "ringgrad/autograd/engine.h"
#include "ringgrad/autograd/grad.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/random.h"
#include "ringgrad/core/random_tensors.h"
#include "ringgrad/nn/recurrent.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test::packed_sequence_test {

namespace {

constexpr int64_t kInputs = 3;
constexpr int64_t kSize = 2;

// Adds a number's first and second derivatives with respect to these leaves.
void add_derivatives(std::vector<Tensor>& all, const Tensor& y, const std::vector<Tensor>& leaves) {
  const auto first = autograd::grad({y}, leaves, {.create_graph = true});
  Tensor slopes = sum(sin(first[0]));
  for (size_t i = 1; i < first.size(); ++i) slopes = slopes + sum(sin(first[i]));
  const auto second = autograd::grad({slopes}, leaves);
  all.insert(all.end(), first.begin(), first.end());
  all.insert(all.end(), second.begin(), second.end());
}

std::vector<double> numbers_of(const std::vector<Tensor>& all) {
  std::vector<double> numbers;
  for (const Tensor& x : all)
    for (const double value : to_vector<double>(x)) numbers.push_back(value);
  return numbers;
}

template <class Net>
void check(const std::vector<int64_t>& lengths, Net&& net) {
  net.to(DType::Float64);
  const auto samples = static_cast<int64_t>(lengths.size());
  const int64_t steps = *std::max_element(lengths.begin(), lengths.end());
  const Tensor x = randn({steps, samples, kInputs}, {DType::Float64}).set_requires_grad();
  std::vector<Tensor> leaves = net.parameters();
  leaves.push_back(x);

  const auto [packed, state] =
      net(nn::pack_padded_sequence(x, tensor<int64_t>(lengths), {.enforce_sorted = false}));
  const auto [y, again] = nn::pad_packed_sequence(packed);
  CHECK(to_vector<int64_t>(again) == lengths);
  std::vector<Tensor> together = {y};
  add_derivatives(together, sum(sin(y)), leaves);

  std::vector<Tensor> parts;
  for (int64_t n = 0; n < samples; ++n) {
    const auto [part, own_state] = net(slice(slice(x, 1, n, n + 1), 0, 0, lengths[n]));
    parts.push_back(cat({part, zeros({steps - lengths[n], 1, part.size(2)}, {DType::Float64})}, 0));
  }
  const Tensor by_one = cat(parts, 1);
  std::vector<Tensor> apart = {by_one};
  add_derivatives(apart, sum(sin(by_one)), leaves);
  REQUIRE(y.shape() == by_one.shape());
  CHECK(difference(numbers_of(together), numbers_of(apart), {DType::Float64, 100}) == "");
}

}  // namespace

TEST_CASE("packed samples give what they give one by one", "[nn][quick]") {
  manual_seed(1);
  const bool bidirectional = GENERATE(false, true);
  const nn::RecurrentOptions options = {.num_layers = 2, .bidirectional = bidirectional};
  // Also lengths of which nothing is padded.
  for (const std::vector<int64_t>& lengths :
       std::vector<std::vector<int64_t>>{{2, 4, 1}, {4, 4, 2}, {3, 3, 3}, {4}, {1}, {1, 1}}) {
    CAPTURE(bidirectional, lengths);
    check(lengths, nn::LSTM(kInputs, kSize, options));
    check(lengths, nn::GRU(kInputs, kSize, options));
    check(lengths, nn::RNN(kInputs, kSize, options));
  }
}

TEST_CASE("packed rows that a layer cannot take are refused", "[nn][quick]") {
  nn::LSTM net(kInputs, kSize);
  require_error<ShapeError>("the packed rows have shape [3, 2], expected [rows, 3]", [&] {
    (void)net(nn::PackedSequence{zeros({3, 2}), {2, 1}});
  });
  require_error<ShapeError>("the packed rows have shape [3], expected [rows, 3]", [&] {
    (void)net(nn::PackedSequence{zeros({3}), {2, 1}});
  });
  require_error<ShapeError>("the packed rows have shape undefined, expected [rows, 3]", [&] {
    (void)net(nn::PackedSequence{Tensor(), {2, 1}});
  });
}

TEST_CASE("packed sequences with too few indices are refused", "[nn][quick]") {
  nn::PackedSequence packed{zeros({3, 2}), {2, 1}};
  packed.unsorted_indices = tensor<int64_t>({0});
  require_error<ShapeError>("the unsorted indices have shape [1], expected [2]",
                            [&] { (void)nn::pad_packed_sequence(packed); });
}

TEST_CASE("sequences of numbers are padded, too", "[quick]") {
  const Tensor y = nn::pad_sequence({tensor<float>({1, 2, 3}), tensor<float>({4})}, true, -1);
  CHECK(y.shape() == Shape{2, 3});
  CHECK(to_vector<float>(y) == std::vector<float>{1, 2, 3, 4, -1, -1});
}

}  // namespace ringgrad::test::packed_sequence_test
