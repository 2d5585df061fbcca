// all_to_all, parts of unlike sizes, texts, every reduction of every dtype, timeouts of one call,
// groups of a machine.
#include <array>

#include "ringgrad/core/factory.h"
#include "ringgrad/distributed/group_values.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/distributed/host_groups.h"

namespace ringgrad::test::collective_kinds_test {

namespace {

template <class Body>
void run(int size, const char* channel, Body body) {
  for (const std::string& error : errors_of_ranks(host_groups(size, channel), body))
    REQUIRE(error == "");
}

void must(bool condition, const char* what) {
  if (!condition) throw Error(what);
}

// Returns a tensor of a shape that no other pair sends: [from + 1, to + 2], or with its dimensions
// exchanged, so that it is not contiguous.
Tensor part(int from, int to, bool transposed) {
  const int64_t rows = from + 1;
  const int64_t columns = to + 2;
  const Tensor x = transposed ? empty({columns, rows}).as_strided({rows, columns}, {1, rows}, 0)
                              : empty({rows, columns});
  std::vector<float> values;
  for (int64_t i = 0; i < rows * columns; ++i)
    values.push_back(static_cast<float>(100 * from + 10 * to + i));
  copy_(x, tensor(values, {rows, columns}));
  return x;
}

// Returns the reduction of all ranks' values, in the widest type, wrapped to T's bits if T is an
// integer.
template <class T>
T expected(ReduceOp op, const std::vector<T>& values) {
  using Wide = std::conditional_t<std::is_integral_v<T>, uint64_t, double>;
  Wide result = static_cast<Wide>(values[0]);
  T least = values[0];
  T most = values[0];
  for (size_t i = 1; i < values.size(); ++i) {
    const Wide next = static_cast<Wide>(values[i]);
    least = std::min<T>(least, values[i]);
    most = std::max<T>(most, values[i]);
    if (op == ReduceOp::Sum) result += next;
    if (op == ReduceOp::Product) result *= next;
    if constexpr (std::is_integral_v<T>) {
      if (op == ReduceOp::BitAnd) result &= next;
      if (op == ReduceOp::BitOr) result |= next;
      if (op == ReduceOp::BitXor) result ^= next;
    }
  }
  if constexpr (std::is_same_v<T, bool>) {
    if (op == ReduceOp::Sum || op == ReduceOp::Max) return most;
    if (op == ReduceOp::Product || op == ReduceOp::Min) return least;
    return (result & 1) != 0;
  }
  return op == ReduceOp::Min ? least : op == ReduceOp::Max ? most : static_cast<T>(result);
}

template <class T>
T value(int rank, int64_t i) {
  const int64_t n = (i * 37 + rank * 101 + i * i * rank) % 251;
  if constexpr (std::is_same_v<T, bool>)
    return n % 3 == 0;
  else if constexpr (std::is_same_v<T, float>)
    return static_cast<T>(n % 16 - 8);
  else
    return static_cast<T>(n * 0x1234'5678'9abc'def1);
}

template <class T>
void check_reductions(ProcessGroup& group) {
  using enum ReduceOp;
  const int64_t count = 100;
  for (const ReduceOp op : {Sum, Product, Min, Max, BitAnd, BitOr, BitXor}) {
    if (!std::is_integral_v<T> && op >= BitAnd) continue;
    const Tensor x = empty({count}, {.dtype = dtype_of<T>});
    std::vector<std::vector<T>> all(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
      x.data<T>()[i] = value<T>(group.rank(), i);
      for (int r = 0; r < group.size(); ++r) all[static_cast<size_t>(i)].push_back(value<T>(r, i));
    }
    group.all_reduce(x, op).wait();
    for (int64_t i = 0; i < count; ++i)
      if (x.data<T>()[i] != expected(op, all[static_cast<size_t>(i)]))
        throw Error(str(name(op), " of ", name(x.dtype()), " is wrong at ", i));
  }
}

}  // namespace

TEST_CASE("every rank gets its part from every rank", "[collective_kinds][quick][threads]") {
  const auto channel = GENERATE(from_range(channel_names()));
  const int size = GENERATE(1, 2, 3, 5);
  run(size, channel, [&](ProcessGroup& group) {
    const int rank = group.rank();
    for (const bool async : {false, true}) {
      std::vector<double> mine;
      std::vector<double> want;
      for (int r = 0; r < size; ++r) {
        mine.insert(mine.end(), {rank * 10.0 + r, -1});
        want.insert(want.end(), {r * 10.0 + rank, -1});
      }
      const Tensor y = empty({size, 2}, {.dtype = DType::Float64});
      group.all_to_all(y, tensor(mine), {.async = async}).wait();
      must(to_vector<double>(y) == want, "equal parts");

      std::vector<Tensor> to;
      std::vector<Tensor> from;
      std::vector<Tensor> parts;
      for (int r = 0; r < size; ++r) {
        to.push_back(part(rank, r, async));
        from.push_back(empty({rank + 2, r + 1}).as_strided({r + 1, rank + 2}, {1, r + 1}, 0));
        parts.push_back(empty({r + 1, r + 2}));
      }
      group.all_to_all(from, to, {.async = async}).wait();
      group.all_gather(parts, part(rank, rank, !async), {.async = async}).wait();
      for (int r = 0; r < size; ++r) {
        must(to_vector<float>(from[r]) == to_vector<float>(part(r, rank, false)), "unlike parts");
        must(to_vector<float>(parts[r]) == to_vector<float>(part(r, r, false)),
             "all_gather of unlike parts");
      }
    }
  });
}

TEST_CASE("ranks that disagree about parts are out of step", "[collective_kinds][quick][threads]") {
  const auto channel = GENERATE(from_range(channel_names()));
  const int kind = GENERATE(0, 1, 2);
  const auto errors = errors_of_ranks(host_groups(2, channel), [&](ProcessGroup& group) {
    const int rank = group.rank();
    const Tensor own = ones({1 + rank, 2});
    if (kind == 0) group.all_gather({empty({1, 2}), empty({2, 2})}, own).wait();
    if (kind == 1)
      group
          .all_gather(
              {rank == 0 ? empty({1, 2}) : empty({2, 1}), rank == 0 ? empty({4}) : empty({2, 2})},
              own)
          .wait();
    // 1 expects 2, gets 3.
    if (kind == 2) group.all_to_all({ones({2}), ones({3})}, {ones({2}), ones({3})}).wait();
    group.barrier().wait();
  });
  for (const std::string& error : errors) {
    CAPTURE(kind, error);
    REQUIRE((kind == 0 ? error == "" : error.find("out of step") != std::string::npos));
  }
}

TEST_CASE("texts of any length, to all and to one", "[collective_kinds][quick][threads]") {
  const auto channel = GENERATE(from_range(channel_names()));
  run(3, channel, [](ProcessGroup& group) {
    const auto text = [](int r) {
      return std::string(static_cast<size_t>(r * 1000), 'a') + std::string(1, '\0');
    };
    const std::vector<std::string> all{text(0), text(1), ""};
    const std::string own = all[static_cast<size_t>(group.rank())];
    must(all_gather_texts(group, own) == all, "all_gather_texts");
    must(broadcast_text(group, own, 1) == all[1] && broadcast_text(group, own, 2).empty(),
         "broadcast_text");
  });
}

TEST_CASE("every reduction of every dtype", "[collective_kinds][quick][threads]") {
  const auto channel = GENERATE(from_range(channel_names()));
  const int size = GENERATE(1, 2, 3);
  run(size, channel, [](ProcessGroup& group) {
    check_reductions<int64_t>(group);
    check_reductions<int32_t>(group);
    check_reductions<uint8_t>(group);
    check_reductions<bool>(group);
    check_reductions<float>(group);
  });
}

TEST_CASE("one call may have a deadline of its own", "[collective_kinds][quick][threads]") {
  const auto channel = GENERATE(from_range(channel_names()));
  const int kind = GENERATE(0, 1, 2);
  const auto begin = std::chrono::steady_clock::now();
  const auto errors = errors_of_ranks(host_groups(2, channel), [&](ProcessGroup& group) {
    const Tensor x = ones({3});
    if (group.rank() == 1) return group.barrier({.timeout = std::chrono::seconds(50)}).wait();
    const CollectiveOptions hurried{.async = kind == 2, .timeout = std::chrono::milliseconds(100)};
    if (kind == 0) group.all_reduce(x, ReduceOp::Sum, hurried).wait();
    if (kind > 0) group.recv(x, 1, hurried).wait();
  });
  REQUIRE(std::chrono::steady_clock::now() - begin < std::chrono::seconds(30));
  CAPTURE(errors[0]);
  REQUIRE((errors[0].find("nothing moved for 0.1 s") != std::string::npos || kind == 0));
  REQUIRE((errors[0].find("out of step") != std::string::npos || kind > 0));
}

TEST_CASE("the ranks of one machine find each other", "[collective_kinds][quick][threads]") {
  run(3, "shm", [](ProcessGroup& group) {
    const auto here = local_group(group);
    must(here->size() == 3 && here->rank() == group.rank(), "all ranks are on this machine");
    const Tensor x = ones({5});
    here->all_reduce(x).wait();
    must(to_vector<float>(x)[4] == 3, "sum");
  });
}

TEST_CASE("a timeout of one call that cannot be is refused", "[collective_kinds][quick]") {
  auto groups = host_groups(1);
  for (const auto timeout : {std::chrono::milliseconds(-1), std::chrono::milliseconds::max()})
    REQUIRE_THROWS_AS(groups[0]->barrier({.timeout = timeout}), Error);
}

}  // namespace ringgrad::test::collective_kinds_test
