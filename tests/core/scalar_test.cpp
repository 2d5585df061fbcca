// Numbers beside integer tensors are exact to both ends of int64, on every device, where a double
// would round them.
#include "ringgrad/core/scalar.h"

#include <cmath>
#include <functional>
#include <limits>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/sequences.h"

namespace ringgrad::test::scalar_test {

namespace {

constexpr int64_t kMost = INT64_MAX;
constexpr int64_t kLeast = INT64_MIN;
constexpr int64_t kOdd = (int64_t{1} << 53) + 1;  // the first integer that no double is

using Integers = std::vector<int64_t>;
using Bools = std::vector<bool>;

Integers integers_of(const Tensor& x) { return to_vector<int64_t>(x); }
Bools bools_of(const Tensor& x) { return to_vector<bool>(x); }

// Computes a op b as int64 does, which wraps.
int64_t sum_of(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}
int64_t product_of(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
}

// Checks every operation that takes a number, with numbers that no double holds exactly.
void check_all(Device device) {
  const Integers numbers = {kLeast, kLeast + 1, -kOdd, -1,       0,         1,
                            3,      kOdd - 1,   kOdd,  kOdd + 1, kMost - 1, kMost};
  const Tensor x = tensor<int64_t>(numbers, device);
  const TensorOptions options = {.dtype = DType::Int64, .device = device};
  for (const int64_t c : numbers) {
    INFO("c = " << c);
    Integers sums;
    Integers differences;
    Integers opposite;
    Integers products;
    Integers clamped;
    Bools equal;
    Bools different;
    Bools less;
    Bools less_equal;
    Bools greater;
    Bools greater_equal;
    for (const int64_t a : numbers) {
      sums.push_back(sum_of(a, c));
      differences.push_back(
          static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(c)));
      opposite.push_back(static_cast<int64_t>(static_cast<uint64_t>(c) - static_cast<uint64_t>(a)));
      products.push_back(product_of(a, c));
      clamped.push_back(std::max(a, c));
      equal.push_back(a == c);
      different.push_back(a != c);
      less.push_back(a < c);
      less_equal.push_back(a <= c);
      greater.push_back(a > c);
      greater_equal.push_back(a >= c);
    }
    CHECK(integers_of(x + c) == sums);
    CHECK(integers_of(c + x) == sums);
    CHECK(integers_of(x - c) == differences);
    CHECK(integers_of(c - x) == opposite);
    CHECK(integers_of(x * c) == products);
    CHECK(integers_of(x.clamp(c, kMost)) == clamped);
    CHECK(bools_of(x == c) == equal);
    CHECK(bools_of(x != c) == different);
    CHECK(bools_of(x < c) == less);
    CHECK(bools_of(x <= c) == less_equal);
    CHECK(bools_of(x > c) == greater);
    CHECK(bools_of(x >= c) == greater_equal);
    CHECK(bools_of(x.eq(c)) == equal);

    const Integers same(2, c);
    CHECK(integers_of(full({2}, c, options)) == same);
    CHECK(integers_of(full_like(x.slice(0, 0, 2), c)) == same);
    CHECK(integers_of(zeros({2}, options).fill_(c)) == same);
    CHECK(integers_of(where(x == c, x, c)) == Integers(numbers.size(), c));
    CHECK(integers_of(masked_fill(zeros({2}, options), ones({2}, {DType::Bool, device}), c)) ==
          same);
    CHECK(integers_of(pad(zeros({1}, options), {1, 1}, c)) == Integers{c, 0, c});
    CHECK(scalar(c, options).item<int64_t>() == c);
    const Tensor written = zeros({3}, options);
    written[0] = c;
    written.index_put_({tensor<int64_t>({2}, device)}, c);
    written += c;
    CHECK(integers_of(written) == Integers{sum_of(c, c), c, sum_of(c, c)});
    written -= c;
    written *= c;
    CHECK(integers_of(written) == Integers{product_of(c, c), 0, product_of(c, c)});
    written.zero_();
    written.add_(ones({3}, options), c);
    CHECK(integers_of(written) == Integers(3, c));
    written.masked_fill_(written == c, kLeast);
    CHECK(integers_of(written) == Integers(3, kLeast));
  }
  for (int64_t exponent = 0; exponent < 70; ++exponent) {
    Integers powers(numbers.size(), 1);
    for (size_t i = 0; i < numbers.size(); ++i)
      for (int64_t k = 0; k < exponent; ++k) powers[i] = product_of(powers[i], numbers[i]);
    CHECK(integers_of(pow(x, exponent)) == powers);
  }
  CHECK(integers_of(arange(kOdd, kOdd + 3, 1, options)) == Integers{kOdd, kOdd + 1, kOdd + 2});
  CHECK(integers_of(arange(kMost - 2, kMost, 1, options)) == Integers{kMost - 2, kMost - 1});
  CHECK(integers_of(arange(kLeast, kMost, kMost, options)) == Integers{kLeast, -1, kMost - 1});
  CHECK(integers_of(arange(kMost, kLeast, kLeast, options)) == Integers{kMost, -1});
  CHECK(integers_of(linspace(kLeast, kMost, 2, options)) == Integers{kLeast, kMost});
  CHECK(integers_of(linspace(kOdd, kOdd, 1, options)) == Integers{kOdd});
  CHECK(integers_of(linspace(-5, 5, 4, options)) == Integers{-5, -1, 1, 5});
}

}  // namespace

