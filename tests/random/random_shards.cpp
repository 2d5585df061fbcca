#include "ringgrad/tests/random/random_shards.h"

#include <algorithm>
#include <cstring>

#include "ringgrad/distributed/data_parallel.h"
#include "ringgrad/distributed/virtual_ranks.h"
#include "ringgrad/tests/distributed/ddp_ranks.h"
#include "ringgrad/tests/random/random_network.h"

namespace ringgrad::test {
namespace {

std::unique_ptr<RandomNetwork> make_network(uint64_t seed, const NetworkOptions& options) {
  std::lock_guard lock(generator_mutex);
  return std::make_unique<RandomNetwork>(seed, options);
}

Tensor rows(const Tensor& x, int64_t begin, int64_t end) {
  return contiguous(slice(x, 0, begin, end));
}

NetworkOptions network_options(Choices& choices) {
  return {
      .dtype = choices.of<DType>({DType::Float64, DType::Float32, DType::BFloat16, DType::Float16}),
      .batch_norm = choices.chance(60)};
}

std::vector<std::string> bits_of(const nn::Module& module) {
  std::vector<std::string> all;
  for (const auto& [name, x] : module.state_dict()) {
    const Tensor flat = as_contiguous(x);
    all.emplace_back(static_cast<const char*>(flat.raw_data()), flat.nbytes());
  }
  return all;
}

std::vector<double> all_gradients(const nn::Module& module) {
  std::vector<double> all;
  for (const Tensor& p : module.parameters()) {
    const auto values = p.grad() ? to_vector<double>(p.grad())
                                 : std::vector<double>(static_cast<size_t>(p.numel()));
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

struct ShardPlan {
  uint64_t seed;
  NetworkOptions network;
  int shards;
  int steps;
  bool sync;
  int64_t bucket_bytes;
  int64_t samples(int step) const {
    return Choices(seed, 1000 + static_cast<uint64_t>(step)).between(sync ? shards : 1, 3 * shards);
  }
};

// Returns weights, buffers and losses after all steps. `first` receives the gradient of the first
// step.
std::vector<std::string> train_shards(const ShardPlan& plan, ProcessGroup& group,
                                      std::vector<double>& first) {
  const auto net = make_network(plan.seed, plan.network);
  VirtualRanks ranks(*net, group,
                     {.shards = plan.shards,
                      .seed = plan.seed,
                      .sync_batch_norm = plan.sync,
                      .caps = {plan.bucket_bytes, plan.bucket_bytes},
                      .check_finite = false});
  optim::SGD optimizer(net->named_parameters(), {.lr = 0.05, .momentum = 0.9});
  std::vector<std::string> result;
  for (int step = 0; step < plan.steps; ++step) {
    const int64_t n = plan.samples(step);
    const Batch3 batch = random_batch(plan.seed, step, n, plan.network.dtype, false);
    const RowRange own = ranks.own_rows(n);
    const Batch3 mine = {rows(batch.x, own.begin, own.end), rows(batch.target, own.begin, own.end)};
    const double loss = ranks.step(n, [&](const VirtualRanks::Shard& shard) {
      const Tensor y = (*net)(rows(mine.x, shard.begin, shard.end));
      const Tensor sum = cross_entropy(y, rows(mine.target, shard.begin, shard.end),
                                       {.reduction = Reduction::Sum});
      sum.backward();
      return sum;
    });
    if (step == 0) first = all_gradients(*net);
    result.emplace_back(reinterpret_cast<const char*>(&loss), sizeof loss);
    optimizer.step();
  }
  ranks.check_identical();
  const auto state = bits_of(*net);
  result.insert(result.end(), state.begin(), state.end());
  return result;
}

}  // namespace

std::string run_shards(uint64_t seed) {
  Choices choices(seed);
  const ShardPlan plan = {.seed = seed,
                          .network = network_options(choices),
                          .shards = static_cast<int>(choices.between(3, 6)),
                          .steps = static_cast<int>(choices.between(1, 3)),
                          .sync = choices.chance(40),
                          .bucket_bytes = choices.of<int64_t>({64, 200, 1 << 20})};
  std::vector<std::string> expected;
  std::vector<double> gradient;
  std::string wrong;
  for (int n = 3; n >= 1 && wrong.empty(); --n) {
    const auto errors = errors_of_ranks(
        host_groups(n, choices.chance(50) ? "shm" : "tcp"), [&](ProcessGroup& group) {
          std::vector<double> first;
          const auto bits = train_shards(plan, group, first);
          if (!group.is_main_process()) return;
          if (n == 3) {
            expected = bits;
            gradient = first;
          }
          must(bits == expected, str("VirtualRanks: other bits on ", n, " ranks than on 3"));
        });
    for (const std::string& error : errors)
      if (wrong.empty()) wrong = error;
  }
  const auto net = make_network(seed, plan.network);
  const bool independent = !net->has_batch_norm() || plan.sync;
  if (wrong.empty() && independent && plan.network.dtype == DType::Float64) {
    const Batch3 batch = random_batch(seed, 0, plan.samples(0), DType::Float64, false);
    cross_entropy((*net)(batch.x), batch.target).backward();
    const double off = relative_difference(gradient, all_gradients(*net));
    if (!(off < 1e-11)) wrong = str("VirtualRanks: the gradient is off by ", off);
  }
  return wrong.empty() ? ""
                       : str(wrong, "\n  ", plan.shards, " shards, ", plan.network.dtype, ":",
                             net->description());
}

namespace {

// Computes the pieces in one process, each from the buffers from before the step. The buffers of
// the first piece stay.
void in_pieces(RandomNetwork& net, const Batch3& batch, int64_t piece) {
  const auto buffers = net.buffers();
  std::vector<Tensor> before;
  std::vector<Tensor> first;
  for (const Tensor& buffer : buffers) before.push_back(clone(buffer));
  const int64_t n = batch.target.numel();
  for (int64_t begin = 0; begin < n; begin += piece) {
    for (size_t b = 0; b < buffers.size(); ++b) copy_(buffers[b], before[b]);
    const int64_t end = std::min(n, begin + piece);
    const Tensor y = net(rows(batch.x, begin, end));
    const Tensor sum =
        cross_entropy(y, rows(batch.target, begin, end), {.reduction = Reduction::Sum});
    (sum * (1.0 / static_cast<double>(n))).backward();
    for (const Tensor& buffer : buffers)
      if (begin == 0) first.push_back(clone(buffer));
  }
  for (size_t b = 0; b < buffers.size(); ++b) copy_(buffers[b], first[b]);
}

}  // namespace

std::string run_data_parallel(uint64_t seed) {
  Choices choices(seed);
  const NetworkOptions options = network_options(choices);
  const int count = static_cast<int>(choices.between(2, 3));
  const auto net = make_network(seed, options);
  const auto alone = make_network(seed, options);
  std::vector<Device> devices;
  for (int i = 0; i < count; ++i) devices.push_back({DeviceType::CPU, i});
  DataParallel model(
      *net, [&] { return make_network(seed, options); }, devices);
  for (int step = 0; step < 3; ++step) {
    const int64_t n = choices.between(1, 8);
    const Batch3 batch = random_batch(seed, step, n, options.dtype, false);
    model.zero_grad();
    alone->zero_grad();
    cross_entropy(model(batch.x), batch.target).backward();
    in_pieces(*alone, batch, (n + count - 1) / count);
    const auto got = all_gradients(*net);
    const auto want = all_gradients(*alone);
    const double off = relative_difference(got, want);
    const double bound = 32 * epsilon_of(options.dtype);
    if (!(off < bound))
      return str("DataParallel: step ", step, ": the gradient is off by ", off, "\n  ", count,
                 " devices, ", n, " samples, ", options.dtype, ":", net->description());
    const auto buffers = net->buffers();
    for (size_t b = 0; b < buffers.size(); ++b) {
      const auto got_values = to_vector<double>(buffers[b]);
      const auto want_values = to_vector<double>(alone->buffers()[b]);
      for (size_t i = 0; i < got_values.size(); ++i)
        if (std::abs(got_values[i] - want_values[i]) > 1e-5 * std::abs(want_values[i]) + 1e-6)
          return str("DataParallel: step ", step, ": buffer ", b, " is ", buffers[b],
                     ", one process has ", alone->buffers()[b], "\n  ", count, " devices, ", n,
                     " samples, ", options.dtype, ":", net->description());
    }
  }
  return "";
}

}  // namespace ringgrad::test
