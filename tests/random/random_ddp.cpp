// Random data-parallel programs against one process.
//
//   random_ddp [SECONDS [FIRST_SEED]]     as many as fit; by default 10 seconds from another seed each time
//   random_ddp --seed N                   one program: what failed prints this command
//
// A program is a random network (random_network.h) trained for some steps on 2 to 4 ranks, which are threads: uneven
// batches, some of no samples, passes under no_sync(), weights in samples, in labelled rows or none, buckets of all
// sizes, one or two wrappers, compressing hooks, loss scales, clipping, all optimizers. In every step one process has
// the same weights and all ranks' batches, and computes what their gradients, buffers and weights should be.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

#include "ringgrad/distributed/sync_batch_norm.h"
#include "ringgrad/nn/optim/mixed_precision.h"
#include "ringgrad/tests/ddp_ranks.h"
#include "ringgrad/tests/random/random_network.h"
#include "ringgrad/tests/random/random_shards.h"

using namespace ringgrad;
using namespace ringgrad::test;

namespace {

enum class Hook { None, BFloat16, Float16 };

// What all ranks of a program agree on.
struct Plan {
  uint64_t seed;
  int ranks;
  const char* channel;
  NetworkOptions network;
  bool sync_batch_norm;
  Weighting weighting;
  Hook hook;
  int passes, steps, optimizer;
  bool two_wrappers, scaled, planned;
  double clip;
  DistributedDataParallelOptions options;

