// A generative adversarial network whose two halves are both wrapped in DistributedDataParallel, on
// several processes: numbers drawn from a normal distribution become points that are distributed
// like the data's.
//   gan_ddp [STEPS] [PROCESSES]
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include <ringgrad/ringgrad.h>

using namespace ringgrad;

constexpr int64_t kNoise = 8;
constexpr int64_t kBatch = 128;

static nn::Sequential make_network(int64_t inputs, int64_t outputs) {
  return nn::Sequential(nn::Linear(inputs, 32), nn::LeakyReLU(0.2), nn::Linear(32, 32),
                        nn::LeakyReLU(0.2), nn::Linear(32, outputs));
}

// The data: means 2 and -1, standard deviations 0.5 and 1.5.
static Tensor real_points(int64_t n) {
  return randn({n, 2}) * tensor<float>({0.5, 1.5}) + tensor<float>({2, -1});
}

static void freeze(nn::Module& module, bool frozen) {
  for (const Tensor& parameter : module.parameters()) parameter.requires_grad_(!frozen);
}

static void train(int steps) {  // on every rank
  ProcessGroup& group = process_group();
  manual_seed(100 + static_cast<uint64_t>(group.rank()));  // other points on every rank
  nn::Sequential generator = make_network(kNoise, 2);
  nn::Sequential discriminator = make_network(2, 1);
  DistributedDataParallel ddp_generator(generator, group);
  DistributedDataParallel ddp_discriminator(discriminator, group);
  optim::Adam generator_optimizer(ddp_generator.parameters(), {.lr = 1e-3, .betas = {0.5, 0.999}});
  optim::Adam discriminator_optimizer(ddp_discriminator.parameters(),
                                      {.lr = 1e-3, .betas = {0.5, 0.999}});
  const auto judge = [&](const Tensor& points, double label) {
    const Tensor logits = ddp_discriminator(points);
    return binary_cross_entropy_with_logits(logits, full_like(logits, label));
  };

  for (int step = 0; step < steps; ++step) {
    freeze(discriminator, false);
    discriminator_optimizer.zero_grad();
    const Tensor fake = ddp_generator(randn({kBatch, kNoise}));
    const Tensor d_loss = judge(real_points(kBatch), 1) + judge(fake.detach(), 0);
    d_loss.backward();
    discriminator_optimizer.step();

    freeze(discriminator, true);
    generator_optimizer.zero_grad();
    const Tensor g_loss = judge(fake, 1);
    g_loss.backward();
    generator_optimizer.step();
    if (group.is_main_process() && step % 200 == 0)
      std::printf("%d: D %.4f, G %.4f\n", step, d_loss.item<float>(), g_loss.item<float>());
  }
  ddp_generator.check_identical();
  ddp_discriminator.check_identical();
  if (!group.is_main_process()) return;
  NoGradGuard no_grad;
  const Tensor points = generator(randn({10'000, kNoise}));
  const std::vector<float> mean = to_vector<float>(points.mean(0));
  const std::vector<float> std = to_vector<float>(points.std(0));
  std::printf("means %.2f %.2f, standard deviations %.2f %.2f\n", mean[0], mean[1], std[0], std[1]);
  const bool close = std::abs(mean[0] - 2) < 0.25f && std::abs(mean[1] + 1) < 0.25f &&
                     std[0] > 0.3f && std[0] < 0.8f && std[1] > 0.9f && std[1] < 2.4f;
  // PyTorch: off by 0.12, and by a factor of 1.3.
  if (!close) throw std::runtime_error("expected 2 -1, 0.5 1.5");
}

int main(int argc, char** argv) {
  const int steps = argc > 1 ? std::atoi(argv[1]) : 500;
  return launch([&] { train(steps); }, {.num_processes = argc > 2 ? std::atoi(argv[2]) : 2});
}
