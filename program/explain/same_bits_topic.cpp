// `explain same-bits`: why a network depends on the number of ranks that train it, and how --shards
// ends that.
#include <fmt/format.h>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/random.h"
#include "ringgrad/core/random_tensors.h"
#include "ringgrad/distributed/distributed_data_parallel.h"
#include "ringgrad/distributed/virtual_ranks.h"
#include "ringgrad/nn/layers.h"
#include "ringgrad/nn/optim/optimizers.h"
#include "ringgrad/program/explain/explain.h"
#include "ringgrad/program/explain/page.h"
#include "ringgrad/program/explain/ranks.h"
#include "ringgrad/program/run/saved_model.h"

namespace ringgrad::program::same_bits_topic {
namespace {

constexpr int kShards = 8;
constexpr int kSteps = 10;
constexpr int kMostRanks = 3;
constexpr int64_t kBatch = 24;
constexpr int64_t kInputs = 16;
constexpr int64_t kClasses = 4;

struct Net : nn::Module {
  nn::Linear first{kInputs, 32};
  nn::Linear last{32, kClasses};
  Net() {
    register_module("first", first);
    register_module("last", last);
  }
  Tensor forward(const Tensor& x) override { return last(relu(first(x))); }
};

// Trains the network on the same batches, with step(net, x, target) for each batch, and returns its
// hash.
template <class Make>
std::string trained(const Make& make_step) {
  manual_seed(1);
  Net net;
  const auto step = make_step(net);
  optim::SGD optimizer(net.named_parameters(), {.lr = 0.1, .momentum = 0.9});
  for (int i = 0; i < kSteps; ++i) {
    optimizer.zero_grad();
    step(randn({kBatch, kInputs}), randint(0, kClasses, {kBatch}));
    optimizer.step();
  }
  return sha256_of_state(net).substr(0, 16);
}

std::string with_ddp(ProcessGroup& group) {
  return trained([&](Net& net) {
    return [&group, ddp = std::make_shared<DistributedDataParallel>(net, group)](
               const Tensor& x, const Tensor& target) {
      const int64_t part = kBatch / group.size();
      const int64_t begin = group.rank() * part;
      cross_entropy((*ddp)(slice(x, 0, begin, begin + part)), slice(target, 0, begin, begin + part))
          .backward();
    };
  });
}

std::string with_shards(ProcessGroup& group) {
  return trained([&](Net& net) {
    const VirtualRanksOptions options{.shards = kShards};
    return [&net, ranks = std::make_shared<VirtualRanks>(net, group, options)](
               const Tensor& x, const Tensor& target) {
      const int64_t first = ranks->own_rows(kBatch).begin;
      ranks->step(kBatch, [&](const VirtualRanks::Shard& shard) {
        const int64_t begin = first + shard.begin;
        const int64_t end = first + shard.end;
        const Tensor sum = cross_entropy(net(slice(x, 0, begin, end)), slice(target, 0, begin, end),
                                         {.reduction = Reduction::Sum});
        sum.backward();
        return sum;
      });
    };
  });
}

void on_rank(const std::string&) {
  play([](ProcessGroup& group) {
    return nlohmann::json{{"plain", with_ddp(group)}, {"shards", with_shards(group)}};
  });
}

std::string name_of(ShardRange range) {
  return range.size() == 1 ? fmt::format("{}", range.begin)
                           : fmt::format("{}–{}", range.begin, range.end - 1);
}

void tell_about_addition(Page& page) {
  const float a = 1e8f;
  const float b = -1e8f;
  const float c = 1.5f;
  const float left = (a + b) + c;
  const float right = a + (b + c);
  page.text(
      fmt::format("Floating-point addition rounds, so its order counts: (1e8 - 1e8) "
                  "+ 1.5 is {}, and 1e8 + (-1e8 + 1.5) is {}. Gradients are sums over samples, "
                  "and which of them a rank adds first depends on how many ranks there are.",
                  left, right));
  page.facts["sums"] = {left, right};
}

void tell(Page& page, const ExplainOptions&) {
  tell_about_addition(page);
  page.section(fmt::format("{} steps on 1, 2 and 3 ranks", kSteps));
  std::vector<Row> hashes;
  for (int n = 1; n <= kMostRanks; ++n) {
    const auto answers = answers_of_ranks(page, "train", n);
    hashes.push_back({fmt::format("{}", n), answers[0]["plain"].get<std::string>(),
                      answers[0]["shards"].get<std::string>()});
    page.facts["jobs"].push_back({{"ranks", n}, {"answers", answers}});
  }
  page.table({"ranks", "hash of the weights", fmt::format("with {} shards", kShards)}, hashes);
  page.text(
      fmt::format("With shards the batch is always cut into {}. A rank computes some of them, "
                  "one after the other, and their gradients are added by a binary tree over the "
                  "shards' numbers, ((0+1)+(2+3))+((4+5)+(6+7)), on any ranks.",
                  kShards));

  page.section("Who adds what");
  std::vector<Row> sums;
  for (int n = 1; n <= kMostRanks; ++n)
    for (int r = 0; r < n; ++r) {
      const ShardRange own = shards_of_rank(r, n, kShards);
      std::string parts;
      for (const ShardRange part : partial_sums_of(own, kShards))
        parts += (parts.empty() ? "" : ", ") + name_of(part);
      sums.push_back({fmt::format("{} of {}", r, n), name_of(own), parts});
      page.facts["partial_sums"].push_back(
          {{"rank", r}, {"ranks", n}, {"shards", name_of(own)}, {"sums", parts}});
    }
  page.table({"rank", "its shards", "partial sums that travel"}, sums);
  page.text(
      "What a rank cannot join to its other half yet travels, and the owner of a slice "
      "of the gradient goes on in the same tree. So every addition is one of the tree's, "
      "on whatever rank, and each has one result: `train --shards 8` has the same bits on any "
      "number of ranks up to 8, by any transport, on any number of threads.");
  page.read("distributed/shards/shard_tree.h", "Note [Why the bits cannot differ]",
            "the proof; below it join(), the addition");
}

}  // namespace
}  // namespace ringgrad::program::same_bits_topic

const ringgrad::program::Topic ringgrad::program::kSameBits{
    "same-bits", "the same weights, bit for bit, on any number of ranks", same_bits_topic::tell,
    same_bits_topic::on_rank};
