// Collectives against sums done here: channel × ranks × count × dtype × reduction × algorithm. The
// elements are small integers, so that every dtype and every order of summation gives the exact
// result.
#include "ringgrad/distributed/collectives/ring.h"

#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "ringgrad/distributed/other_collectives/broadcast_and_barrier.h"
#include "ringgrad/distributed/other_collectives/other_collectives.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/distributed/run_ranks.h"

namespace ringgrad::test::ring_test {

namespace {

constexpr size_t kPeriod = 11;
int element(int rank, size_t i) {
  return static_cast<int>((i * 7 + static_cast<size_t>(rank) * 3) % kPeriod) - 4;
}

template <class T>
std::vector<T> elements(int rank, size_t count) {
  T period[kPeriod];
  for (size_t i = 0; i < kPeriod; ++i)
    period[i] = static_cast<T>(static_cast<float>(element(rank, i)));
  std::vector<T> x(count);
  for (size_t i = 0; i < count; ++i) x[i] = period[i % kPeriod];
  return x;
}

double expected(ReduceOp op, int size, size_t i) {
  double sum = 0;
  double low = 100;
  double high = -100;
  for (int r = 0; r < size; ++r) {
    sum += element(r, i);
    low = std::min<double>(low, element(r, i));
    high = std::max<double>(high, element(r, i));
  }
  return op == ReduceOp::Sum       ? sum
         : op == ReduceOp::Average ? sum / size
         : op == ReduceOp::Min     ? low
                                   : high;
}

// Averages of 3 or 7 ranks are not exact: one rounding of the scale and one of the product.
template <class T>
bool right(T got, double want, ReduceOp op) {
  if constexpr (std::is_integral_v<T>) return got == static_cast<T>(want);
  const double value = static_cast<double>(got);
  if (op != ReduceOp::Average) return value == want;
  const double epsilon = sizeof(T) == 8               ? 1e-15
                         : sizeof(T) == 4             ? 2e-7
                         : std::is_same_v<T, float16> ? 1e-3
                                                      : 8e-3;
  return std::abs(value - want) <= epsilon * std::abs(want);
}

template <class T>
std::span<std::byte> bytes_of(std::vector<T>& x) {
  return std::as_writable_bytes(std::span(x));
}

Messenger messenger(Transport& t, Operation operation, uint64_t count, int root = -1) {
  Frame frame;
  frame.operation = operation;
  frame.sequence = t.ranks().position().frame.sequence + 1;
  frame.count = count;
  frame.root = root;
  t.enter(frame);
  return Messenger(t, frame, count % 2 == 1 ? Checksums::On : Checksums::Off);
}

enum class Algorithm { GatherBroadcast, Exchange, Direct, Ring, SegmentedRing };

template <class T>
void all_reduce(Transport& t, std::vector<T>& x, ReduceOp op, Algorithm algorithm,
                size_t segment_bytes = 64) {
  auto messages = messenger(t, Operation::AllReduce, x.size());
  const ReduceFunctions& r = reduction("all_reduce", dtype_of<T>, op);
  if (algorithm == Algorithm::Exchange)
    exchange_all_reduce(messages, x.data(), x.size(), r, segment_bytes);
  else if (algorithm == Algorithm::Direct)
    direct_all_reduce(messages, x.data(), x.size(), r, segment_bytes);
  else if (algorithm == Algorithm::GatherBroadcast)
    gather_broadcast_all_reduce(messages, x.data(), x.size(), r);
  else
    ring_all_reduce(messages, x.data(), x.size(), r,
                    algorithm == Algorithm::Ring ? kWholeChunk : segment_bytes);
}

// All ranks must have the same bits, and one of them the right numbers.
template <class T>
void test_all_reduce(const char* channel, int size, size_t count, size_t segment_bytes) {
  constexpr ReduceOp kOps[] = {ReduceOp::Sum, ReduceOp::Average, ReduceOp::Min, ReduceOp::Max};
  for (auto algorithm : {Algorithm::GatherBroadcast, Algorithm::Exchange, Algorithm::Direct,
                         Algorithm::Ring, Algorithm::SegmentedRing}) {
    std::vector<std::vector<T>> results(static_cast<size_t>(size));  // one op behind the other
    run_ranks(size, channel, [&](Transport& t) {
      auto& result = results[static_cast<size_t>(t.rank())];
      for (auto op : kOps) {
        auto x = elements<T>(t.rank(), count);
        all_reduce(t, x, op, algorithm, segment_bytes);
        result.insert(result.end(), x.begin(), x.end());
      }
    });
    for (const auto& result : results) {
      REQUIRE(result.size() == std::size(kOps) * count);
      if (count > 0)
        REQUIRE(std::memcmp(result.data(), results[0].data(), bytes_of(results[0]).size()) == 0);
    }
    const T* got = results[0].data();
    for (auto op : kOps) {
      double want[kPeriod];
      for (size_t i = 0; i < kPeriod; ++i) want[i] = expected(op, size, i);
      for (size_t i = 0; i < count; ++i, ++got)
        if (!right(*got, want[i % kPeriod], op))
          FAIL("algorithm " << static_cast<int>(algorithm) << " " << name(op) << " "
                            << name(dtype_of<T>) << "[" << i << "] = " << static_cast<double>(*got)
                            << ", expected " << want[i % kPeriod]);
    }
  }
}

void test_all_reduce_of_all_dtypes(const char* channel, int size, size_t count,
                                   size_t segment_bytes) {
  CAPTURE(channel, size, count);
  test_all_reduce<float>(channel, size, count, segment_bytes);
  test_all_reduce<double>(channel, size, count, segment_bytes);
  test_all_reduce<bfloat16>(channel, size, count, segment_bytes);
  test_all_reduce<float16>(channel, size, count, segment_bytes);
  test_all_reduce<int64_t>(channel, size, count, segment_bytes);
}

}  // namespace

TEST_CASE("all_reduce is exact and the same on all ranks", "[ring][quick][threads]") {
  const auto channel = GENERATE(from_range(channel_names()));
  const int size = GENERATE(1, 2, 3, 4, 7);
  for (size_t count : {size_t{0}, size_t{1}, static_cast<size_t>(size - 1),
                       static_cast<size_t>(size), size_t{1000}})
    test_all_reduce_of_all_dtypes(channel, size, count, 64);
}

TEST_CASE("all_reduce of a million elements", "[ring]") {
  const auto channel = GENERATE(from_range(channel_names()));
  const int size = GENERATE(2, 3, 4, 7);
  CAPTURE(channel, size);
  test_all_reduce<float>(channel, size, 1'000'000, 1 << 16);
  test_all_reduce<bfloat16>(channel, size, 1'000'000, 1 << 16);
}

TEST_CASE("the other collectives", "[ring][quick][threads]") {
  const auto channel = GENERATE(from_range(channel_names()));
  const int size = GENERATE(1, 2, 3, 4, 7);
  const size_t count = GENERATE(0, 1, 1000);
  CAPTURE(channel, size, count);
  run_ranks(size, channel, [&](Transport& t) {
    const int rank = t.rank();
    const auto n = static_cast<size_t>(size);
    const auto must = [](bool condition, const char* what) {
      if (!condition) throw Error(what);
    };
    const auto parts_of = [&](std::vector<float>& whole) {
      Parts parts(n);
      for (size_t r = 0; r < n && !whole.empty(); ++r)
        parts[r] = bytes_of(whole).subspan(r * count * sizeof(float), count * sizeof(float));
      return parts;
    };
    std::vector<float> all;
    for (int r = 0; r < size; ++r) {
      const auto part = elements<float>(r, count);
      all.insert(all.end(), part.begin(), part.end());
    }
    for (int root = 0; root < size; ++root) {
      auto x = elements<float>(rank, count);
      auto m = messenger(t, Operation::Broadcast, count, root);
      broadcast(m, root, bytes_of(x), 64);
      must(x == elements<float>(root, count), "broadcast");

      x = elements<float>(rank, count);
      std::vector<float> y(n * count, -99);
      auto m2 = messenger(t, Operation::Gather, count, root);
      exchange_parts(m2, parts_of(y), Parts(n, bytes_of(x)), kAnyRank, root);
      must(y == (rank == root ? all : std::vector<float>(n * count, -99)), "gather");

      std::vector<float> part(count);
      std::vector<float> source = rank == root ? all : std::vector<float>{};
      auto m3 = messenger(t, Operation::Scatter, count, root);
      exchange_parts(m3, Parts(n, bytes_of(part)), parts_of(source), root);
      must(part == elements<float>(rank, count), "scatter");

      for (auto op : {ReduceOp::Sum, ReduceOp::Average, ReduceOp::Max}) {
        const auto half = elements<bfloat16>(rank, count);
        std::vector<bfloat16> result(count, bfloat16(-99.f));
        auto m4 = messenger(t, Operation::Reduce, count, root);
        reduce(m4, root, result.data(), half.data(), count,
               reduction("reduce", DType::BFloat16, op), 64);
        for (size_t i = 0; i < count; ++i)
          must(rank == root ? right(result[i], expected(op, size, i), op) : result[i] == -99.f,
               "reduce");
      }
      auto m5 = messenger(t, Operation::Reduce, count, root);  // in place
      reduce(m5, root, x.data(), x.data(), count,
             reduction("reduce", DType::Float32, ReduceOp::Sum), 64);
      for (size_t i = 0; i < count; ++i)
        must(x[i] == (rank == root ? expected(ReduceOp::Sum, size, i) : element(rank, i)),
             "reduce in place");
    }

    std::vector<float> gathered(n * count);
    auto x = elements<float>(rank, count);
    auto m6 = messenger(t, Operation::AllGather, count);
    ring_all_gather(m6, parts_of(gathered), bytes_of(x), 64);
    must(gathered == all, "all_gather");

    for (auto op : {ReduceOp::Sum, ReduceOp::Average, ReduceOp::Min}) {
      const auto whole = elements<float16>(rank, n * count);
      std::vector<float16> part(count);
      auto m7 = messenger(t, Operation::ReduceScatter, count);
      ring_reduce_scatter(m7, part.data(), whole.data(), count,
                          reduction("reduce_scatter", DType::Float16, op), 64);
      for (size_t i = 0; i < count; ++i)
        must(right(part[i], expected(op, size, static_cast<size_t>(rank) * count + i), op),
             "reduce_scatter");
    }
    const auto wide = elements<double>(rank, n * count);
    std::vector<double> part(count);
    auto m8 = messenger(t, Operation::ReduceScatter, count);
    ring_reduce_scatter(m8, part.data(), wide.data(), count,
                        reduction("reduce_scatter", DType::Float64, ReduceOp::Sum), 64);
    for (size_t i = 0; i < count; ++i)
      must(part[i] == expected(ReduceOp::Sum, size, static_cast<size_t>(rank) * count + i),
           "reduce_scatter");
  });
}

TEST_CASE("nobody leaves a barrier before everybody has come", "[ring][quick][threads]") {
  const auto channel = GENERATE(from_range(channel_names()));
  const int size = GENERATE(2, 3, 7);
  std::atomic<int> arrived = 0;
  run_ranks(size, channel, [&](Transport& t) {
    for (int round = 1; round <= 50; ++round) {
      arrived.fetch_add(1);
      auto m = messenger(t, Operation::Barrier, 0);
      barrier(m);
      if (arrived < round * size) throw Error("a rank was missing");
      auto m2 = messenger(t, Operation::Barrier, 0);
      barrier(m2);
    }
  });
}

// So a measurement may choose among them. The expected bits are of a loop here.
TEST_CASE("without a ring elements are added in the order of ranks", "[ring][quick][threads]") {
  const auto channel = GENERATE(from_range(channel_names()));
  const int size = GENERATE(2, 3, 8);
  const size_t count = GENERATE(1, 7, 5000);
  std::vector<std::vector<float>> inputs;
  std::vector<float> expected(count);
  std::mt19937 random(3);
  for (int r = 0; r < size; ++r) {
    std::vector<float> x(count);
    for (float& value : x) value = std::normal_distribution<float>()(random);
    for (size_t i = 0; i < count; ++i) expected[i] = r == 0 ? x[i] : expected[i] + x[i];
    inputs.push_back(x);
  }
  for (auto algorithm : {Algorithm::GatherBroadcast, Algorithm::Exchange, Algorithm::Direct})
    run_ranks(size, channel, [&](Transport& t) {
      auto x = inputs[static_cast<size_t>(t.rank())];
      all_reduce(t, x, ReduceOp::Sum, algorithm);
      if (x != expected) throw Error(str("algorithm ", static_cast<int>(algorithm)));
    });
  // Auto times both, and all ranks take the same one.
  run_ranks(size, channel, [&](Transport& t) {
    auto x = inputs[static_cast<size_t>(t.rank())];
    auto messages = messenger(t, Operation::AllReduce, count);
    ringgrad::all_reduce(messages, AllReduceAlgorithm::Auto, x.data(), count,
                         reduction("all_reduce", DType::Float32, ReduceOp::Sum), 64);
    if (x != expected) throw Error("auto");
    if (count == 5000 && size > 2 && messages.bytes_under_way() < 0) throw Error("not measured");
  });
}

TEST_CASE("16-bit floats are summed in float32 and rounded once", "[ring][quick][threads]") {
  // 256 + 1 is a tie in bfloat16 and rounds to 256: summed in bfloat16, three ranks would give 256,
  // not 258.
  run_ranks(3, "shm", [](Transport& t) {
    for (auto algorithm : {Algorithm::GatherBroadcast, Algorithm::Exchange, Algorithm::Direct,
                           Algorithm::Ring, Algorithm::SegmentedRing}) {
      std::vector<bfloat16> x(10, bfloat16(t.rank() == 0 ? 256.f : 1.f));
      all_reduce(t, x, ReduceOp::Sum, algorithm);
      for (bfloat16 value : x)
        if (value != 258.f) throw Error(str("got ", static_cast<float>(value), ", expected 258"));
    }
  });
}

TEST_CASE("NaN survives min and max wherever it stands", "[ring][quick][threads]") {
  const int culprit = GENERATE(0, 1, 2);
  run_ranks(3, "shm", [&](Transport& t) {
    for (auto op : {ReduceOp::Min, ReduceOp::Max, ReduceOp::Sum}) {
      std::vector<float> x(5, 1.f);
      if (t.rank() == culprit) x[2] = std::numeric_limits<float>::quiet_NaN();
      all_reduce(t, x, op, Algorithm::SegmentedRing);
      if (!std::isnan(x[2]) || std::isnan(x[1])) throw Error("NaN was lost or spread");
    }
  });
}

TEST_CASE("ranks in different collectives are told so", "[ring][quick][threads]") {
  const auto channel = GENERATE(from_range(channel_names()));
  const auto errors = errors_of_ranks(in_process_transports(2, channel), [](Transport& t) {
    try {
      std::vector<float> x(100);
      if (t.rank() == 0)
        all_reduce(t, x, ReduceOp::Sum, Algorithm::SegmentedRing);
      else {
        auto m = messenger(t, Operation::Barrier, 0);
        barrier(m);
      }
    } catch (...) {
      t.ranks().abort(failure_of(std::current_exception()));
      throw;
    }
  });
  for (const auto& error : errors) {
    CAPTURE(error);
    REQUIRE(error.find("in all_reduce (sum) of 100") != std::string::npos);
    REQUIRE(error.find("in barrier") != std::string::npos);
  }
}

TEST_CASE("a ring goes on with its first segments before it has sent all of its own",
          "[ring][quick][threads]") {
  constexpr size_t kCount = 64;
  constexpr size_t kSegments = kCount / 2;  // segments of one element, in each half
  run_ranks(2, "shm", [](Transport& t) {
    std::vector<int64_t> x(kCount);
    const auto* own = reinterpret_cast<const std::byte*>(x.data() + t.rank() * kSegments);
    // Segments that it has sent; the place of the first of the others among them.
    size_t segments = 0;
    size_t not_its_own = 0;
    Frame frame;
    t.enter(frame);
    const SendObserver on_send = [&](int, std::span<const std::byte> s) {
      if (s.data() < own || s.data() >= own + kSegments * sizeof(int64_t))
        not_its_own = std::min(not_its_own, segments);
      if (++segments == 1) not_its_own = 2 * kSegments;
    };
    Messenger messages(t, frame, Checksums::Off, {}, on_send);
    ring_all_reduce(messages, x.data(), kCount,
                    reduction("all_reduce", DType::Int64, ReduceOp::Sum), sizeof(int64_t));
    if (segments != 2 * kSegments || not_its_own > kSegments / 2)
      throw Error(str(not_its_own, " of ", segments));
  });
}

TEST_CASE("what a dtype has no reduction for is refused", "[ring][quick][threads]") {
  REQUIRE_THROWS_AS(reduction("all_reduce", DType::UInt8, ReduceOp::Average), DTypeError);
  REQUIRE_THROWS_AS(reduction("all_reduce", DType::Bool, ReduceOp::Average), DTypeError);
  REQUIRE_THROWS_AS(reduction("all_reduce", DType::Float16, ReduceOp::BitXor), DTypeError);
}

}  // namespace ringgrad::test::ring_test
