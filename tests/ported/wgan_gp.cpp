// A generator learns eight Gaussians on a circle against a critic whose gradients are kept near
// norm 1 (Gulrajani et al. 2017, "Improved Training of Wasserstein GANs", algorithm 1). The penalty
// is a loss of a gradient, so its backward differentiates the critic twice:
//   wgan_gp [ITERATIONS LARGEST_DISTANCE]
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include <ringgrad/ringgrad.h>

using namespace ringgrad;

constexpr int kBatch = 128;
constexpr int kCriticSteps = 5;
constexpr double kPenalty = 0.1;

// The centres, on a circle of radius √2 as in the paper's toy: [8, 2].
static Tensor centres() {
  std::vector<float> places;
  for (int i = 0; i < 8; ++i) {
    const double angle = 2 * 3.141592653589793 * i / 8;
    places.push_back(static_cast<float>(std::sqrt(2) * std::cos(angle)));
    places.push_back(static_cast<float>(std::sqrt(2) * std::sin(angle)));
  }
  return tensor(places).view({8, 2});
}

static Tensor real_points(const Tensor& places) {
  return places.index_select(0, randint(0, 8, {kBatch})) + randn({kBatch, 2}) * 0.02;
}

static nn::Sequential layers() {
  return nn::Sequential(nn::Linear(2, 128), nn::ReLU(), nn::Linear(128, 128), nn::ReLU(),
                        nn::Linear(128, 128), nn::ReLU());
}

static Tensor gradient_penalty(nn::Sequential& critic, const Tensor& real, const Tensor& fake) {
  const Tensor alpha = rand({kBatch, 1});
  const Tensor between = (alpha * real + (1 - alpha) * fake).requires_grad_();
  const Tensor slope = autograd::grad(
      {critic(between)}, {between}, {.grad_outputs = {ones({kBatch, 1})}, .create_graph = true})[0];
  return ((slope.norm(2, 1) - 1).pow(2)).mean() * kPenalty;
}

int main(int argc, char** argv) {
  const int iterations = argc > 1 ? std::atoi(argv[1]) : 10'000;
  const double largest_distance = argc > 2 ? std::atof(argv[2]) : 1e9;
  manual_seed(1);
  nn::Sequential generator = layers();
  generator.push_back(nn::Linear(128, 2));
  nn::Sequential critic = layers();
  critic.push_back(nn::Linear(128, 1));
  optim::Adam of_generator(generator.parameters(), {.lr = 1e-3, .betas = {0.5, 0.9}});
  optim::Adam of_critic(critic.parameters(), {.lr = 1e-3, .betas = {0.5, 0.9}});
  const Tensor places = centres();

  for (int i = 0; i < iterations; ++i) {
    for (int step = 0; step < kCriticSteps; ++step) {
      const Tensor real = real_points(places);
      const Tensor fake = generator(randn({kBatch, 2})).detach();
      of_critic.zero_grad();
      const Tensor loss = critic(fake).mean() - critic(real).mean();
      (loss + gradient_penalty(critic, real, fake)).backward();
      of_critic.step();
    }
    of_generator.zero_grad();
    (-critic(generator(randn({kBatch, 2}))).mean()).backward();
    of_generator.step();
  }

  NoGradGuard no_grad;
  const Tensor made = generator(randn({1000, 2}));
  const Tensor apart = (made.unsqueeze(1) - places).pow(2).sum(2).sqrt();  // [1000, 8]
  const Tensor nearest = min(apart, 1).values;
  const double distance = nearest.mean().item<double>();
  std::printf("a generated point is %.3f from the nearest centre\n", distance);
  return distance < largest_distance ? 0 : 1;
}
