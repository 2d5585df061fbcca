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

TEST_CASE("what cannot be packed, or is no packed sequence, is refused", "[nn][quick]") {
  const Tensor x = zeros({3, 2, 1});
  const auto misfit = [](const std::string& text, const Tensor& rows, const Tensor& lengths) {
    require_error<ShapeError>(text, [&] { nn::pack_padded_sequence(rows, lengths); });
  };
  const Tensor two = tensor<int64_t>({3, 2});
  misfit("the input has shape undefined", Tensor(), two);
  misfit("the input has shape [3], expected at least 2 dimensions", zeros({3}), two);
  misfit("the lengths have shape undefined, expected [2]", x, Tensor());
  misfit("the lengths have shape [1], expected [2]", x, tensor<int64_t>({3}));
  misfit("there are no samples", zeros({3, 0, 1}), zeros({0}, {.dtype = DType::Int64}));
  require_error<DTypeError>("the lengths are float32, expected int64", [&] {
    nn::pack_padded_sequence(x, tensor<float>({3, 2}));
  });
  for (const int64_t length : {0, 4})
    require_error<Error>("the length of sample 0 is " + std::to_string(length), [&] {
      nn::pack_padded_sequence(x, tensor<int64_t>({length, 2}));
    });
  require_error<Error>("the lengths of samples 0 and 1 are 2 and 3, expected falling ones", [&] {
    nn::pack_padded_sequence(x, tensor<int64_t>({2, 3}));
  });

  nn::PackedSequence packed{zeros({3, 2}), {2, 1}};
  packed.unsorted_indices = tensor<int64_t>({0});
  require_error<ShapeError>("the unsorted indices have shape [1], expected [2]",
                            [&] { (void)nn::pad_packed_sequence(packed); });
  for (const auto& empty : {nn::PackedSequence{Tensor(), {2}}, nn::PackedSequence{x, {}}})
    require_error<Error>("the sequence is empty", [&] { nn::pad_packed_sequence(empty); });
  const nn::PackedSequence whole{zeros({3, 2}), {2, 1}};
  require_error<Error>("total_length is 1, expected at least the longest sample's 2",
                       [&] { nn::pad_packed_sequence(whole, {.total_length = 1}); });
  require_error<ShapeError>("there are 3 rows, the batch sizes together 4", [&] {
    nn::pad_packed_sequence(nn::PackedSequence{zeros({3, 2}), {2, 2}});
  });
  require_error<Error>("there are no sequences", [] { nn::pad_sequence({}); });
  for (const Tensor& wrong : {Tensor(), zeros({})})
    require_error<ShapeError>("sequence 1 is undefined or has no dimension", [&] {
      nn::pad_sequence({zeros({2}), wrong});
    });
}

TEST_CASE("recurrent layers refuse what does not fit", "[nn][quick]") {
  require_error<Error>("LSTM: 0 inputs, 2 units in 1 layers", [] { nn::LSTM(0, 2); });
  require_error<Error>("GRU: 3 inputs, 0 units in 1 layers", [] { nn::GRU(3, 0); });
  require_error<Error>("RNN: 3 inputs, 2 units in 0 layers",
                       [] { nn::RNN(3, 2, {.num_layers = 0}); });
  require_error<Error>("the dropout is -1", [] { nn::LSTM(3, 2, {.dropout = -1}); });
  require_error<Error>("the dropout is 1.5", [] { nn::LSTM(3, 2, {.dropout = 1.5}); });
  nn::GRU net(kInputs, kSize);
  require_error<Error>("GRU: the input is an undefined tensor", [&] { net(Tensor()); });
  for (const Shape& shape : {Shape{3}, Shape{1, 2, 3, 3}, Shape{2, 2, 4}})
    require_error<ShapeError>("expected [T, N, 3]", [&] { net(zeros(shape)); });
  nn::GRU first(kInputs, kSize, {.batch_first = true});
  require_error<ShapeError>("expected [N, T, 3]", [&] { first(zeros({2, 2, 4})); });
  require_error<Error>("the packed sequence has no steps", [&] {
    net(nn::PackedSequence{zeros({3, 3}), {}});
  });
  const Tensor x = zeros({2, 2, 3});
  for (const Shape& shape : {Shape{2, 2}, Shape{2, 2, 2}})
    require_error<ShapeError>("expected [1, N, 2]", [&] { net(x, zeros(shape)); });
  require_error<ShapeError>("LSTM: the state has shape [2, 2, 2], expected [1, N, 2]", [&] {
    nn::LSTM(kInputs, kSize)(x, {zeros({1, 2, 2}), zeros({2, 2, 2})});
  });
}

