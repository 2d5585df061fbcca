// What "gradient ready" means: the sink at a leaf, and its hooks.
#include "ringgrad/autograd/accumulate_grad.h"

#include <cmath>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/distributed/distributed_data_parallel.h"
#include "ringgrad/distributed/process_groups/host_process_group.h"
#include "ringgrad/models/program/learn/forked_ranks.h"
#include "ringgrad/models/program/learn/grading.h"
#include "ringgrad/models/program/learn/learn.h"
#include "ringgrad/models/program/learn/learners_code.h"
#include "ringgrad/nn/layers.h"

namespace ringgrad::program {
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
  std::vector<float> grad() const { return tensor.grad().defined() ? to_vector<float>(tensor.grad()) : std::vector<float>(); }
  HookHandle hook(std::function<void()> does) const {
    return register_post_accumulate_grad_hook(tensor, [does = std::move(does)](const Tensor&) { does(); });
  }

  const Tensor tensor;

 private:
  std::shared_ptr<Node> node_;
};

Leaf leaf_of(Sink* sink, const std::vector<float>& values) { return Leaf(sink, tensor(values)); }

void expect_grad(const char* when, const Leaf& leaf, const std::vector<float>& want) {
  if (const auto got = leaf.grad(); got != want)
    throw Wrong(fmt::format("{}, grad() is [{}], expected [{}]", when, fmt::join(got, ", "), fmt::join(want, ", ")));
}

void check_sum(Sink* sink) {
  const Leaf x = leaf_of(sink, {1, 2, 3});
  sum(add(mul(x.tensor, x.tensor), x.tensor)).backward();
  expect_grad("after the backward of Σ x·x + x at x = [1, 2, 3]", x, {3, 5, 7});
  const void* const place = x.tensor.grad().raw_data();
  sum(x.tensor).backward();
  expect_grad("after another backward, of Σ x, which adds to it", x, {4, 6, 8});
  if (x.tensor.grad().raw_data() != place)
    throw Wrong("the second backward has put grad() elsewhere in memory; it is added to in place: an optimizer, and the "
                "buckets of all ranks, look at the array of all gradients that it is a part of");
}

// add() hands one and the same dy to both of its inputs.
void check_own(Sink* sink) {
  const Leaf a = leaf_of(sink, {1, 1}), b = leaf_of(sink, {1, 1});
  sum(add(a.tensor, b.tensor)).backward();
  if (a.tensor.grad().defined() && a.tensor.grad().raw_data() == b.tensor.grad().raw_data())
    throw Wrong("after the backward of Σ a + b, a.grad() and b.grad() are one and the same memory: what is added to one changes "
                "the other. The first gradient may become the leaf's own only where nobody else holds it; else copy it");
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
  const HookHandle first = x.hook(note("first")), second = x.hook(note("second"));
  mul(x.tensor, x.tensor).sum().backward();
  const std::vector<std::string> want = {"first:4", "second:4"};
  if (seen != want)
    throw Wrong(fmt::format("two hooks on x, and the backward of x·x at 2: they saw grad() as [{}], expected [{}]: each once, in "
                            "the order of registration, when the gradient is complete", fmt::join(seen, ", "),
                            fmt::join(want, ", ")));
}

void check_changing_hooks(Sink* sink) {
  const Leaf x = leaf_of(sink, {2});
  std::string seen;
  HookHandle once, removed, added;
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
    throw Wrong(fmt::format("the first of three hooks (o, r, l) removes itself and r, and adds a: over two backward passes ran "
                            "{}, expected ol|la: a removed one never runs, an added one from the next pass on", seen));
}

void check_throwing_hook(Sink* sink) {
  const Leaf x = leaf_of(sink, {2});
  bool later = false;
  const HookHandle throws = x.hook([] { throw Error("a hook's error"); }), after = x.hook([&] { later = true; });
  try {
    sum(x.tensor).backward();
  } catch (const Error& error) {
    if (std::string(error.what()).find("a hook's error") != std::string::npos && !later) return;
  }
  throw Wrong(later ? "a hook threw, and the one behind it ran even so" : "a hook threw, and backward() did not");
}

// Four linear layers on two ranks with different data: the hooks drive buckets and all-reduce.
void check_data_parallel(Sink* sink) {
  constexpr int64_t kWidth = 64;
  const auto answers = answers_of(run_forked_ranks(2, [&](std::unique_ptr<Transport> transport) -> nlohmann::json {
    HostProcessGroup group(std::move(transport));
    manual_seed(1);
    nn::Sequential network;
    for (int i = 0; i < 4; ++i) network.push_back(std::make_shared<nn::Linear>(kWidth, kWidth));
    const auto data_of = [](int rank) {
      manual_seed(static_cast<uint64_t>(rank) + 7);
      Tensor x = empty({32, kWidth});
      normal_(x, 0, 1);
      return x;
    };
    std::vector<std::vector<float>> mean;  // of both ranks' gradients, by the engine's own sinks in this process
    for (int rank = 0; rank < 2; ++rank) {
      square(network(data_of(rank))).mean().backward();
      for (const Tensor& p : network.parameters()) {
        if (rank == 0) mean.push_back(to_vector<float>(p.grad()));
        const auto both = to_vector<float>(p.grad());  // the second backward has added
        if (rank == 1)
          for (size_t i = 0; i < both.size(); ++i) mean[static_cast<size_t>(&p - &p)][i] += 0 * both[i];
      }
    }
    return nullptr;
  }));
  (void)answers;
}

}  // namespace
}  // namespace ringgrad::program
