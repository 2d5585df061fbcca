// Compares random data-parallel programs with one process.
//
//   random_ddp [SECONDS [FIRST_SEED]]   as many as fit; by default 10 seconds from another seed
//                                       each time
//   random_ddp --seed N                 one program; a failure prints this command
//
// A program trains a random network (random_network.h) for some steps on 2 to 4 ranks, which are
// threads. Batches are uneven, and some have no samples. There are passes under no_sync(), weights
// in samples, in labelled rows or none, buckets of all sizes, one or two wrappers, compressing
// hooks, loss scales, clipping, and all optimizers. In every step one process has the same weights
// and all ranks' batches, and computes the expected gradients, buffers and weights.
// Every fifth program is trained with both stages of ZeRO, and must have the bits of the same
// program without it.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

#include "ringgrad/distributed/sharded_optimizer.h"
#include "ringgrad/distributed/sync_batch_norm.h"
#include "ringgrad/nn/optim/clip_grad.h"
#include "ringgrad/nn/optim/mixed_precision.h"
#include "ringgrad/tests/random/one_process.h"
#include "ringgrad/tests/random/random_shards.h"

using namespace ringgrad;
using namespace ringgrad::test;

namespace {

// Returns the elements' bytes, so that integers beyond float64's exact range are not rounded.
std::vector<std::string> bits_of(const std::vector<Tensor>& tensors) {
  std::vector<std::string> all;
  for (const Tensor& x : tensors) {
    const Tensor flat = as_contiguous(x);
    all.emplace_back(static_cast<const char*>(flat.raw_data()), flat.nbytes());
  }
  return all;
}

// Squares of small float16 gradients are 0, and a step of 1e-8 for a divisor diverges, as in
// PyTorch.
constexpr double kEps = 1e-3;

std::unique_ptr<optim::Optimizer> make_optimizer(int kind, const nn::NamedTensors& parameters) {
  switch (kind) {
    case 0: return std::make_unique<optim::SGD>(parameters, optim::SGDOptions{.lr = 0.1});
    case 1:
      return std::make_unique<optim::SGD>(
          parameters, optim::SGDOptions{.lr = 0.05, .momentum = 0.9, .nesterov = true});
    case 2:
      return std::make_unique<optim::Adam>(
          parameters, optim::AdamOptions{.lr = 0.01, .eps = kEps, .weight_decay = 0.01});
    case 3:
      return std::make_unique<optim::AdamW>(parameters,
                                            optim::AdamWOptions{.lr = 0.01, .eps = kEps});
    case 4:
      return std::make_unique<optim::RMSprop>(
          parameters, optim::RMSpropOptions{.lr = 0.01, .eps = kEps, .centered = true});
    case 5: return std::make_unique<optim::Adagrad>(parameters, optim::AdagradOptions{.lr = 0.05});
    default:
      return std::make_unique<optim::Adadelta>(parameters, optim::AdadeltaOptions{.lr = 0.5});
  }
}

// Values that ranks show each other between barriers.
struct Shown {
  std::vector<Values> gradients;
  std::vector<std::vector<std::string>> state;
};

// Holds a rank's network in one wrapper or in two.
struct Wrapped {
  Wrapped(const Plan& plan, RandomNetwork& net, ProcessGroup& group) : net(net) {
    const auto wrap = [&](nn::Module& module) {
      wrappers.push_back(std::make_unique<DistributedDataParallel>(module, group, plan.options));
    };
    if (plan.two_wrappers && trains(net.body())) {
      wrap(net.body());
      wrap(net.head());
    } else {
      wrap(net);
    }
  }
  static bool trains(const nn::Module& module) {
    for (const Tensor& p : module.parameters())
      if (p.requires_grad()) return true;
    return false;
  }
  Tensor operator()(const Tensor& x) {
    Tensor y = x;
    for (const auto& wrapper : wrappers) y = (*wrapper)(y);
    return y;
  }

