// Collectives work on logical tensors. Input and output may lie in memory in any way, different on
// each rank; the result must be that of a loop over row-major values.
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/distributed/host_groups.h"

namespace ringgrad::test::collective_layout_test {

namespace {

using Values = std::vector<float>;

enum Kind { Contiguous, Transposed, ChannelsLast, Blocked, Sliced, kKinds };
constexpr float kGap = -77;  // between the elements of a slice

// [n, 20, 2, 3] with these values (row-major), which lies in memory as `kind` says.
Tensor laid_out(Kind kind, const Values& values) {
  const auto n = static_cast<int64_t>(values.size()) / 120;
  const Shape shape{n, 20, 2, 3};
  Tensor x;
  switch (kind) {
    case ChannelsLast: x = empty(shape, {.layout = Layout::ChannelsLast}); break;
    case Blocked:
      x = empty(shape, {.layout = Layout::ChannelBlocked});
      break;  // with 12 channels of padding
    case Transposed: x = empty({3, 2, 20, n}).as_strided(shape, {1, n, 20 * n, 40 * n}, 0); break;
    case Sliced: x = full({n, 21, 2, 5}, kGap).as_strided(shape, {210, 10, 5, 1}, 11); break;
    default: x = empty(shape);
  }
  copy_(x, tensor(values, shape));
  return x;
}

// Nothing was written beside the elements.
bool is_whole(Kind kind, const Tensor& x) {
  const auto* stored = static_cast<const float*>(x.storage()->data());
  const int64_t n = x.size(0);
  if (kind == Sliced) {
    double gaps = 0;
    for (int64_t i = 0; i < n * 210; ++i) gaps += stored[i] == kGap;
    return gaps == static_cast<double>(n * 90);
  }
  if (kind != Blocked) return true;
  for (int64_t i = 0; i < n; ++i)
    for (int64_t pixel = 0; pixel < 6; ++pixel)
      for (int64_t c = 20; c < 32; ++c)
        if (stored[((i * 2 + 1) * 6 + pixel) * 16 + c - 16] != 0) return false;
  return true;
}

Values values(int seed, int64_t n) {
  Values result;
  for (int64_t i = 0; i < n; ++i) result.push_back(static_cast<float>((i * 7 + seed * 31) % 101));
  return result;
}

Values part_of(const Values& whole, int part, int64_t n) {
  return {whole.begin() + part * n, whole.begin() + (part + 1) * n};
}

constexpr int64_t kPart = 240;  // elements of [2, 20, 2, 3]

struct Case {
  ProcessGroup& group;
  Kind in;
  Kind out;
  bool async;
  int root = 1;

