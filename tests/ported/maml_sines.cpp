// Model-agnostic meta-learning on sine waves (Finn, Abbeel & Levine 2017, section 5.1). A network
// learns weights from which one step of gradient descent on ten points of a new wave leads near
// that wave. The outer gradient goes through the inner step:
//   maml_sines [ITERATIONS LARGEST_LOSS]
#include <cstdio>
#include <cstdlib>

#include <ringgrad/ringgrad.h>

using namespace ringgrad;

constexpr double kInnerRate = 0.01;
constexpr int kPoints = 10;
constexpr int kTasks = 4;

using Weights = std::vector<Tensor>;

static double uniform_between(double low, double high) {
  return low + (high - low) * rand({}).item<double>();
}

struct Wave {
  double amplitude = uniform_between(0.1, 5);
  double phase = uniform_between(0, 3.141592653589793);

  Tensor operator()(const Tensor& x) const { return (x - phase).sin() * amplitude; }
};

static Tensor points(int count) { return rand({count, 1}) * 10 - 5; }

static Tensor network(const Tensor& x, const Weights& w) {
  const Tensor first = relu(linear(x, w[0], w[1]));
  return linear(relu(linear(first, w[2], w[3])), w[4], w[5]);
}

static Tensor loss_on(const Wave& wave, const Tensor& x, const Weights& weights) {
  return mse_loss(network(x, weights), wave(x));
}

// Steps of gradient descent on ten points of the wave.
static Weights adapted(const Wave& wave, Weights weights, int steps, bool create_graph) {
  const Tensor x = points(kPoints);
  for (int step = 0; step < steps; ++step) {
    const std::vector<Tensor> grads =
        autograd::grad({loss_on(wave, x, weights)}, weights, {.create_graph = create_graph});
    for (size_t i = 0; i < weights.size(); ++i) weights[i] = weights[i] - grads[i] * kInnerRate;
  }
  return weights;
}

int main(int argc, char** argv) {
  const int iterations = argc > 1 ? std::atoi(argv[1]) : 20'000;
  const double largest_loss = argc > 2 ? std::atof(argv[2]) : 1e9;
  manual_seed(1);
  const nn::Linear fc1(1, 40);
  const nn::Linear fc2(40, 40);
  const nn::Linear fc3(40, 1);
  const Weights weights = {fc1.weight, fc1.bias, fc2.weight, fc2.bias, fc3.weight, fc3.bias};
  optim::Adam optimizer(weights, {.lr = 1e-3});

  for (int i = 0; i < iterations; ++i) {
    optimizer.zero_grad();
    for (int task = 0; task < kTasks; ++task) {
      const Wave wave;
      const Weights after = adapted(wave, weights, 1, /*create_graph=*/true);
      (loss_on(wave, points(kPoints), after) / kTasks).backward();
    }
    optimizer.step();
  }

  double before = 0;
  double after = 0;
  constexpr int kTests = 100;
  for (int task = 0; task < kTests; ++task) {
    const Wave wave;
    const Tensor x = points(100);
    before += loss_on(wave, x, weights).item<double>() / kTests;
    after += loss_on(wave, x, adapted(wave, weights, 10, false)).item<double>() / kTests;
  }
  std::printf("loss on new waves %.3f, after ten steps on ten points %.3f\n", before, after);
  return after < largest_loss && after < before ? 0 : 1;
}