TEST_CASE("operations with a number are exact on all of int64", "[quick]") { check_all({}); }
TEST_CASE("operations with a number are exact on all of int64 on CUDA", "[cuda]") {
  check_all({DeviceType::CUDA});
}

TEST_CASE("narrower integers wrap beside a number, and refuse one that they cannot hold",
          "[quick]") {
  const Tensor x = tensor<int32_t>({INT32_MIN, -1, INT32_MAX}),
               bytes = tensor<uint8_t>({0, 3, 255});
  CHECK(to_vector<int32_t>(x - INT32_MIN) == std::vector<int32_t>{0, INT32_MAX, -1});
  CHECK(to_vector<int32_t>(x * INT32_MAX) == std::vector<int32_t>{INT32_MIN, -INT32_MAX, 1});
  CHECK(to_vector<uint8_t>(bytes - 4) == std::vector<uint8_t>{252, 255, 251});
  CHECK(to_vector<uint8_t>(pow(bytes, 3)) == std::vector<uint8_t>{0, 27, 255});
  CHECK(to_vector<uint8_t>(clamp(bytes, 2, 200)) == std::vector<uint8_t>{2, 3, 200});
  require_error<DTypeError>("add: the tensor is int32, which cannot hold the number 2147483648",
                            [&] { x + (int64_t{1} << 31); });
  require_error<DTypeError>("full: the tensor is int64, which cannot hold the number 1.84467e+19",
                            [] { full({1}, 0x1p64, {.dtype = DType::Int64}); });
  require_error<DTypeError>("the number 0.5, expected a whole number", [&] { x + 0.5; });
  require_error<DTypeError>("pow: the tensor is int32 and the exponent -1", [&] { pow(x, -1); });
  require_error<DTypeError>("pow: unsupported dtype bool",
                            [] { pow(ones({1}, {.dtype = DType::Bool}), 2); });
}

TEST_CASE("a number beyond the largest of a floating dtype becomes no element, as in PyTorch",
          "[quick]") {
  const Tensor half = ones({2}, {.dtype = DType::Float16});
  const Tensor mask = tensor<bool>({true, false});
  const auto refuses = [](const char* operation, const std::function<void()>& write) {
    require_error<DTypeError>(
        std::string(operation) + ": the tensor is float16, which cannot hold the number", write);
  };
  for (const double c : {-1e9, 65505., 1e300}) {
    refuses("masked_fill", [&] { masked_fill(half, mask, c); });
    refuses("masked_fill", [&] { half.masked_fill_(mask, c); });
    refuses("where", [&] { where(mask, half, c); });
    refuses("where", [&] { where(mask, c, half); });
    refuses("full", [&] { full({2}, c, {.dtype = DType::Float16}); });
    refuses("full_like", [&] { full_like(half, c); });
    refuses("fill_", [&] { half.fill_(c); });
    refuses("scalar_like", [&] { half.index_put_({0}, c); });
    refuses("clamp", [&] { clamp_max(half, c); });
    refuses("clamp", [&] { clamp_min(half, c); });
    refuses("full", [&] { pad(half, {1, 1}, c); });
    if (c > 0) refuses("uniform_", [&] { half.uniform_(0, c); });
  }
  CHECK(to_vector<float>(half) == std::vector<float>{1, 1});  // nothing was half done
  const auto first = [&](double c, DType dtype) {
    return masked_fill(ones({2}, {.dtype = dtype}), mask, c)[0].item<double>();
  };
  CHECK(first(65504, DType::Float16) == 65504);
  CHECK(first(-INFINITY, DType::Float16) == -INFINITY);
  CHECK(std::isnan(first(NAN, DType::Float16)));
  CHECK(first(0x1.fep127, DType::BFloat16) == 0x1.fep127);
  CHECK(first(0x1.fffffep127, DType::Float32) == 0x1.fffffep127);
  CHECK(first(1e300, DType::Float64) == 1e300);
  CHECK_THROWS_AS(first(0x1.ffp127, DType::BFloat16), DTypeError);
  CHECK_THROWS_AS(first(1e39, DType::Float32), DTypeError);
}