  explicit Plan(uint64_t seed);
  int64_t samples(int step, int pass, int rank) const;
  bool uses_branch(int step) const { return Choices(seed, 3000 + static_cast<uint64_t>(step)).chance(60); }
  Batch3 batch(int step, int pass, int rank, DType dtype) const {
    return random_batch(seed, (step * 8 + pass) * 8 + rank, samples(step, pass, rank), dtype,
                        weighting == Weighting::Given);
  }
  std::unique_ptr<RandomNetwork> make_network() const {
    std::lock_guard lock(generator_mutex);
    return std::make_unique<RandomNetwork>(seed, network);
  }
  // How many rows of a rank's batches have a label.
  double labels(int step, int rank) const;
  double weight(int step, int rank) const;
  Tensor loss(const Tensor& y, const Batch3& batch, int step, int rank) const;
  std::string text() const;
};

Plan::Plan(uint64_t seed) : seed(seed) {
  Choices choices(seed);
  ranks = static_cast<int>(choices.between(2, 4));
  channel = choices.chance(70) ? "shm" : "tcp";
  network.dtype = choices.of<DType>(
      {DType::Float64, DType::Float64, DType::Float64, DType::Float32, DType::BFloat16, DType::Float16});
  network.batch_norm = choices.chance(60);
  sync_batch_norm = network.dtype == DType::Float64 && choices.chance(60);
  weighting = choices.of<Weighting>({Weighting::Samples, Weighting::Samples, Weighting::Ranks, Weighting::Given});
  hook = choices.of<Hook>({Hook::None, Hook::None, Hook::None, Hook::BFloat16, Hook::Float16});
  passes = static_cast<int>(choices.of<int64_t>({1, 1, 2, 3}));
  steps = static_cast<int>(choices.between(2, 4));
  optimizer = static_cast<int>(choices.below(7));
  two_wrappers = choices.chance(30);
  scaled = choices.chance(25);
  planned = choices.chance(20);
  clip = choices.chance(25) ? 0.5 : 0;
  const auto bytes = [&] { return choices.of<int64_t>({32, 64, 100, 256, 1000, 1 << 20}); };
  options.caps = {bytes(), bytes()};
  options.weighting = weighting;
  options.overlap = choices.chance(80);
  options.check_finite = !scaled;
  options.usual_weight = choices.of<double>({0, 0, 1, 3});
  if (hook == Hook::BFloat16) options.comm_hook = bf16_compress_hook();
  if (hook == Hook::Float16) options.comm_hook = fp16_compress_hook();
  if (planned)
    options.planner = [](const std::vector<ReadyGradient>& gradients) {
      return BucketCaps{gradients.front().bytes + 8, 200};
    };
}

int64_t Plan::samples(int step, int pass, int rank) const {
  Choices choices(seed, 1000 + static_cast<uint64_t>((step * 8 + pass) * 8 + rank));
  if (rank == step % ranks || sync_batch_norm) return choices.between(1, 5);  // somebody has some
  return choices.chance(20) ? 0 : choices.between(1, 5);
}

double Plan::labels(int step, int rank) const {
  double sum = 0;
  for (int pass = 0; pass < passes; ++pass) sum += loss_divisor(batch(step, pass, rank, DType::Float32).target);
  return sum;
}

// By the contract: the mean batch of the passes that the rank made, what it says, or 1.
double Plan::weight(int step, int rank) const {
  double samples_seen = 0;
  int made = 0;
  for (int pass = 0; pass < passes; ++pass) {
    samples_seen += static_cast<double>(samples(step, pass, rank));
    made += samples(step, pass, rank) > 0 ? 1 : 0;
  }
  if (made == 0) return 0;
  if (weighting == Weighting::Given) return labels(step, rank);
  return weighting == Weighting::Ranks ? 1 : samples_seen / made;
}

Tensor Plan::loss(const Tensor& y, const Batch3& batch, int step, int rank) const {
  if (weighting != Weighting::Given) return cross_entropy(y, batch.target);
  const double divisor = std::max(1.0, labels(step, rank));
  return cross_entropy(y, batch.target, {.reduction = Reduction::Sum}) * (1 / divisor);
}

std::string Plan::text() const {
  return str(ranks, " ranks ", channel, " ", network.dtype, sync_batch_norm ? " sync" : "", " weighting ",
             static_cast<int>(weighting), " hook ", static_cast<int>(hook), " passes ", passes, " steps ", steps,
             " optimizer ", optimizer, two_wrappers ? " two wrappers" : "", scaled ? " scaled" : "",
             planned ? " planned" : "", clip > 0 ? " clipped" : "", " caps ", options.caps.first_bytes, " ",
             options.caps.bytes, " usual ", options.usual_weight, ":", make_network()->description());
}

std::unique_ptr<optim::Optimizer> make_optimizer(int kind, const nn::NamedTensors& parameters) {
  switch (kind) {
    case 0: return std::make_unique<optim::SGD>(parameters, optim::SGDOptions{.lr = 0.1});
    case 1:
      return std::make_unique<optim::SGD>(parameters, optim::SGDOptions{.lr = 0.05, .momentum = 0.9, .nesterov = true});
    case 2: return std::make_unique<optim::Adam>(parameters, optim::AdamOptions{.lr = 0.01, .weight_decay = 0.01});
    case 3: return std::make_unique<optim::AdamW>(parameters, optim::AdamWOptions{.lr = 0.01});
    case 4: return std::make_unique<optim::RMSprop>(parameters, optim::RMSpropOptions{.lr = 0.01, .centered = true});
    case 5: return std::make_unique<optim::Adagrad>(parameters, optim::AdagradOptions{.lr = 0.05});
    default: return std::make_unique<optim::Adadelta>(parameters, optim::AdadeltaOptions{.lr = 0.5});
  }
}

using Values = std::vector<std::vector<double>>;  // of each parameter, or buffer

Values gradients_of(const nn::Module& module) {
  Values all;
  for (const Tensor& p : module.parameters())
    all.push_back(p.grad() ? to_vector<double>(p.grad()) : std::vector<double>(static_cast<size_t>(p.numel())));
  return all;
}

// Elements as they are, so that whole numbers beyond float64's are not rounded.
std::vector<std::string> bits_of(const std::vector<Tensor>& tensors) {
  std::vector<std::string> all;
  for (const Tensor& x : tensors) {
    const Tensor flat = as_contiguous(x);
    all.emplace_back(static_cast<const char*>(flat.raw_data()),
                     static_cast<size_t>(flat.numel()) * itemsize(flat.dtype()));
  }
  return all;
}

// What one process computes: the gradient of every parameter, what it may differ by, and the buffers afterwards.
struct Expected {
  Values gradients, bounds;
  std::vector<Tensor> buffers;
  double weight = 0;
};

// One process has the weights of before the step in `net`. Each rank's part of the loss is differentiated alone, of a
// graph over the whole batch where samples see each other (batch norm over all ranks) or do not (none), and of a graph
// of its own where a rank's samples see those of that rank.
class OneProcess {
 public:
  OneProcess(const Plan& plan, RandomNetwork& net) : plan_(plan), net_(net) {
    whole_ = plan.network.dtype == DType::Float64 && (plan.sync_batch_norm || !net.has_batch_norm());
  }