  void expect(const char* what, const Tensor& got, const Values& want) const {
    if (to_vector<float>(got) != want || !is_whole(out, got))
      throw Error(
          str(what, " from layout ", in, " to ", out, ": wrong values on rank ", group.rank()));
  }
  void run() const {
    const int rank = group.rank();
    const int size = group.size();
    const CollectiveOptions how{.async = async};
    const Values own = values(rank, kPart);
    const Values whole = values(rank, kPart * size);
    const auto whole_of = [&](int r) { return values(r, kPart * size); };
    Values all;
    Values sum(kPart);
    Values sum_of_parts(kPart);
    for (int r = 0; r < size; ++r) {
      const Values theirs = values(r, kPart);
      const Values part = part_of(whole_of(r), rank, kPart);
      all.insert(all.end(), theirs.begin(), theirs.end());
      for (size_t i = 0; i < kPart; ++i) {
        sum[i] += theirs[i];
        sum_of_parts[i] += part[i];
      }
    }
    const auto blank = [&](int64_t n) { return laid_out(out, Values(static_cast<size_t>(n), -1)); };

    Tensor x = laid_out(out, own);
    group.all_reduce(x, ReduceOp::Sum, how).wait();
    expect("all_reduce", x, sum);
    x = laid_out(out, own);
    group.broadcast(x, root, how).wait();
    expect("broadcast", x, values(root, kPart));
    x = laid_out(out, own);
    group.reduce(x, root, ReduceOp::Sum, how).wait();
    expect("reduce", x, rank == root ? sum : own);
    Tensor y = blank(kPart * size);
    group.gather(y, laid_out(in, own), root, how).wait();
    if (rank == root) expect("gather", y, all);
    y = blank(kPart);
    group.scatter(y, laid_out(in, whole), root, how).wait();
    expect("scatter", y, part_of(whole_of(root), rank, kPart));
    y = blank(kPart * size);
    group.all_gather(y, laid_out(in, own), how).wait();
    expect("all_gather", y, all);
    y = blank(kPart);
    group.reduce_scatter(y, laid_out(in, whole), ReduceOp::Sum, how).wait();
    expect("reduce_scatter", y, sum_of_parts);
    y = blank(kPart);
    if (rank == 0) group.send(laid_out(in, own), 1, how).wait();
    if (rank == 1) group.recv(y, 0, how).wait();
    if (rank == 1) expect("recv", y, values(0, kPart));
  }
};

void check(const std::vector<std::string>& errors) {
  for (const std::string& error : errors) REQUIRE(error == "");
}

}  // namespace

TEST_CASE("every collective takes every layout, another one on each rank",
          "[collective_layout][quick][threads]") {
  const auto channel = GENERATE(from_range(channel_names()));
  const int size = GENERATE(2, 3);
  const bool async = GENERATE(false, true);
  check(errors_of_ranks(host_groups(size, channel), [&](ProcessGroup& group) {
    for (int i = 0; i < kKinds * kKinds; ++i) {
      const int other = i + group.rank();
      Case{group, static_cast<Kind>(other % kKinds), static_cast<Kind>(other / kKinds % kKinds),
           async}
          .run();
    }
  }));
}

TEST_CASE("a plain convolution's output is gathered as what it is",
          "[collective_layout][quick][threads]") {
  check(errors_of_ranks(host_groups(2), [](ProcessGroup& group) {
    const Tensor x = full({2, 3, 8, 8}, group.rank() + 1);
    const Tensor w = ones({20, 3, 3, 3});
    const Tensor y = conv2d(x, w, {}, {});
    const Tensor all = empty({4, 20, 6, 6});
    group.all_gather(all, y).wait();
    Values want = to_vector<float>(conv2d(ones({2, 3, 8, 8}), w, {}, {}));
    const Values second = to_vector<float>(conv2d(full({2, 3, 8, 8}, 2), w, {}, {}));
    want.insert(want.end(), second.begin(), second.end());
    if (to_vector<float>(all) != want) throw Error("wrong values");
  }));
}

TEST_CASE("a result arrives although nobody keeps the Work",
          "[collective_layout][quick][threads]") {
  const auto channel = GENERATE(from_range(channel_names()));
  check(errors_of_ranks(host_groups(2, channel), [&](ProcessGroup& group) {
    const Tensor x = laid_out(Transposed, values(group.rank(), kPart));
    group.all_reduce(x, ReduceOp::Max, {.async = true});
    group.barrier().wait();
    Values want = values(0, kPart);
    for (size_t i = 0; i < want.size(); ++i) want[i] = std::max(want[i], values(1, kPart)[i]);
    if (to_vector<float>(x) != want) throw Error("the result was lost");
  }));
}

TEST_CASE("ranks with other shapes are out of step, and the error names both",
          "[collective_layout][quick][threads]") {
  const auto channel = GENERATE(from_range(channel_names()));
  const int kind = GENERATE(0, 1, 2);
  const auto errors = errors_of_ranks(host_groups(2, channel), [&](ProcessGroup& group) {
    const Tensor x = group.rank() == 0 ? ones({2, 3}) : ones({3, 2});
    try {
      if (kind == 0) group.all_reduce(x).wait();
      if (kind == 1) group.broadcast(x, 0).wait();
      if (kind == 2) group.all_gather(empty({12}), x).wait();
      group.barrier().wait();  // the root of a broadcast hears of it here
    } catch (const OutOfStepError&) {
      throw;
    } catch (const Error& error) {
      throw Error(str("another error: ", error.what()));
    }
  });
  for (const std::string& error : errors) {
    CAPTURE(channel, kind, error);
    REQUIRE(error.find("another error") == std::string::npos);
    REQUIRE(error.find("[2, 3] float32") != std::string::npos);
    REQUIRE(error.find("[3, 2] float32") != std::string::npos);
  }
}

}  // namespace ringgrad::test::collective_layout_test
