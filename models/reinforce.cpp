#include "ringgrad/models/reinforce.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <numeric>
#include <vector>

#include "ringgrad/autograd/engine.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/nn/checkpoint.h"
#include "ringgrad/nn/layers.h"

namespace ringgrad::models {
namespace {

constexpr int kBits = 24;  // random bits in each number

double uniform(RandomSequence& random) {
  return static_cast<double>(random.below(1 << kBits)) / (1 << kBits);
}

// Returns a random start: about upright, about at rest.
CartPole::State some_start(RandomSequence& random) {
  CartPole::State state;
  for (float& number : state) number = static_cast<float>(uniform(random) * 0.1 - 0.05);
  return state;
}

// Returns the discounted sum of rewards after each push. They are normalised to mean 0 and standard
// deviation 1, so that about as many pushes become less likely as more likely.
std::vector<float> returns(int64_t steps, double discount) {
  std::vector<double> sum(steps);
  for (int64_t t = steps - 1; t >= 0; --t) sum[t] = 1 + (t + 1 < steps ? discount * sum[t + 1] : 0);
  double mean = 0;
  double square = 0;
  for (const double r : sum) mean += r / static_cast<double>(steps);
  for (const double r : sum)
    square += (r - mean) * (r - mean) / static_cast<double>(std::max<int64_t>(1, steps - 1));
  std::vector<float> normal(steps);
  for (int64_t t = 0; t < steps; ++t)
    normal[t] = static_cast<float>((sum[t] - mean) / (std::sqrt(square) + 1e-8));
  return normal;
}

}  // namespace

bool CartPole::push(bool right) {
  constexpr double kGravity = 9.8;
  constexpr double kCart = 1;
  constexpr double kPole = 0.1;
  constexpr double kHalfLength = 0.5;
  constexpr double kForce = 10;
  constexpr double kSeconds = 0.02;
  const auto [x, velocity, angle, spin] = state_;
  const double sine = std::sin(angle);
  const double cosine = std::cos(angle);
  const double mass = kCart + kPole;
  const double pushed =
      ((right ? kForce : -kForce) + kPole * kHalfLength * spin * spin * sine) / mass;
  const double turning = (kGravity * sine - cosine * pushed) /
                         (kHalfLength * (4.0 / 3 - kPole * cosine * cosine / mass));
  const double speeding = pushed - kPole * kHalfLength * turning * cosine / mass;
  const auto after = [](float value, double rate) {
    return static_cast<float>(value + kSeconds * rate);
  };
  state_ = {after(x, velocity), after(velocity, speeding), after(angle, spin),
            after(spin, turning)};
  ++steps_;
  const bool fallen =
      std::abs(state_[0]) > 2.4f || std::abs(state_[2]) > 12 * std::numbers::pi_v<float> / 180;
  return !fallen && steps_ < kMaxSteps;
}

Reinforce::Reinforce(const ReinforceOptions& options, ProcessGroup* group)
    : options_(options),
      group_(group),
      environments_(options.shards > 0 ? options.shards
                    : group            ? group->size()
                                       : 1),
      policy_(nn::Linear(4, options.hidden), nn::ReLU(), nn::Linear(options.hidden, 2)),
      step_(policy_.named_parameters(), {.lr = options.lr}) {
  CHECK(group || options.shards == 0, "Reinforce: ", options.shards,
        " shards need a group, of one rank at least");
  if (group) shared_.emplace(policy_, *group, VirtualRanksOptions{.shards = environments_});
}

// A batch is one episode of each environment, and each environment is a shard. All have the same
// weight, however long their episodes were.
std::vector<int64_t> Reinforce::episode() {
  const Tensor lengths = zeros({environments_}, {.dtype = DType::Int64});
  const auto improve = [&](const VirtualRanks::Shard& shard) {
    const Tensor loss =
        loss_of_episode(episodes_ + shard.index, lengths.data<int64_t>()[shard.index]);
    loss.backward();
    return loss;
  };
  step_.zero_grad();
  if (shared_)
    shared_->step(environments_, improve);
  else
    improve({0, 0, 1, nullptr, {}});
  step_.step();
  if (group_) group_->all_reduce(lengths, ReduceOp::Sum).wait();
  std::vector<int64_t> all = to_vector<int64_t>(lengths);
  episodes_ += environments_;
  pushes_ += std::accumulate(all.begin(), all.end(), int64_t{0});
  return all;
}

Tensor Reinforce::loss_of_episode(int64_t number, int64_t& length) {
  RandomSequence random(options_.seed, Purpose::Episode, static_cast<uint64_t>(number));
  CartPole cart(some_start(random));
  std::vector<float> seen;
  std::vector<int64_t> done;
  {
    const NoGradGuard no_grad;
    for (bool on = true; on;) {
      const auto& state = cart.state();
      seen.insert(seen.end(), state.begin(), state.end());
      const auto odds =
          to_vector<float>(policy_(tensor(std::vector<float>(state.begin(), state.end()), {1, 4})));
      done.push_back(uniform(random) >= 1 / (1 + std::exp(static_cast<double>(odds[1]) - odds[0])));
      on = cart.push(done.back() == 1);
    }
  }
  length = cart.steps();
  const Tensor odds = policy_(tensor(seen, {length, 4}));
  const Tensor pushes = tensor(done, {length, 1});
  const Tensor likely = gather(log_softmax(odds, 1), 1, pushes).squeeze(1);
  return -(likely * tensor(returns(length, options_.discount), {length})).sum();
}

void Reinforce::save(const std::string& path, std::map<std::string, std::string> progress) {
  progress["episodes"] = std::to_string(episodes_);
  progress["pushes"] = std::to_string(pushes_);
  nn::save_checkpoint(path, {.model = policy_.state_dict(),
                             .optimizer = step_.state_dict(),
                             .random = {},
                             .progress = progress});
}

std::map<std::string, std::string> Reinforce::load(const std::string& path) {
  const nn::Checkpoint saved = nn::load_checkpoint(path);
  const auto number = [&](const char* name) -> int64_t {
    const auto found = saved.progress.find(name);
    CHECK_AS(DataError, found != saved.progress.end(), "Reinforce::load: ", path,
             " does not say its ", name);
    const std::optional<int64_t> known = parse_number<int64_t>(found->second);
    CHECK_AS(DataError, known, "Reinforce::load: ", path, " has '", found->second, "' ", name,
             ", expected a number");
    return *known;
  };
  const int64_t episodes = number("episodes");
  const int64_t pushes = number("pushes");
  nn::check_by_name("Reinforce::load", policy_.state_dict(), saved.model, true);
  step_.load_state_dict(saved.optimizer);
  policy_.load_state_dict(saved.model);
  episodes_ = episodes;
  pushes_ = pushes;
  return saved.progress;
}

}  // namespace ringgrad::models