  Expected step(int step) {
    Expected expected;
    for (int r = 0; r < plan_.ranks; ++r) expected.weight += plan_.weight(step, r);
    const auto before = copies(net_.buffers());
    std::vector<Values> of_rank;
    std::vector<std::vector<Tensor>> buffers;
    if (whole_) of_rank = whole_batch(step, buffers);
    for (int r = 0; r < plan_.ranks && !whole_; ++r) {
      restore(before);
      of_rank.push_back(of_one_rank(step, r));
      buffers.push_back(copies(net_.buffers()));
    }
    combine(step, of_rank, expected);
    restore(before);
    expected.buffers = mean_buffers(step, buffers, before);
    return expected;
  }

 private:
  static std::vector<Tensor> copies(const std::vector<Tensor>& tensors) {
    std::vector<Tensor> all;
    for (const Tensor& x : tensors) all.push_back(clone(x));
    return all;
  }
  void restore(const std::vector<Tensor>& before) {
    const auto buffers = net_.buffers();
    for (size_t i = 0; i < buffers.size(); ++i) copy_(buffers[i], before[i]);
  }

  Values of_one_rank(int step, int rank) {
    net_.zero_grad();
    for (int pass = 0; pass < plan_.passes; ++pass) {
      const Batch3 batch = plan_.batch(step, pass, rank, plan_.network.dtype);
      if (batch.target.numel() > 0) plan_.loss(net_(batch.x), batch, step, rank).backward();
    }
    return gradients_of(net_);
  }

  // The gradients of each rank's loss; what all have together passes through the network at once.
  std::vector<Values> whole_batch(int step, std::vector<std::vector<Tensor>>& buffers) {
    std::vector<Values> sums;
    const auto before = copies(net_.buffers());
    std::vector<std::vector<Tensor>> alone(static_cast<size_t>(plan_.ranks));
    for (int pass = 0; pass < plan_.passes; ++pass) {
      std::vector<Batch3> batches;
      std::vector<Tensor> xs;
      for (int r = 0; r < plan_.ranks; ++r) {
        batches.push_back(plan_.batch(step, pass, r, plan_.network.dtype));
        xs.push_back(batches.back().x);
      }
      const Tensor y = net_(cat(xs));
      int64_t begin = 0;
      for (int r = 0; r < plan_.ranks; ++r) {
        const int64_t n = batches[r].target.numel();
        net_.zero_grad();
        if (n > 0) plan_.loss(narrow(y, 0, begin, n), batches[r], step, r).backward({}, true);
        begin += n;
        add(sums, r, gradients_of(net_));
      }
    }
    // Buffers that a rank's samples alone decide are those of its own passes.
    const auto together = copies(net_.buffers());
    for (int r = 0; r < plan_.ranks; ++r) {
      restore(before);
      if (!net_.has_batch_norm()) of_one_rank(step, r);
      buffers.push_back(net_.has_batch_norm() ? together : copies(net_.buffers()));
    }
    return sums;
  }

  static void add(std::vector<Values>& sums, int rank, const Values& gradients) {
    if (sums.size() <= static_cast<size_t>(rank)) {
      sums.push_back(gradients);
      return;
    }
    for (size_t p = 0; p < gradients.size(); ++p)
      for (size_t i = 0; i < gradients[p].size(); ++i) sums[rank][p][i] += gradients[p][i];
  }

