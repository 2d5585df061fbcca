// `ringgrad bench ops`: the cost of an operation without arithmetic, on one thread. A chain of
// 1,000 operations on one float measures the tape itself: allocation, node, closure, engine.
#include <chrono>
#include <functional>

#include <nlohmann/json.hpp>

#include "ringgrad/autograd/engine.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/program/bench/bench.h"
#include "ringgrad/program/command.h"
#include "ringgrad/program/console/console.h"
#include "ringgrad/program/console/exit_code.h"

namespace ringgrad::program {
namespace {

struct BenchOpsOptions {
  int repetitions = 300;
};

constexpr int kChain = 1000;

double nanoseconds_per_op(const std::function<void()>& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  const std::chrono::duration<double, std::nano> elapsed = std::chrono::steady_clock::now() - start;
  return elapsed.count() / kChain;
}

int bench_ops(const BenchOpsOptions& options) {
  const Tensor b = ones({1});
  const Tensor leaf = zeros({1}).set_requires_grad();
  using Step = Tensor (*)(const Tensor&, const Tensor&);
  struct Operation {
    const char* name;
    Step step;
  };
  const Operation operations[] = {
      {"add", [](const Tensor& x, const Tensor& y) { return add(x, y); }},
      {"mul", [](const Tensor& x, const Tensor& y) { return mul(x, y); }},
      {"relu", [](const Tensor& x, const Tensor&) { return relu(x); }},
  };
  nlohmann::json report = {{"chain", kChain}, {"repetitions", options.repetitions}};
  result(
      "chain of {} operations on one float, one thread; median of {} (quartiles), ns per operation",
      kChain, options.repetitions);
  result("{:<8}{:>28}{:>28}{:>28}", "", "forward, no tape", "forward", "forward + backward");
  for (const Operation& operation : operations) {
    const auto chain = [&] {
      Tensor x = leaf;
      for (int i = 0; i < kChain; ++i) x = operation.step(x, b);
      return x;
    };
    std::vector<double> untracked;
    std::vector<double> forward;
    std::vector<double> both;
    for (int repetition = -5; repetition < options.repetitions; ++repetition) {  // five to warm up
      const double plain = nanoseconds_per_op([&] {
        NoGradGuard guard;
        chain();
      });
      Tensor end;
      const double record = nanoseconds_per_op([&] { end = chain(); });
      const double replay = nanoseconds_per_op([&] {
        end.backward();
        end = Tensor();
      });
      if (repetition < 0) continue;
      untracked.push_back(plain);
      forward.push_back(record);
      both.push_back(record + replay);
    }
    std::string row = fmt::format("{:<8}", operation.name);
    const auto add_cell = [&](const char* key, const std::vector<double>& samples) {
      row += fmt::format("{:>28}", fmt::format("{:.0f} ({:.0f}–{:.0f})", median(samples),
                                               quantile(samples, 0.25), quantile(samples, 0.75)));
      report[fmt::format("{}_{}_ns", operation.name, key)] = median(samples);
    };
    add_cell("untracked", untracked);
    add_cell("forward", forward);
    add_cell("forward_backward", both);
    result(row);
  }
  print_json(report);
  return kOk;
}

void add_options(CLI::App* app, BenchOpsOptions& o) {
  app->add_option("--repetitions", o.repetitions, "the median of so many")->check(kPositive);
}

const Command kBenchOps(193, "bench ops", "What an operation on the tape costs, without arithmetic",
                        bench_ops, add_options);

}  // namespace
}  // namespace ringgrad::program