TEST_CASE("a sample without a batch gives what a batch of it gives", "[nn][quick]") {
  manual_seed(2);
  for (const bool batch_first : {false, true}) {
    const int n = batch_first ? 0 : 1;
    const nn::RecurrentOptions options = {.batch_first = batch_first};
    const Tensor x = randn({4, kInputs});
    const Tensor h = randn({1, kSize});
    const Tensor c = randn({1, kSize});
    nn::LSTM lstm(kInputs, kSize, options);
    const auto [y, state] = lstm(x, {h, c});
    const auto [of_batch, states] = lstm(unsqueeze(x, n), {unsqueeze(h, 1), unsqueeze(c, 1)});
    CHECK(y.shape() == Shape{4, kSize});
    CHECK(numbers_of({y, std::get<0>(state), std::get<1>(state)}) ==
          numbers_of({of_batch, std::get<0>(states), std::get<1>(states)}));
    CHECK(std::get<1>(state).shape() == h.shape());
    nn::GRU gru(kInputs, kSize, options);
    const auto [own, last] = gru(x);
    const auto [of_zeros, again] = gru(unsqueeze(x, n), zeros({1, 1, kSize}));
    CHECK(numbers_of({own, last}) == numbers_of({of_zeros, again}));
    CHECK(last.shape() == h.shape());
  }
}

TEST_CASE("one order of packed samples gives the other, as in PyTorch", "[nn][quick]") {
  manual_seed(1);
  nn::LSTM net(kInputs, kSize);
  const Tensor x = randn({4, 3, kInputs});
  const auto whole =
      nn::pack_padded_sequence(x, tensor<int64_t>({1, 4, 2}), {.enforce_sorted = false});
  const auto states = [&](const nn::PackedSequence& packed) {
    const auto [y, state] = net(packed);
    return std::pair(to_vector<float>(std::get<0>(nn::pad_packed_sequence(y))),
                     to_vector<float>(std::get<0>(state)));
  };
  const auto expected = states(whole);
  nn::PackedSequence packed = whole;
  packed.unsorted_indices = {};
  CHECK(states(packed) == expected);
  CHECK(to_vector<float>(std::get<0>(nn::pad_packed_sequence(packed))) ==
        to_vector<float>(std::get<0>(nn::pad_packed_sequence(whole))));
  packed = whole;
  packed.sorted_indices = {};
  CHECK(states(packed) == expected);
  packed.unsorted_indices = tensor<int64_t>({2, 0, 2});
  require_error<IndexError>(
      "number 2 of the unsorted indices is 2, expected each number from 0 to 2",
      [&] { (void)net(packed); });
  packed = whole;
  packed.unsorted_indices = tensor<int64_t>({2, 0, -1});
  require_error<IndexError>("an unsorted index is -1, expected 0 to 2",
                            [&] { (void)nn::pad_packed_sequence(packed); });
}

TEST_CASE("batch sizes that are none are refused", "[nn][quick]") {
  nn::LSTM net(kInputs, kSize);
  for (const std::vector<int64_t>& sizes : std::vector<std::vector<int64_t>>{
           {1, 2}, {-3}, {0}, {3, 0}, {INT64_MAX, INT64_MAX, 5}, {2, INT64_MIN}}) {
    const nn::PackedSequence packed{zeros({3, kInputs}), sizes};
    CHECK_THROWS_AS(net(packed), Error);
    CHECK_THROWS_AS(nn::pad_packed_sequence(packed), Error);
  }
  const nn::PackedSequence packed{zeros({3, kInputs}), {2, 1}};
  CHECK_THROWS_AS(nn::pad_packed_sequence(packed, {.total_length = INT64_MAX}), ShapeError);
  CHECK_THROWS_AS(nn::LSTM(1, INT64_MAX), Error);
}

TEST_CASE("sequences of numbers are padded, too", "[quick]") {
  const Tensor y = nn::pad_sequence({tensor<float>({1, 2, 3}), tensor<float>({4})}, true, -1);
  CHECK(y.shape() == Shape{2, 3});
  CHECK(to_vector<float>(y) == std::vector<float>{1, 2, 3, 4, -1, -1});
}

}  // namespace ringgrad::test::packed_sequence_test