  // Σ w_r g_r / Σ w_r. An element may differ by some roundings of its largest part, in the dtype in which gradients
  // travel; where one process adds in another order, of the largest part of its tensor.
  void combine(int step, const std::vector<Values>& of_rank, Expected& expected) {
    const double eps =
        std::max(epsilon_of(plan_.network.dtype), plan_.hook == Hook::None       ? 0
                                                  : plan_.hook == Hook::BFloat16 ? epsilon_of(DType::BFloat16)
                                                                                 : epsilon_of(DType::Float16));
    const bool narrow_range = plan_.network.dtype == DType::Float16 || plan_.hook == Hook::Float16;
    for (size_t p = 0; p < of_rank[0].size(); ++p) {
      std::vector<double> sum(of_rank[0][p].size());
      std::vector<double> parts(sum.size());
      for (int r = 0; r < plan_.ranks && expected.weight > 0; ++r) {
        const double share = plan_.weight(step, r) / expected.weight;
        for (size_t i = 0; i < sum.size() && share > 0; ++i) {
          sum[i] += share * of_rank[r][p][i];
          parts[i] += std::abs(share * of_rank[r][p][i]);
        }
      }
      double largest = 0;
      for (const double part : parts) largest = std::max(largest, part);
      for (double& part : parts)
        part = (whole_ ? 1e-12 * (1 + largest) : 0) + 6 * eps * part + (narrow_range ? 8 * 0x1p-24 : 1e-37);
      expected.gradients.push_back(sum);
      expected.bounds.push_back(parts);
    }
  }

  // Floating ones are the mean by samples, whole ones those of rank 0; where nothing counts, rank 0's.
  std::vector<Tensor> mean_buffers(int step, const std::vector<std::vector<Tensor>>& of_rank,
                                   const std::vector<Tensor>& before) {
    std::vector<Tensor> result;
    for (size_t b = 0; b < before.size(); ++b) {
      result.push_back(clone(of_rank[0][b]));
      if (!is_floating(before[b].dtype())) continue;
      std::vector<double> sum(static_cast<size_t>(before[b].numel()));
      double weights = 0;
      for (int r = 0; r < plan_.ranks; ++r) {
        const double weight = plan_.weight(step, r) > 0 ? seen(step, r) : 0;
        const auto values = to_vector<double>(of_rank[r][b]);
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += weight * values[i];
        weights += weight;
      }
      for (double& value : sum) value /= weights;
      if (weights > 0) copy_(result.back(), tensor(sum, before[b].shape()));
    }
    return result;
  }
  double seen(int step, int rank) const {
    double sum = 0;
    int made = 0;
    for (int pass = 0; pass < plan_.passes; ++pass) {
      sum += static_cast<double>(plan_.samples(step, pass, rank));
      made += plan_.samples(step, pass, rank) > 0 ? 1 : 0;
    }
    return made > 0 ? sum / made : 0;
  }

  const Plan& plan_;
  RandomNetwork& net_;
  bool whole_;
};

// What ranks show each other, between barriers.
struct Shown {
  std::vector<Values> gradients;
  std::vector<std::vector<std::string>> state;
};

// A rank's network in one wrapper, or in two.
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

void backward_passes(const Plan& plan, Wrapped& model, int step, int rank, optim::GradScaler* scaler) {
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
      for (size_t w = model.wrappers.size(); w-- > 0;) must(model.wrappers[w]->shadow_step(), "others have data");
    }
  }
}

void compare_gradients(const Values& got, const Expected& expected, const nn::NamedTensors& names, int step) {
  for (size_t p = 0; p < got.size(); ++p)
    for (size_t i = 0; i < got[p].size(); ++i)
      must(std::abs(got[p][i] - expected.gradients[p][i]) <= expected.bounds[p][i],
           str("step ", step, ": the gradient of ", names[p].first, " at ", i, " is ", got[p][i], ", one process has ",
               expected.gradients[p][i], ", which may differ by ", expected.bounds[p][i]));
}

