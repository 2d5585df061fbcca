#include "ringgrad/nn/recompute.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <mutex>
#include <string_view>

#include "ringgrad/autograd/differentiable.h"
#include "ringgrad/autograd/thread_modes.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/device/allocator.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/generator_scope.h"
#include "ringgrad/nn/sequential.h"

namespace ringgrad::nn {
namespace {

using Closure = std::function<Gradients(std::span<const Tensor>)>;

// Observes its thread's operations while it lives.
class Watching : public TapeObserver {
 public:
  Watching(const Watching&) = delete;

 protected:
  Watching() : before_(std::exchange(tape_observer, this)) {}
  ~Watching() override { tape_observer = before_; }
  TapeObserver* const before_;
};

// Collects what the second run records.
class SecondRun : public Watching {
 public:
  // `kept` has the results that the first run computed once.
  explicit SecondRun(std::span<const std::vector<SavedTensor>> kept) : kept_(kept) {}

  bool runs_again() const override { return true; }
  void recorded(Node& node, std::span<const Tensor>, std::span<const Tensor>) override {
    names.push_back(node.name);
    closures.push_back(std::exchange(node.backward, nullptr));
  }
  std::vector<Tensor> once(const Once&) override {
    CHECK(next_ < kept_.size(),
          "checkpoint: the second run has done more than the first, "
          "expected a function that does the same both times");
    std::vector<Tensor> values;
    for (const SavedTensor& value : kept_[next_++]) values.push_back(value.get());
    return values;
  }

  std::vector<std::string_view> names;
  std::vector<Closure> closures;

 private:
  const std::span<const std::vector<SavedTensor>> kept_;
  size_t next_ = 0;
};

// A checkpointed part of the graph, which its nodes share.
class Part {
 public:
  Part(const std::vector<Tensor>& inputs, detail::RecomputeScope::Run run) : run_(std::move(run)) {
    for (const Tensor& input : inputs) {
      inputs_.push_back(save(input, kSavedConstant));
      wants_grad_.push_back(wants_grad(input));
    }
    const auto first = std::ranges::find_if(inputs, &Tensor::defined);
    const Device device = first == inputs.end() ? Device() : first->device();
    const Tensor& state = default_generator(device).state();
    random_state_ = copy_of(state, {state.dtype(), state.device()});
  }

  // Replaces the closure of an operation that the first run has recorded.
  void replace(const std::shared_ptr<Part>& self, Node& node, std::span<const Tensor> inputs) {
    for (const Tensor& input : inputs)
      if (input && input.is_leaf() && input.requires_grad())
        leaves_.push_back(save(input, kSavedConstant));
    names_.push_back(node.name);
    node.backward = [part = self, operation = names_.size() - 1](std::span<const Tensor> dy) {
      return part->backward(operation, dy);
    };
  }
  void keep(const std::vector<Tensor>& values) {
    kept_.emplace_back();
    for (const Tensor& value : values) kept_.back().push_back(save(value, kSavedConstant));
  }

 private:
  Gradients backward(size_t operation, std::span<const Tensor> dy) {
    Closure closure;
    {
      std::lock_guard lock(mutex_);
      if (closures_.empty() || !closures_[operation]) run_again();
      closure = std::exchange(closures_[operation], nullptr);
    }
    return closure(dy);
  }
  void run_again();
  void check_same(const std::vector<std::string_view>& names) const;

  std::vector<SavedTensor> inputs_;
  std::vector<bool> wants_grad_;  // for each input
  const detail::RecomputeScope::Run run_;
  const ThreadModes modes_;
  Tensor random_state_;
  // From the first run: its operations, the leaves that they read, and the results computed once.
  std::vector<std::string_view> names_;
  std::vector<SavedTensor> leaves_;
  std::vector<std::vector<SavedTensor>> kept_;

  std::mutex mutex_;  // a part on several devices has a thread for each
  // For each operation, the closure from the second run, until it has run.
  std::vector<Closure> closures_;
};

void Part::run_again() {
  for (const SavedTensor& leaf : leaves_) (void)leaf.get();
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    inputs.push_back(inputs_[i] ? inputs_[i].get().detach() : Tensor());
    if (wants_grad_[i]) inputs[i].set_requires_grad();
  }
  Generator random(random_state_);
  const ThreadModes::Scope modes(modes_);
  const GeneratorScope numbers(random);
  SecondRun second(kept_);
  run_(inputs);
  check_same(second.names);
  closures_ = std::move(second.closures);
}

void Part::check_same(const std::vector<std::string_view>& names) const {
  const auto name = [](const std::vector<std::string_view>& all, size_t i) {
    return i < all.size() ? all[i] : "nothing";
  };
  for (size_t i = 0; i < std::max(names_.size(), names.size()); ++i)
    CHECK(name(names_, i) == name(names, i), "checkpoint: the second run recorded ", name(names, i),
          " where the first recorded ", name(names_, i),
          ", expected a function that does the same both times");
}

// Observes the first run.
class FirstRun : public Watching {
 public:
  explicit FirstRun(std::shared_ptr<Part> part) : part_(std::move(part)) {}

