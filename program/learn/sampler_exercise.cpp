// The exercise on samplers: choose a rank's samples.
#include "ringgrad/data/sampler.h"

#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ringgrad/program/learn/grading.h"
#include "ringgrad/program/learn/learn.h"
#include "ringgrad/program/learn/learners_code.h"

namespace ringgrad::program {
namespace sampler_exercise {
namespace {

using Share = decltype(share_of_rank);
using Options = DistributedSamplerOptions;
using Shares = std::vector<std::vector<int64_t>>;  // by rank

std::vector<int64_t> order_of(int64_t size) {  // 100, 101, …: no place is its own sample
  std::vector<int64_t> order(static_cast<size_t>(size));
  std::iota(order.begin(), order.end(), 100);
  return order;
}

Shares shares_of(Share* share, int64_t size, int64_t position, int ranks, const Options& options) {
  Shares shares;
  for (int r = 0; r < ranks; ++r)
    shares.push_back(share(order_of(size), position, ranks, r, options));
  return shares;
}

std::string drawing(const char* title, const Shares& shares) {
  std::string text = fmt::format("{}\n", title);
  for (size_t r = 0; r < shares.size(); ++r)
    text += fmt::format("  rank {}: {}\n", r, fmt::join(shares[r], " "));
  return text;
}

void check_shares(Share* share, int64_t size, int64_t position, const Options& options,
                  const Shares& expected) {
  const Shares got = shares_of(share, size, position, static_cast<int>(expected.size()), options);
  if (got != expected)
    throw Wrong(
        fmt::format("The order is 100 … {}, {} of them are used; pad is {}, drop_last is {}.\n",
                    99 + size, position, options.pad, options.drop_last) +
        drawing("your shares:", got) + drawing("expected:", expected));
}

// All ranks together: every sample that is left, but for the last ones, as often as the options
// say.
void check_together(Share* share, int64_t size, int64_t position, int ranks,
                    const Options& options) {
  const Shares shares = shares_of(share, size, position, ranks, options);
  const int64_t left = size - position;
  std::vector<int64_t> rounds;  // as the ranks use them, one after the other
  for (size_t i = 0; i < shares[0].size(); ++i)
    for (const auto& mine : shares)
      if (i < mine.size()) rounds.push_back(mine[i]);
  const int64_t even = left / ranks * ranks;
  const int64_t count = options.drop_last ? even
                        : options.pad     ? (left + ranks - 1) / ranks * ranks
                                          : left;
  std::vector<int64_t> expected;
  const auto order = order_of(size);
  for (int64_t i = 0; i < count; ++i) expected.push_back(order[(position + i) % size]);
  if (rounds != expected)
    throw Wrong(
        fmt::format("{} samples from 100 on, {} used, {} ranks, pad {}, drop_last {}: "
                    "taken in turn, the ranks use {}, expected {}\n{}",
                    size, position, ranks, options.pad, options.drop_last, fmt::join(rounds, " "),
                    fmt::join(expected, " "), drawing("your shares:", shares)));
}

void check_counts(decltype(samples_of_rank)* count, Share* share) {
  for (const Options options : {Options{.drop_last = true}, Options{}, Options{.pad = false}})
    for (int64_t left = 0; left < 9; ++left)
      for (int rank = 0; rank < 4; ++rank) {
        const int64_t said = count(left, 4, rank, options);
        const auto has = static_cast<int64_t>(share(order_of(left), 0, 4, rank, options).size());
        if (said != has)
          throw Wrong(
              fmt::format("{} samples for 4 ranks, pad {}, drop_last {}: "
                          "samples_of_rank says {} for rank {}, whose share has {}",
                          left, options.pad, options.drop_last, said, rank, has));
      }
}

void grade(Grading& grading, const LearnersCode& code) {
  Share* const share = code.instead_of(&share_of_rank);
  auto* const count = code.instead_of(&samples_of_rank);
  grading.check("eight samples for two ranks", [=] {
    check_shares(share, 8, 0, {}, {{100, 102, 104, 106}, {101, 103, 105, 107}});
  });
  grading.check("five samples for three ranks: filled up from the beginning", [=] {
    check_shares(share, 5, 0, {}, {{100, 103}, {101, 104}, {102, 100}});
  });
  grading.check("the same, with the last round left out, and as uneven as it is", [=] {
    check_shares(share, 5, 0, {.drop_last = true}, {{100}, {101}, {102}});
    check_shares(share, 5, 0, {.pad = false}, {{100, 103}, {101, 104}, {102}});
  });
  grading.check("from the middle of an epoch, on another number of ranks", [=] {
    check_shares(share, 7, 4, {}, {{104, 106}, {105, 100}});
  });
  grading.check("any sizes, positions and numbers of ranks", [=] {
    for (const Options options : {Options{.drop_last = true}, Options{}, Options{.pad = false}})
      for (int64_t size = 1; size < 12; ++size)
        for (int64_t position = 0; position <= size; ++position)
          for (int ranks = 1; ranks < 6; ++ranks)
            check_together(share, size, position, ranks, options);
  });
  grading.check("samples_of_rank counts what share_of_rank gives",
                [=] { check_counts(count, share); });
}

}  // namespace
}  // namespace sampler_exercise

const Exercise exercises::kSampler = {
    .name = "distributed sampler",
    .source = "data/share_of_rank.cpp",
    .blanks = {"int64_t samples_of_rank(", "std::vector<int64_t> share_of_rank("},
    .task =
        R"(
All ranks know the order in which an epoch visits the samples, and each takes its part without asking: of what is
left from `position` on, rank r of n uses places r, r + n, r + 2n, …. So the ranks together always use the order
from its front, and training can go on from the middle of an epoch on another number of ranks.

A rank that has one sample more than another would wait for it forever. With options.drop_last the last round is
left out where it is not full; else, with options.pad, it is filled with the first samples of the whole order (which
may be shorter than the round); with neither, ranks differ by one.

samples_of_rank() says how many there are when `left` are left for all; share_of_rank() which.)",
    .grade = sampler_exercise::grade,
};

}  // namespace ringgrad::program