TEST_CASE("arithmetic beside a number beyond a dtype's range is infinite, as in PyTorch",
          "[quick]") {
  for (const DType dtype : {DType::Float16, DType::BFloat16, DType::Float32}) {
    const Tensor x = ones({1}, {.dtype = dtype});
    CHECK((x + 1e39).item<double>() == INFINITY);
    CHECK((x - 1e39).item<double>() == -INFINITY);
    CHECK((x * -1e39).item<double>() == -INFINITY);
    CHECK((x / 1e39).item<double>() == 0);
    CHECK((1e39 / x).item<double>() == INFINITY);
    CHECK((x < 1e39).item<bool>());
    CHECK(!(x == -1e39).item<bool>());
  }
}

TEST_CASE("a comparison refuses a number that would wrap into another", "[quick]") {
  const Tensor mask = tensor<bool>({true, false});
  const Tensor bytes = tensor<uint8_t>({255});
  CHECK(bools_of(mask == 1) == Bools{true, false});
  require_error<DTypeError>("eq: the tensor is bool, which cannot hold the number 2",
                            [&] { return mask == 2; });
  require_error<DTypeError>("lt: the tensor is uint8, which cannot hold the number -1",
                            [&] { return bytes < -1; });
  require_error<DTypeError>("clamp: the tensor is uint8, which cannot hold the number -5",
                            [&] { clamp(bytes, -5, 9); });
}

TEST_CASE("reading integers as others is exact, or an error", "[quick]") {
  CHECK(tensor<int64_t>({kOdd}).item<int64_t>() == kOdd);
  CHECK(to_vector<int64_t>(tensor<int64_t>({kLeast, kMost})) == Integers{kLeast, kMost});
  CHECK(tensor<double>({-0x1p63}).item<int64_t>() == kLeast);
  CHECK(tensor<float>({254.9F}).item<uint8_t>() == 254);
  CHECK(tensor<bool>({true}).item<int32_t>() == 1);
  require_error<DTypeError>("to_vector: element 1 is 2147483648, which int32 cannot hold", [] {
    to_vector<int32_t>(tensor<int64_t>({0, int64_t{1} << 31}));
  });
  require_error<DTypeError>("cannot hold", [] { tensor<float>({0x1p63F}).item<int64_t>(); });
  require_error<DTypeError>("cannot hold", [] { tensor<double>({NAN}).item<int32_t>(); });
  require_error<DTypeError>("cannot hold", [] { tensor<int64_t>({-1}).item<uint8_t>(); });
  require_error<DTypeError>("cannot hold", [] { tensor<int32_t>({256}).item<uint8_t>(); });
}

TEST_CASE("numbers of both kinds compare as they are", "[quick]") {
  CHECK(Scalar(kOdd - 1) < Scalar(kOdd));
  CHECK(Scalar(0x1p53) < Scalar(kOdd));
  CHECK_FALSE(Scalar(kOdd) < Scalar(0x1p53));
  CHECK(Scalar(kMost) < Scalar(0x1p63));
  CHECK_FALSE(Scalar(NAN) < Scalar(1));
  CHECK(Scalar(std::numeric_limits<uint64_t>::max()).to<double>() == 0x1p64);
  CHECK_FALSE(holds(DType::Int64, std::numeric_limits<uint64_t>::max()));
  CHECK(Scalar(true).to<int64_t>() == 1);
}

}  // namespace ringgrad::test::scalar_test