void compare_values(const std::vector<Tensor>& got, const std::vector<Tensor>& want, double roundings,
                    const std::string& what) {
  for (size_t b = 0; b < got.size(); ++b) {
    if (!is_floating(got[b].dtype())) {
      must(bits_of({got[b]}) == bits_of({want[b]}), str(what, " ", b, " is ", got[b], ", one process has ", want[b]));
      continue;
    }
    const auto g = to_vector<double>(got[b]);
    const auto w = to_vector<double>(want[b]);
    const double eps = epsilon_of(got[b].dtype());
    for (size_t i = 0; i < g.size(); ++i)
      must(std::abs(g[i] - w[i]) <= roundings * eps * (std::abs(w[i]) + 0.01),
           str(what, " ", b, " at ", i, " is ", g[i], ", one process has ", w[i]));
  }
}

// The update, by an optimizer of one process with the same gradients.
struct Shadow {
  Shadow(const Plan& plan)
      : net(plan.make_network()), optimizer(make_optimizer(plan.optimizer, net->named_parameters())) {}
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
  optim::GradScaler scaler({}, {.initial_scale = 256});
  for (int step = 0; step < plan.steps; ++step) {
    for (RandomNetwork* each : {net.get(), alone.get()}) each->use_branch(plan.uses_branch(step));
    copy_state(*net, *alone);
    Expected expected = OneProcess(plan, *alone).step(step);
    optimizer->zero_grad();
    backward_passes(plan, model, step, rank, plan.scaled ? &scaler : nullptr);
    const bool skipped = model.wrappers.back()->skipped();
    must(skipped == (expected.weight == 0), str("step ", step, ": skipped is ", skipped));
    if (plan.scaled) scaler.unscale(*optimizer);
    compare_gradients(gradients_of(*net), expected, net->named_parameters(), step);
    compare_values(net->buffers(), expected.buffers, 16, str("step ", step, ": buffer"));
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
    must(shown.gradients[rank] == shown.gradients[0], str("step ", step, ": ranks have other gradients"));
    must(shown.state[rank] == shown.state[0], str("step ", step, ": ranks have other weights or buffers"));
    group.barrier().wait();
    copy_state(*net, *shadow.net);
  }
  for (const auto& wrapper : model.wrappers) wrapper->check_identical();
}

// The first cause: a value that is wrong, rather than what other ranks say of a rank that has gone.
std::string run_ddp(uint64_t seed) {
  const Plan plan(seed);
  Shown shown{std::vector<Values>(plan.ranks), std::vector<std::vector<std::string>>(plan.ranks)};
  const auto errors =
      errors_of_ranks(host_groups(plan.ranks, plan.channel), [&](ProcessGroup& group) { train(plan, group, shown); });
  std::string first;
  for (size_t r = 0; r < errors.size(); ++r)
    if (!errors[r].empty() && (first.empty() || errors[r].starts_with("step")))
      first = str("rank ", r, ": ", errors[r]);
  return first.empty() ? "" : str(first, "\n  ", plan.text());
}

std::string run_program(uint64_t seed) {
  try {
    if (seed % 5 == 3) return run_shards(seed);
    if (seed % 5 == 4) return run_data_parallel(seed);
    return run_ddp(seed);
  } catch (const std::exception& error) {
    return error.what();
  }
}

volatile unsigned long long seed_under_way;  // for who finds a program that does not end
void tell_seed(int) {
  char text[96];
  const int n =
      std::snprintf(text, sizeof text, "HANGS %llu: random_ddp --seed %llu\n", seed_under_way, seed_under_way);
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
  if (count == 3 && std::strcmp(arguments[1], "--seed") == 0) return check(std::stoull(arguments[2])) ? 0 : 1;
  const double seconds = count > 1 ? std::atof(arguments[1]) : 10;
  const uint64_t first = count > 2 ? std::stoull(arguments[2]) : std::random_device()();
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  uint64_t seed = first;
  int wrong = 0;
  for (; std::chrono::steady_clock::now() < end; ++seed) wrong += check(seed) ? 0 : 1;
  std::printf("%llu programs from seed %llu on, %d wrong\n", static_cast<unsigned long long>(seed - first),
              static_cast<unsigned long long>(first), wrong);
  return wrong > 0;
}