  RandomNetwork& net;
  std::vector<std::unique_ptr<DistributedDataParallel>> wrappers;
};

void backward_passes(const Plan& plan, Wrapped& model, int step, int rank,
                     optim::GradScaler* scaler) {
  if (plan.weighting == Weighting::Given)
    for (const auto& wrapper : model.wrappers) wrapper->set_weight(plan.weight(step, rank));
  for (int pass = 0; pass < plan.passes; ++pass) {
    const Batch3 batch = plan.batch(step, pass, rank, plan.network.dtype);
    const bool last = pass + 1 == plan.passes;
    std::vector<std::unique_ptr<DistributedDataParallel::NoSync>> guards;
    for (const auto& wrapper : model.wrappers)
      if (!last) guards.emplace_back(new DistributedDataParallel::NoSync(*wrapper));
    if (batch.target.numel() > 0) {
      const Tensor loss = plan.loss(model(batch.x), batch, step, rank);
      (scaler != nullptr ? scaler->scale(loss) : loss).backward();
    } else if (last) {
      for (size_t w = model.wrappers.size(); w-- > 0;)
        must(model.wrappers[w]->shadow_step(), "others have data");
    }
  }
}

void compare_gradients(const Values& got, const Expected& expected, const nn::NamedTensors& names,
                       int step) {
  for (size_t p = 0; p < got.size(); ++p)
    for (size_t i = 0; i < got[p].size(); ++i)
      must(std::abs(got[p][i] - expected.gradients[p][i]) <= expected.bounds[p][i],
           str("step ", step, ": the gradient of ", names[p].first, " at ", i, " is ", got[p][i],
               ", one process has ", expected.gradients[p][i], ", which may differ by ",
               expected.bounds[p][i]));
}

void compare_values(const std::vector<Tensor>& got, const std::vector<Tensor>& want,
                    double roundings, const std::string& what) {
  for (size_t b = 0; b < got.size(); ++b) {
    if (!is_floating(got[b].dtype())) {
      must(bits_of({got[b]}) == bits_of({want[b]}),
           str(what, " ", b, " is ", got[b], ", one process has ", want[b]));
      continue;
    }
    const auto g = to_vector<double>(got[b]);
    const auto w = to_vector<double>(want[b]);
    const double eps = epsilon_of(got[b].dtype());
    for (size_t i = 0; i < g.size(); ++i)
      must(std::abs(g[i] - w[i]) <= roundings * eps * (std::abs(w[i]) + 0.1),
           str(what, " ", b, " at ", i, " is ", g[i], ", one process has ", w[i]));
  }
}

// Computes the update with an optimizer of one process and the same gradients.
struct Shadow {
  Shadow(const Plan& plan)
      : net(plan.make_network()),
        optimizer(make_optimizer(plan.optimizer, net->named_parameters())) {}
  void step(const Plan& plan, const nn::Module& of) {
    optimizer->zero_grad();
    const auto own = net->parameters();
    const auto given = of.parameters();
    for (size_t p = 0; p < own.size(); ++p)
      if (own[p].requires_grad()) copy_(own[p].grad(), given[p].grad());
    if (plan.clip > 0) optim::clip_grad_norm_(own, plan.clip);
    optimizer->step();
  }
  std::unique_ptr<RandomNetwork> net;
  std::unique_ptr<optim::Optimizer> optimizer;
};

void copy_state(const nn::Module& from, const nn::Module& to) {
  const auto source = from.state_dict();
  const auto target = to.state_dict();
  for (size_t i = 0; i < source.size(); ++i) copy_(target[i].second, source[i].second);
}

void train(const Plan& plan, ProcessGroup& group, Shown& shown) {
  const int rank = group.rank();
  const auto net = plan.make_network();
  const auto alone = plan.make_network();
  Shadow shadow(plan);
  if (plan.sync_batch_norm) convert_sync_batchnorm(*net, group);
  Wrapped model(plan, *net, group);
  const auto optimizer = make_optimizer(plan.optimizer, net->named_parameters());
  optim::GradScaler scaler({}, {.initial_scale = kScale});
  for (int step = 0; step < plan.steps; ++step) {
    for (RandomNetwork* each : {net.get(), alone.get()}) each->use_branch(plan.uses_branch(step));
    copy_state(*net, *alone);
    Expected expected = expected_of(plan, *alone, step);
    optimizer->zero_grad();
    backward_passes(plan, model, step, rank, plan.scaled ? &scaler : nullptr);
    const bool skipped = model.wrappers.back()->skipped();
    must(skipped == (expected.weight == 0), str("step ", step, ": skipped is ", skipped));
    if (plan.scaled) scaler.unscale(*optimizer);
    compare_gradients(gradients_of(*net), expected, net->named_parameters(), step);
    compare_values(net->buffers(), expected.buffers, plan.sync_batch_norm ? 1e4 : 16,
                   str("step ", step, ": buffer"));
    shadow.step(plan, *net);
    if (plan.clip > 0) optim::clip_grad_norm_(net->parameters(), plan.clip);
    plan.scaled ? scaler.step(*optimizer) : optimizer->step();
    if (plan.scaled) scaler.update();
    compare_values(net->parameters(), shadow.net->parameters(), plan.clip > 0 ? 16 : 1,
                   str("step ", step, ": after the optimizer, parameter"));
    shown.gradients[rank] = gradients_of(*net);
    shown.state[rank] = bits_of([&] {
      std::vector<Tensor> all;
      for (const auto& [name, x] : net->state_dict()) all.push_back(x);
      return all;
    }());
    group.barrier().wait();
    must(shown.gradients[rank] == shown.gradients[0],
         str("step ", step, ": ranks have other gradients"));
    must(shown.state[rank] == shown.state[0],
         str("step ", step, ": ranks have other weights or buffers"));
    group.barrier().wait();
    copy_state(*net, *shadow.net);
  }
  for (const auto& wrapper : model.wrappers) wrapper->check_identical();
}

// Returns the first cause: a wrong value takes precedence over errors about a rank that has ended.
std::string run_ddp(uint64_t seed) {
  const Plan plan(seed);
  Shown shown{std::vector<Values>(plan.ranks), std::vector<std::vector<std::string>>(plan.ranks)};
  const auto errors = errors_of_ranks(host_groups(plan.ranks, plan.channel),
                                      [&](ProcessGroup& group) { train(plan, group, shown); });
  std::string first;
  for (size_t r = 0; r < errors.size(); ++r)
    if (!errors[r].empty() && (first.empty() || errors[r].starts_with("step")))
      first = str("rank ", r, ": ", errors[r]);
  return first.empty() ? "" : str(first, "\n  ", plan.text());
}

// Returns the weights, buffers and optimizers' state after each step.
std::vector<std::vector<std::string>> train_divided(const Plan& plan, ProcessGroup& group) {
  std::vector<std::vector<std::string>> after;
  const auto net = plan.make_network();
  if (plan.sync_batch_norm) convert_sync_batchnorm(*net, group);
  Wrapped model(plan, *net, group);
  std::vector<std::unique_ptr<optim::Optimizer>> optimizers;
  for (const auto& wrapper : model.wrappers) {
    optimizers.push_back(make_optimizer(plan.optimizer, wrapper->named_parameters()));
    if (plan.options.zero > 0) optimizers.back()->share(wrapper->step_share());
  }
  optim::GradScaler scaler({}, {.initial_scale = kScale});
  for (int step = 0; step < plan.steps; ++step) {
    net->use_branch(plan.uses_branch(step));
    for (const auto& optimizer : optimizers) optimizer->zero_grad();
    backward_passes(plan, model, step, group.rank(), plan.scaled ? &scaler : nullptr);
    for (const auto& optimizer : optimizers)
      if (plan.scaled) scaler.unscale(*optimizer);
    if (plan.clip > 0) optim::clip_grad_norm_(net->parameters(), plan.clip);
    for (const auto& optimizer : optimizers)
      plan.scaled ? scaler.step(*optimizer) : optimizer->step();
    if (plan.scaled) scaler.update();
    std::vector<Tensor> all;
    nn::NamedTensors state = net->state_dict();
    for (const auto& optimizer : optimizers)
      for (auto& entry : optimizer->state_dict()) state.push_back(std::move(entry));
    std::stable_sort(state.begin(), state.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [name, x] : state) all.push_back(x);
    after.push_back(bits_of(all));
  }
  for (const auto& wrapper : model.wrappers) wrapper->check_identical();
  return after;
}

// Compares both stages with plain training. The norm of divided gradients is added up in another
// order, so programs that clip do not.
std::string run_divided(uint64_t seed) {
  Plan plan(seed);
  plan.options.comm_hook = {};
  plan.clip = 0;
  std::vector<std::vector<std::vector<std::string>>> plain(static_cast<size_t>(plan.ranks));
  for (const int zero : {0, 1, 2}) {
    plan.options.zero = zero;
    const auto errors =
        errors_of_ranks(host_groups(plan.ranks, plan.channel), [&](ProcessGroup& group) {
          const auto states = train_divided(plan, group);
          auto& expected = plain[static_cast<size_t>(group.rank())];
          if (zero == 0) expected = states;
          for (size_t step = 0; step < states.size(); ++step)
            must(states[step] == expected[step],
                 str("step ", step, ": other bits with zero = ", zero, " than without"));
        });
    std::string first;
    for (const std::string& error : errors)
      if (!error.empty() && (first.empty() || error.starts_with("step"))) first = error;
    if (!first.empty()) return str("zero = ", zero, ": ", first, "\n  ", plan.text());
  }
  return "";
}

std::string run_program(uint64_t seed) {
  try {
    if (seed % 5 == 2) return run_divided(seed);
    if (seed % 5 == 3) return run_shards(seed);
    if (seed % 5 == 4) return run_data_parallel(seed);
    return run_ddp(seed);
  } catch (const std::exception& error) {
    return error.what();
  }
}

volatile unsigned long long seed_under_way;  // names a program that does not end
void tell_seed(int) {
  char text[96];
  const int n = std::snprintf(text, sizeof text, "HANGS %llu: random_ddp --seed %llu\n",
                              seed_under_way, seed_under_way);
  if (write(STDOUT_FILENO, text, static_cast<size_t>(n)) > 0) _exit(1);
  _exit(1);
}

bool check(uint64_t seed) {
  seed_under_way = seed;
  alarm(300);
  const std::string wrong = run_program(seed);
  if (!wrong.empty())
    std::printf("WRONG %llu: random_ddp --seed %llu\n  %s\n", static_cast<unsigned long long>(seed),
                static_cast<unsigned long long>(seed), wrong.c_str());
  std::fflush(stdout);
  return wrong.empty();
}

}  // namespace

int main(int count, char** arguments) {
  setenv("RINGGRAD_CPU_DEVICES", "3", 1);  // for DataParallel; read at the first use
  setenv("OMP_NUM_THREADS", "1", 0);
  std::signal(SIGALRM, tell_seed);
  if (count == 3 && std::strcmp(arguments[1], "--seed") == 0)
    return check(std::stoull(arguments[2])) ? 0 : 1;
  const double seconds = count > 1 ? std::atof(arguments[1]) : 10;
  const uint64_t first = count > 2 ? std::stoull(arguments[2]) : std::random_device()();
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  uint64_t seed = first;
  int wrong = 0;
  for (; std::chrono::steady_clock::now() < end; ++seed) wrong += check(seed) ? 0 : 1;
  std::printf("%llu programs from seed %llu on, %d wrong\n",
              static_cast<unsigned long long>(seed - first), static_cast<unsigned long long>(first),
              wrong);
  return wrong > 0;
}
