// The exercise on "gradient ready": the sink at a leaf, and its hooks.
#include "ringgrad/autograd/accumulate_grad.h"

#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/distributed/distributed_data_parallel.h"
#include "ringgrad/distributed/process_groups/host_process_group.h"
#include "ringgrad/nn/layers.h"
#include "ringgrad/program/learn/forked_ranks.h"
#include "ringgrad/program/learn/grading.h"
#include "ringgrad/program/learn/learn.h"
#include "ringgrad/program/learn/learners_code.h"

namespace ringgrad::program {
namespace hook_exercise {
namespace {

using Sink = decltype(make_accumulate_grad);

// The engine's backward ends in the learner's sink as long as this lives.
class Leaf {
 public:
  Leaf(Sink* sink, Tensor leaf) : tensor(std::move(leaf)) {
    tensor.set_requires_grad(true);
    node_ = sink(tensor);
    autograd_meta(tensor).accumulator = node_;
  }
  std::vector<float> grad() const {
    return tensor.grad().defined() ? to_vector<float>(tensor.grad()) : std::vector<float>();
  }
  HookHandle hook(std::function<void()> does) const {
    return register_post_accumulate_grad_hook(tensor,
                                              [does = std::move(does)](const Tensor&) { does(); });
  }

  const Tensor tensor;

 private:
  std::shared_ptr<Node> node_;
};

Leaf leaf_of(Sink* sink, const std::vector<float>& values) { return Leaf(sink, tensor(values)); }

void expect_grad(const char* when, const Leaf& leaf, const std::vector<float>& want) {
  if (const auto got = leaf.grad(); got != want)
    throw Wrong(fmt::format("{}, grad() is [{}], expected [{}]", when, fmt::join(got, ", "),
                            fmt::join(want, ", ")));
}

void check_sum(Sink* sink) {
  const Leaf x = leaf_of(sink, {1, 2, 3});
  sum(add(mul(x.tensor, x.tensor), x.tensor)).backward();
  expect_grad("after the backward of Σ x·x + x at x = [1, 2, 3]", x, {3, 5, 7});
  const void* const place = x.tensor.grad().raw_data();
  sum(x.tensor).backward();
  expect_grad("after another backward, of Σ x, which adds to it", x, {4, 6, 8});
  if (x.tensor.grad().raw_data() != place)
    throw Wrong(
        "the second backward has put grad() elsewhere in memory; "
        "it is added to in place: an optimizer, and the buckets of all ranks, "
        "look at the array of all gradients that it is a part of");
}

// add() hands one and the same dy to both of its inputs.
void check_own(Sink* sink) {
  const Leaf a = leaf_of(sink, {1, 1});
  const Leaf b = leaf_of(sink, {1, 1});
  sum(add(a.tensor, b.tensor)).backward();
  if (a.tensor.grad().defined() && a.tensor.grad().raw_data() == b.tensor.grad().raw_data())
    throw Wrong(
        "after the backward of Σ a + b, a.grad() and b.grad() are one and the same memory: "
        "what is added to one changes the other. The first gradient may become the leaf's own only "
        "where nobody else holds it; else copy it");
  expect_grad("after the backward of Σ a + b", a, {1, 1});
  sum(a.tensor).backward();
  expect_grad("after a backward of Σ a alone", b, {1, 1});
}

void check_hooks(Sink* sink) {
  const Leaf x = leaf_of(sink, {2});
  std::vector<std::string> seen;
  const auto note = [&](const char* name) {
    return [&, name] { seen.push_back(fmt::format("{}:{}", name, fmt::join(x.grad(), " "))); };
  };
  const HookHandle first = x.hook(note("first"));
  const HookHandle second = x.hook(note("second"));
  mul(x.tensor, x.tensor).sum().backward();
  const std::vector<std::string> want = {"first:4", "second:4"};
  if (seen != want)
    throw Wrong(
        fmt::format("two hooks on x, and the backward of x·x at 2: they saw grad() "
                    "as [{}], expected [{}]: each once, in the order of registration, "
                    "when the gradient is complete",
                    fmt::join(seen, ", "), fmt::join(want, ", ")));
}

void check_changing_hooks(Sink* sink) {
  const Leaf x = leaf_of(sink, {2});
  std::string seen;
  HookHandle once;
  HookHandle removed;
  HookHandle added;
  once = x.hook([&] {
    seen += 'o';
    once.remove();
    removed.remove();
    added = x.hook([&] { seen += 'a'; });
  });
  removed = x.hook([&] { seen += 'r'; });
  const HookHandle last = x.hook([&] { seen += 'l'; });
  sum(x.tensor).backward();
  seen += '|';
  sum(x.tensor).backward();
  if (seen != "ol|la")
    throw Wrong(
        fmt::format("the first of three hooks (o, r, l) removes itself and r, and adds a: "
                    "over two backward passes ran {}, expected ol|la: a removed one never runs, "
                    "an added one from the next pass on",
                    seen));
}

void check_throwing_hook(Sink* sink) {
  const Leaf x = leaf_of(sink, {2});
  bool later = false;
  const HookHandle throws = x.hook([] { throw Error("a hook's error"); });
  const HookHandle after = x.hook([&] { later = true; });
  try {
    sum(x.tensor).backward();
  } catch (const Error& error) {
    if (std::string(error.what()).find("a hook's error") != std::string::npos && !later) return;
  }
  throw Wrong(later ? "a hook threw, and the one behind it ran even so"
                    : "a hook threw, and backward() did not");
}

constexpr int64_t kWidth = 32;

// Layers of a network small enough to check.
class Layers : public nn::Module {
 public:
  Layers() {
    for (int i = 1; i <= 4; ++i)
      layers_.push_back(
          register_module(fmt::format("fc{}", i), std::make_shared<nn::Linear>(kWidth, kWidth)));
  }
  Tensor forward(const Tensor& x) override {
    Tensor y = x;
    for (const auto& layer : layers_) y = tanh((*layer)(y));
    return y;
  }

