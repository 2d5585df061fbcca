// REINFORCE (Williams 1992) on the cart and pole of Barto, Sutton & Anderson (1983). A policy runs
// for an episode; then actions that were followed by more reward than usual become more likely. On
// several ranks each rank runs some environments.
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

// A pole on a cart, which is pushed to the left or to the right fifty times a second. It has fallen
// if the pole leans by more than 12 degrees, or if the cart is 2.4 m off centre.
class CartPole {
 public:
  static constexpr int kMaxSteps = 200;
  using State = std::array<float, 4>;  // position, velocity, angle (radians), angular velocity

  explicit CartPole(const State& state) : state_(state) {}
  const State& state() const { return state_; }
  // Advances by Euler's method, as in OpenAI Gym. Returns false if the episode is over, because the
  // pole fell or kMaxSteps were reached.
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
  // The number of environments, which the ranks of a group share (virtual_ranks.h). 0 means one for
  // each rank.
  int shards = 0;
};

class Reinforce {
 public:
  // Collective if there is a group, which must outlive this object. The weights come from the
  // default generator. Throws Error as VirtualRanks if the shards are not possible.
  explicit Reinforce(const ReinforceOptions& options, ProcessGroup* group = nullptr);

  // Runs an episode in each environment and improves the policy by all of them: by the mean of each
  // episode's sum. Episodes may differ in length. Collective. Returns the length for each
  // environment. Episode e is a function of seed, e and the policy, whichever rank runs it. So with
  // the same number of environments the policy has the same bits on any number of ranks.
  std::vector<int64_t> episode();
  void check_identical() const {
    if (shared_) (void)shared_->check_identical();
  }  // collective; as of the wrapper

  // Returns the number of environments of all ranks.
  int64_t environments() const { return environments_; }
  // Returns the number of episodes in all environments so far.
  int64_t episodes() const { return episodes_; }
  // Returns the number of pushes of all carts.
  int64_t pushes() const { return pushes_; }
  // Returns the policy: [N, 4] → [N, 2], the logarithms of odds.
  const nn::Sequential& policy() const { return policy_; }

  void save(const std::string& path, std::map<std::string, std::string> progress);
  // Throws DataError; nothing has changed then.
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
