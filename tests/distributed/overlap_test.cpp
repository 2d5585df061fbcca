// Memory that two tensors, or two elements of one tensor, share is found exactly, and never causes
// wrong values.
#include "ringgrad/core/overlap.h"

#include <algorithm>
#include <functional>
#include <map>
#include <random>
#include <set>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/sequences.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/distributed/host_groups.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test::overlap_test {

namespace {

// Lists each byte of each element from the strides alone.
std::vector<int64_t> bytes_of_elements(const Tensor& x) {
  std::vector<int64_t> places{x.storage_offset()};
  for (int d = 0; d < x.dim(); ++d) {
    std::vector<int64_t> more;
    for (const int64_t place : places)
      for (int64_t i = 0; i < x.size(d); ++i) more.push_back(place + i * x.stride(d));
    places = more;
  }
  std::vector<int64_t> bytes;
  const auto size = static_cast<int64_t>(itemsize(x.dtype()));
  for (const int64_t place : places)
    for (int64_t b = 0; b < size; ++b) bytes.push_back(place * size + b);
  return bytes;
}

constexpr int64_t kStorage = 60;  // bytes

Tensor random_view(const std::shared_ptr<Storage>& storage, std::mt19937& random) {
  const DType dtype = random() % 3 == 0   ? DType::Float16
                      : random() % 2 == 0 ? DType::UInt8
                                          : DType::Float32;
  const int64_t elements = kStorage / static_cast<int64_t>(itemsize(dtype));
  for (;;) {
    Shape shape;
    Strides strides;
    int64_t reach = 0;
    for (unsigned d = 0, dims = 1 + random() % 3; d < dims; ++d) {
      shape.push_back(1 + random() % 4);
      strides.push_back(random() % 8);
      reach += (shape.back() - 1) * strides.back();
    }
    if (reach < elements)
      return Tensor(storage, shape, strides, static_cast<int64_t>(random() % (elements - reach)),
                    dtype);
  }
}

Tensor own_numbers(int64_t count, int rank) {
  return arange(count) + static_cast<double>(1000 * rank);
}
int64_t number_of(int64_t rank, int64_t i) { return 1000 * rank + i; }

// It runs on a rank's thread, where Catch's macros do not work.
void must(bool holds, const std::string& what) {
  if (!holds) throw Error("not so: " + what);
}

template <class F>
std::string message_of(F f) {
  try {
    f();
    return "nothing thrown";
  } catch (const Error& error) {
    return error.what();
  }
}

void check_values(const char* what, const Tensor& y,
                  const std::function<int64_t(int64_t i)>& expected) {
  const auto values = to_vector<int64_t>(y);
  for (size_t i = 0; i < values.size(); ++i)
    must(values[i] == expected(static_cast<int64_t>(i)), what);
}

}  // namespace

TEST_CASE("common memory is found as looking at each byte finds it", "[quick]") {
  std::mt19937 random(7);
  const auto storage = std::make_shared<Storage>(kStorage, Device());
  std::map<bool, int> inside;
  std::map<bool, int> between;
  for (int i = 0; i < 20'000; ++i) {
    const Tensor a = random_view(storage, random);
    const Tensor b = random_view(storage, random);
    const auto bytes_a = bytes_of_elements(a);
    const auto bytes_b = bytes_of_elements(b);
    const std::set<int64_t> set_a(bytes_a.begin(), bytes_a.end());
    const bool overlaps_itself = set_a.size() < bytes_a.size();
    const bool common =
        std::any_of(bytes_b.begin(), bytes_b.end(), [&](int64_t at) { return set_a.contains(at); });
    CAPTURE(a.shape(), a.strides(), a.storage_offset(), b.shape(), b.strides(), b.storage_offset());
    REQUIRE(has_internal_overlap(a) == overlaps_itself);
    REQUIRE(have_memory_in_common(a, b) == common);
    ++inside[overlaps_itself];
    ++between[common];
  }
  for (const bool found : {false, true}) CHECK((inside[found] > 1000 && between[found] > 1000));
}

TEST_CASE("common memory is found between blocks of channels and a view with gaps", "[quick]") {
  const Tensor blocked = to_layout(ones({1, 3, 2, 2}), Layout::ChannelBlocked);  // padding counts
  const auto whole = static_cast<int64_t>(blocked.flat_numel());
  const auto storage = std::make_shared<Storage>(2 * whole * sizeof(float), Device());
  const Tensor images(storage, blocked.shape(), blocked.strides(), whole / 2, DType::Float32, true);
  for (int64_t offset = 0; offset < 2 * whole; offset += 3)
    for (const int64_t stride : {2, 5, 7}) {
      if (offset + 2 * stride >= 2 * whole) continue;
      const Tensor view(storage, {3}, {stride}, offset, DType::Float32);
      bool common = false;
      for (int64_t i = 0; i < 3; ++i) {
        const int64_t place = offset + i * stride;
        common |= place >= whole / 2 && place < whole / 2 + whole;
      }
      CAPTURE(offset, stride);
      CHECK(have_memory_in_common(images, view) == common);
      CHECK(have_memory_in_common(view, images) == common);
    }
}