 private:
  std::vector<std::shared_ptr<nn::Linear>> layers_;
};

Tensor batch_of(int rank) {
  manual_seed(static_cast<uint64_t>(rank) + 7);
  Tensor x = empty({8, kWidth});
  normal_(x, 0, 1);
  return x;
}

// Returns the gradients that both ranks should have: the mean over both batches, by the engine
// alone.
std::vector<std::vector<float>> mean_gradients(nn::Module& network) {
  std::vector<std::vector<float>> mean;
  for (int rank = 0; rank < 2; ++rank) square(network(batch_of(rank))).sum().backward();
  for (const Tensor& parameter : network.parameters()) {
    mean.push_back(to_vector<float>(parameter.grad()));
    for (float& x : mean.back()) x /= 2;
    parameter.set_grad({});
  }
  return mean;
}

// The learner's sinks drive two ranks: hooks fill buckets, which travel while backward runs.
nlohmann::json train_in_parallel(Sink* sink, ProcessGroup& group) {
  manual_seed(1);
  Layers network;
  const auto expected = mean_gradients(network);
  DistributedDataParallel ddp(
      network, group,
      {.caps = {.first_bytes = 4096, .bytes = 4096}, .weighting = Weighting::Ranks});
  std::vector<std::shared_ptr<Node>> sinks;
  for (const Tensor& parameter : network.parameters()) {
    sinks.push_back(sink(parameter));
    autograd_meta(parameter).accumulator = sinks.back();
  }
  double worst = 0;
  for (int step = 0; step < 2; ++step) {
    for (const Tensor& parameter : network.parameters()) fill_(parameter.grad(), 0);
    square(ddp(batch_of(group.rank()))).sum().backward();
    for (size_t p = 0; p < expected.size(); ++p) {
      const auto got = to_vector<float>(network.parameters()[p].grad());
      for (size_t i = 0; i < got.size(); ++i)
        worst = std::max(worst, std::abs(got[i] - expected[p][i]) /
                                    std::max(1.0, static_cast<double>(std::abs(expected[p][i]))));
    }
  }
  int early = 0;
  for (const BucketLog& bucket : ddp.log().buckets)
    early += bucket.ready > 0 && bucket.launched < ddp.log().computed;
  return {{"worst", worst}, {"early", early}, {"buckets", ddp.log().buckets.size()}};
}

void check_data_parallel(Sink* sink) {
  const auto answers = answers_of(run_forked_ranks(2, [&](std::unique_ptr<Transport> transport) {
    HostProcessGroup group(std::move(transport), {.timeout = std::chrono::seconds(3)});
    return train_in_parallel(sink, group);
  }));
  for (size_t r = 0; r < answers.size(); ++r) {
    const int early = answers[r]["early"];
    const int buckets = answers[r]["buckets"];
    if (const double worst = answers[r]["worst"]; worst > 1e-4)
      throw Wrong(
          fmt::format("DistributedDataParallel on two ranks: rank {}'s gradients are {:.3g} away "
                      "from the mean over both ranks' batches, relative to their size",
                      r, worst));
    if (early + 1 < buckets)
      throw Wrong(
          fmt::format("DistributedDataParallel on two ranks: {} of rank {}'s {} buckets "
                      "were launched while backward ran, expected all but the last: "
                      "its hook tells that a gradient is ready",
                      early, r, buckets));
  }
}

void grade(Grading& grading, const LearnersCode& code) {
  Sink* const sink = code.instead_of(&make_accumulate_grad);
  grading.check("gradients are added up, in place", [=] { check_sum(sink); });
  grading.check("no gradient is shared with another leaf", [=] { check_own(sink); });
  grading.check("hooks run once each, in order, when the gradient is complete",
                [=] { check_hooks(sink); });
  grading.check("hooks that remove and add hooks", [=] { check_changing_hooks(sink); });
  grading.check("a hook that throws ends backward", [=] { check_throwing_hook(sink); });
  grading.check("two ranks: buckets travel while backward runs, and average",
                [=] { check_data_parallel(sink); });
}

}  // namespace
}  // namespace hook_exercise

const Exercise exercises::kHook = {
    .name = "gradient-ready hook",
    .source = "autograd/accumulate_grad.cpp",
    .blanks = {"void accumulate(", "void run_hooks("},
    .task =
        R"(
The engine calls a leaf's sink once in a backward, when all parts of its gradient have been added up. accumulate()
adds that to leaf.grad; run_hooks() then calls its hooks, such as those of DistributedDataParallel, whose buckets
leave while backward goes on.

leaf.autograd_meta() has `grad`, undefined before the first backward, `post_accumulate_hooks` by number and in the
order of registration, and `next_hook`, the number of the next. grad is added to in place (kernels::add(sum, a, b),
after begin_adding(leaf)), as others look at its memory; where that returns true grad is zeros, and kernels::copy(to, g)
is enough. g may be held by others, too: the leaf can keep it only where g.is_sole_owner() and g.is_contiguous(), else
copy_of(g, {dtype, device}).

A hook may remove itself and others, which then do not run, and add new ones, which run from the next pass on.)",
    .grade = hook_exercise::grade,
};

}  // namespace ringgrad::program