  bool runs_again() const override { return before_ && before_->runs_again(); }
  void recorded(Node& node, std::span<const Tensor> inputs,
                std::span<const Tensor> outputs) override {
    part_->replace(part_, node, inputs);
    if (before_) before_->recorded(node, inputs, outputs);
  }
  std::vector<Tensor> once(const Once& f) override {
    const std::vector<Tensor> values = before_ ? before_->once(f) : f();
    part_->keep(values);
    return values;
  }

 private:
  const std::shared_ptr<Part> part_;
};

}  // namespace

detail::RecomputeScope::RecomputeScope(const std::vector<Tensor>& inputs, Run again) {
  if (!grad_enabled()) return;
  first_run_ = std::make_unique<FirstRun>(std::make_shared<Part>(inputs, std::move(again)));
}
detail::RecomputeScope::~RecomputeScope() = default;

// Modules [begin, end) of a chain, with the time that their second run takes and the memory that it
// saves. Replicas measure as well, each on its own thread.
struct Recomputation::Run {
  const size_t begin;
  const size_t end;
  std::atomic<bool> recomputed = true;
  std::atomic<double> seconds = 0;
  std::atomic<int64_t> bytes = 0;

  Run(size_t begin, size_t end) : begin(begin), end(end) {}

  Tensor forward(Sequential& chain, Tensor x) const {
    for (size_t i = begin; i < end; ++i) x = chain[i](x);
    return x;
  }
  Tensor measured(Sequential& chain, const Tensor& x) {
    if (seconds > 0 || !tape_observer->runs_again()) return forward(chain, x);
    synchronize(current_stream(x.device()));
    const auto start = std::chrono::steady_clock::now();
    const int64_t before = memory_stats(x.device()).live_bytes;
    Tensor y = forward(chain, x);
    synchronize(current_stream(x.device()));
    // The output is the next run's input, so it is kept in any case.
    bytes =
        memory_stats(x.device()).live_bytes - before - static_cast<int64_t>(y.storage()->nbytes());
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return y;
  }
};

Tensor Recomputation::call(const std::vector<std::shared_ptr<Run>>& runs, Module& chain, Tensor x) {
  auto& modules = dynamic_cast<Sequential&>(chain);
  for (const std::shared_ptr<Run>& run : runs)
    x = !run->recomputed || !grad_enabled()
            ? run->forward(modules, x)
            : checkpoint([run, &modules](const Tensor& in) { return run->measured(modules, in); },
                         x);
  return x;
}

void Recomputation::find_chains(Module& module) {
  const auto children = module.children();
  if (dynamic_cast<Sequential*>(&module) == nullptr || children.size() < 2) {
    for (Module* child : children) find_chains(*child);
    return;
  }
  const size_t length =
      std::max<size_t>(1, static_cast<size_t>(std::sqrt(static_cast<double>(children.size()) / 2)));
  std::vector<std::shared_ptr<Run>> runs;
  for (size_t begin = 0; begin < children.size(); begin += length)
    runs.push_back(std::make_shared<Run>(begin, std::min(begin + length, children.size())));
  runs_.insert(runs_.end(), runs.begin(), runs.end());
  chains_.push_back(&module);
  module.call_by([runs](Module& own, const Tensor& x) { return call(runs, own, x); });
}

Recomputation::Recomputation(Module& network) {
  find_chains(network);
  CHECK(!chains_.empty(), "recompute: ", network.type_name(),
        " has nothing to compute again: expected a Sequential of more than one module");
}

Recomputation::~Recomputation() {
  for (Module* chain : chains_) chain->call_by(nullptr);
}

int Recomputation::size() const {
  return static_cast<int>(std::count_if(runs_.begin(), runs_.end(),
                                        [](const auto& run) -> bool { return run->recomputed; }));
}

void Recomputation::fit(int64_t bytes, Device device) {
  const int64_t peak = memory_stats(device).peak_bytes;
  CHECK(peak <= bytes, "recompute: a step needs ", static_cast<double>(peak) / 1e6,
        " MB with everything computed again, expected at most ", static_cast<double>(bytes) / 1e6,
        "; use a smaller batch, or more ranks");
  // A knapsack problem: the remaining memory, in kParts parts, goes to the runs whose recomputation
  // takes longest. best[c] is the most seconds that c parts save, and the runs to keep for that.
  constexpr int64_t kParts = 1000;
  const int64_t part = std::max<int64_t>(1, (bytes - peak) / kParts);
  struct Choice {
    double seconds = 0;
    std::vector<std::shared_ptr<Run>> kept;
  };
  std::vector<Choice> best(kParts + 1);
  for (const std::shared_ptr<Run>& run : runs_) {
    const int64_t parts = (std::max<int64_t>(0, run->bytes) + part - 1) / part;
    for (int64_t c = kParts; c >= parts; --c) {
      const Choice& without = best[c - parts];
      if (without.seconds + run->seconds <= best[c].seconds) continue;
      Choice with = without;
      with.seconds += run->seconds;
      with.kept.push_back(run);
      best[c] = std::move(with);
    }
  }
  for (const std::shared_ptr<Run>& run : best[kParts].kept) run->recomputed = false;
}

}  // namespace ringgrad::nn