TEST_CASE(
    "copies between views of one tensor are right or refused, and no view leads out of its memory",
    "[quick]") {
  const Tensor x = arange(16);
  const Tensor before = clone(x);
  const Tensor square = reshape(arange(16), {4, 4});
  slice(x, 0, 2).copy_(slice(x, 0, 0, 14));
  for (int i = 2; i < 16; ++i) CHECK(x[i].item<int64_t>() == i - 2);
  square.copy_(square.t());
  CHECK(square[1][2].item<int64_t>() == 9);
  copy_(slice(square, 1, 0, 4, 2), slice(square, 1, 1, 4, 2));  // places that interleave
  CHECK(square[0][0].item<int64_t>() == 4);
  require_error<Error>("have memory in common",
                       [&] { copy_(x.as_strided({3}, {2}, 0), x.as_strided({3}, {2}, 2)); });
  require_error<Error>("have memory in common", [&] { copy_(square, square.t()); });
  require_error<Error>("several elements lie in one place", [&] {
    x.as_strided({2, 3}, {1, 1}, 0).fill_(1);
  });
  require_error<Error>("several elements lie in one place", [&] {
    x.as_strided({2, 3}, {1, 1}, 0) += 1;
  });
  require_error<ShapeError>("from element 8 on, in a storage of 16 elements", [&] {
    x.as_strided({2, 2}, {8, 1}, 8);
  });
  require_error<ShapeError>("from element -1 on", [&] { x.as_strided({2}, {1}, -1); });
}

TEST_CASE("collectives whose input and output overlap are right, on every channel",
          "[quick][threads]") {
  const char* const channel = GENERATE(from_range(channel_names()));
  const int64_t n = GENERATE(1, 3, 40'000);
  const auto errors = errors_of_ranks(host_groups(3, channel), [&](ProcessGroup& group) {
    const int64_t ranks = group.size();
    const int64_t rank = group.rank();
    const auto all = [&](int64_t parts) { return own_numbers(parts * n, group.rank()); };
    const auto from_each = [&](int64_t i) { return number_of(i / n, rank * n + i % n); };
    const auto sum_of_all = [&](int64_t i) { return 3 * (rank * n + i) + 1000 * 3; };

    Tensor x = all(ranks);
    group.all_to_all(x, x).wait();
    check_values("all_to_all(x, x)", x, from_each);
    x = all(ranks + 1);
    group.all_to_all(slice(x, 0, n), slice(x, 0, 0, ranks * n), {.async = true}).wait();
    check_values("all_to_all, shifted", slice(x, 0, n), from_each);
    for (int root = 0; root < ranks; ++root) {
      x = all(ranks);
      const Tensor part = slice(x, 0, n / 2, n / 2 + n);
      group.scatter(part, x, root).wait();
      check_values("scatter into x", part,
                   [&](int64_t i) { return number_of(root, rank * n + i); });
      x = all(ranks);
      group.gather(x, slice(x, 0, n / 2, n / 2 + n), root).wait();
      if (rank == root)
        check_values("gather out of y", x,
                     [&](int64_t i) { return number_of(i / n, n / 2 + i % n); });
    }
    x = all(ranks);
    group.all_gather(x, slice(x, 0, n / 2, n / 2 + n)).wait();
    check_values("all_gather out of y", x,
                 [&](int64_t i) { return number_of(i / n, n / 2 + i % n); });
    x = all(ranks);
    group.all_gather(x, slice(x, 0, rank * n, rank * n + n)).wait();
    check_values("all_gather in place", x, [&](int64_t i) { return number_of(i / n, i); });
    x = all(ranks);
    const Tensor sums = slice(x, 0, n / 2, n / 2 + n);
    group.reduce_scatter(sums, x).wait();
    check_values("reduce_scatter into x", sums, sum_of_all);
    x = all(ranks);
    group.all_to_all(chunk(x, ranks), chunk(x, ranks)).wait();
    check_values("all_to_all of lists", x, from_each);
    x = reshape(all(ranks), {n, ranks});
    std::vector<Tensor> columns;
    for (int64_t r = 0; r < ranks; ++r) columns.push_back(select(x, 1, r));
    group.all_gather(columns, columns[0]).wait();
    check_values("all_gather into columns", x,
                 [&](int64_t i) { return number_of(i % ranks, i / ranks * ranks); });
  });
  for (const std::string& error : errors) CHECK(error == "");
}

TEST_CASE("collectives refuse lists that are written to one place", "[quick][threads]") {
  const auto errors = errors_of_ranks(host_groups(2), [](ProcessGroup& group) {
    const Tensor x = zeros({3});
    const std::string send =
        ": the tensors for what rank 0 and rank 1 send, of shapes [2] and [2], "
        "have memory in common";
    const std::vector<Tensor> parts{slice(x, 0, 0, 2), slice(x, 0, 1, 3)};
    const std::vector<Tensor> others{zeros({2}), zeros({2})};
    must(message_of([&] { group.all_gather(parts, others[0]); }).starts_with("all_gather" + send),
         "all_gather");
    must(message_of([&] { group.all_to_all(parts, others); }).starts_with("all_to_all" + send),
         "all_to_all");
    group.barrier().wait();  // the group lives on
  });
  for (const std::string& error : errors) CHECK(error == "");
}

}  // namespace ringgrad::test::overlap_test
