// REINFORCE (Williams 1992) on the cart and pole of Barto, Sutton & Anderson (1983): a policy is
// run for an episode, and what it did is made more likely where more reward followed than usual. On
// several ranks each has environments.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>

#include "ringgrad/core/random.h"
#include "ringgrad/distributed/virtual_ranks.h"
#include "ringgrad/nn/containers.h"
#include "ringgrad/nn/optim/optimizers.h"

namespace ringgrad::models {

// A pole on a cart, which is pushed to the left or to the right fifty times a second. Fallen: the
// pole leans by more than 12 degrees, or the cart is 2.4 m off.
class CartPole {
 public:
  static constexpr int kMaxSteps = 200;
  using State = std::array<float, 4>;  // position, velocity, angle (radians), angular velocity

  explicit CartPole(const State& state) : state_(state) {}
  const State& state() const { return state_; }
  // Euler's method, as OpenAI Gym has it. False: the episode is over, because it fell or has lasted
  // kMaxSteps.
  bool push(bool right);
  int steps() const { return steps_; }

 private:
  State state_;
  int steps_ = 0;
};

struct ReinforceOptions {
  double lr = 0.01;
  double discount = 0.99;
  int64_t hidden = 128;
  uint64_t seed = 1;
  // Environments, which the ranks of a group share (virtual_ranks.h); 0: one for each rank.
  int shards = 0;
};

class Reinforce {
 public:
  // Collective where there is a group, which must outlive it. The weights come from the default
  // generator. Throws Error as VirtualRanks on shards that cannot be.
  explicit Reinforce(const ReinforceOptions& options, ProcessGroup* group = nullptr);

  // Runs an episode in each environment, which may last unequally long, and improves the policy by
  // all of them: by the mean of each episode's sum. Collective. Returns the lengths, by
  // environment. Episode e is a function of seed, e and the policy, whatever rank runs it: with as
  // many environments, the policy has the same bits on any number of ranks.
  std::vector<int64_t> episode();
  void check_identical() const {
    if (shared_) (void)shared_->check_identical();
  }  // collective; as of the wrapper

  // For all ranks.
  int64_t environments() const { return environments_; }
  // In all environments so far.
  int64_t episodes() const { return episodes_; }
  // Pushes of all carts.
  int64_t pushes() const { return pushes_; }
  // [N, 4] → [N, 2], the logarithms of odds.
  const nn::Sequential& policy() const { return policy_; }

  void save(const std::string& path, std::map<std::string, std::string> progress);
  // Throws DataError, and nothing has changed then.
  std::map<std::string, std::string> load(const std::string& path);

 private:
  Tensor loss_of_episode(int64_t number, int64_t& length);

  ReinforceOptions options_;
  ProcessGroup* group_;
  int environments_;
  nn::Sequential policy_;
  std::optional<VirtualRanks> shared_;
  optim::Adam step_;
  int64_t episodes_ = 0;
  int64_t pushes_ = 0;
};

}  // namespace ringgrad::models
