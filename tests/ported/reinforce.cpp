// REINFORCE (Williams 1992): a policy learns to balance a pole on a cart, as PyTorch's example
// reinforcement_learning:
//   reinforce [EPISODES] [MEAN LENGTH WANTED]
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include <ringgrad/ringgrad.h>

using namespace ringgrad;

// Barto, Sutton & Anderson 1983, with the constants of Gym's CartPole-v1: a push to the left or to
// the right every 20 ms.
class CartPole {
 public:
  // The cart's place and speed, the pole's angle and angular speed.
  using State = std::array<float, 4>;

  Tensor reset() {
    const std::vector<float> start = to_vector<float>(rand({4}) * 0.1 - 0.05);
    std::copy(start.begin(), start.end(), state_.begin());
    return observe();
  }
  // False: the pole has fallen, or the cart has left.
  bool step(int64_t action) {
    auto& [x, v, angle, w] = state_;
    const double force = action == 1 ? 10 : -10;
    const double cosine = std::cos(angle);
    const double sine = std::sin(angle);
    const double push = (force + kPole * w * w * sine) / kMass;
    const double turn =
        (9.8 * sine - cosine * push) / (0.5 * (4.0 / 3 - 0.1 * cosine * cosine / kMass));
    const double acceleration = push - kPole * turn * cosine / kMass;
    x += kTime * v;
    v += static_cast<float>(kTime * acceleration);
    angle += kTime * w;
    w += static_cast<float>(kTime * turn);
    return std::abs(x) <= 2.4f && std::abs(angle) <= 12 * 3.14159265f / 180;
  }
  Tensor observe() const {
    return tensor(std::vector<float>(state_.begin(), state_.end()), {1, 4});
  }

 private:
  // The mass of cart and pole; the pole's mass times half its length.
  static constexpr double kMass = 1.1;
  static constexpr double kPole = 0.05;
  static constexpr float kTime = 0.02f;
  State state_{};
};

struct Policy : nn::Module {
  nn::Linear affine1{4, 128};
  nn::Linear affine2{128, 2};
  nn::Dropout dropout{0.6};
  std::vector<Tensor> saved_log_probs;
  std::vector<double> rewards;
  Policy() {
    register_module("affine1", affine1);
    register_module("dropout", dropout);
    register_module("affine2", affine2);
  }
  Tensor forward(const Tensor& state) override {
    return softmax(affine2(relu(dropout(affine1(state)))), 1);
  }
  int64_t select_action(const Tensor& state) {
    const Tensor probabilities = (*this)(state);
    const Tensor action = multinomial(probabilities, 1);
    saved_log_probs.push_back(probabilities.gather(1, action).log());
    return action.item<int64_t>();
  }
};

static void finish_episode(Policy& policy, optim::Optimizer& optimizer) {
  std::vector<float> returns(policy.rewards.size());
  double sum = 0;
  for (size_t i = returns.size(); i-- > 0;)
    returns[i] = static_cast<float>(sum = policy.rewards[i] + 0.99 * sum);
  Tensor scaled = tensor(returns);
  scaled = (scaled - scaled.mean()) / (scaled.std() + 1e-7);
  optimizer.zero_grad();
  const Tensor loss = (-cat(policy.saved_log_probs).squeeze(1) * scaled).sum();
  loss.backward();
  optimizer.step();
  policy.rewards.clear();
  policy.saved_log_probs.clear();
}

int main(int argc, char** argv) {
  const int episodes = argc > 1 ? std::atoi(argv[1]) : 1000;
  const double wanted = argc > 2 ? std::atof(argv[2]) : 0;
  manual_seed(1);
  CartPole environment;
  Policy policy;
  optim::Adam optimizer(policy.parameters(), {.lr = 1e-2});
  double running_reward = 10;
  for (int episode = 1; episode <= episodes && running_reward < 475; ++episode) {
    Tensor state = environment.reset();
    int64_t length = 0;
    for (bool up = true; up && length < 500; ++length) {
      up = environment.step(policy.select_action(state));
      state = environment.observe();
      policy.rewards.push_back(1);
    }
    running_reward = 0.05 * static_cast<double>(length) + 0.95 * running_reward;
    finish_episode(policy, optimizer);
    if (episode % 10 == 0)
      std::printf("episode %d: length %ld, running mean %.2f\n", episode, length, running_reward);
  }
  return running_reward >= wanted ? 0 : 1;
}
