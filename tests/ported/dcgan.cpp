// A generator that learns to draw digits from a discriminator's judgement, as in PyTorch's C++
// example, but with networks of any width. Writes samples and checkpoints into a folder:
//   dcgan [DATA SET] [STEPS] [WIDTH] [MOST LOSS OF D] [LEAST LOSS OF G] [FOLDER]
#include <cstdio>
#include <cstdlib>
#include <string>

#include <ringgrad/ringgrad.h>

using namespace ringgrad;

constexpr int64_t kNoise = 100;
constexpr int64_t kBatch = 64;

struct DCGANGenerator : nn::Module {
  nn::ConvTranspose2d conv1;
  nn::ConvTranspose2d conv2;
  nn::ConvTranspose2d conv3;
  nn::ConvTranspose2d conv4;
  nn::BatchNorm2d batch_norm1;
  nn::BatchNorm2d batch_norm2;
  nn::BatchNorm2d batch_norm3;

  DCGANGenerator(int64_t noise, int64_t width)
      : conv1(noise, 4 * width, 4, {.bias = false}),
        conv2(4 * width, 2 * width, 3, {.stride = 2, .padding = 1, .bias = false}),
        conv3(2 * width, width, 4, {.stride = 2, .padding = 1, .bias = false}),
        conv4(width, 1, 4, {.stride = 2, .padding = 1, .bias = false}),
        batch_norm1(4 * width),
        batch_norm2(2 * width),
        batch_norm3(width) {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("conv3", conv3);
    register_module("conv4", conv4);
    register_module("batch_norm1", batch_norm1);
    register_module("batch_norm2", batch_norm2);
    register_module("batch_norm3", batch_norm3);
  }
  Tensor forward(const Tensor& noise) override {
    Tensor x = relu(batch_norm1(conv1(noise)));
    x = relu(batch_norm2(conv2(x)));
    x = relu(batch_norm3(conv3(x)));
    return tanh(conv4(x));
  }
};

static nn::Sequential make_discriminator(int64_t width) {
  return nn::Sequential(
      nn::Conv2d(1, width, 4, {.stride = 2, .padding = 1, .bias = false}), nn::LeakyReLU(0.2),
      nn::Conv2d(width, 2 * width, 4, {.stride = 2, .padding = 1, .bias = false}),
      nn::BatchNorm2d(2 * width), nn::LeakyReLU(0.2),
      nn::Conv2d(2 * width, 4 * width, 4, {.stride = 2, .padding = 1, .bias = false}),
      nn::BatchNorm2d(4 * width), nn::LeakyReLU(0.2),
      nn::Conv2d(4 * width, 1, 3, {.stride = 1, .padding = 0, .bias = false}), nn::Sigmoid());
}

int main(int argc, char** argv) {
  const char* name = argc > 1 ? argv[1] : "digits";
  const int steps = argc > 2 ? std::atoi(argv[2]) : 1000;
  const int64_t width = argc > 3 ? std::atoi(argv[3]) : 64;
  const double most_d = argc > 4 ? std::atof(argv[4]) : 10;
  const double least_g = argc > 5 ? std::atof(argv[5]) : 0;
  const std::string folder = argc > 6 ? argv[6] : ".";

  manual_seed(1);
  DCGANGenerator generator(kNoise, width);
  nn::Sequential discriminator = make_discriminator(width);
  const ImageDataset dataset = load_dataset(name, Split::Train);
  DataLoader loader(dataset, std::make_shared<RandomSampler>(dataset.size()),
                    {.batch_size = kBatch,
                     .num_workers = 1,
                     .drop_last = true,
                     .transform = {.mean = {0.5f}, .std = {0.5f}}});
  optim::Adam generator_optimizer(generator.parameters(), {.lr = 2e-4, .betas = {0.5, 0.5}});
  optim::Adam discriminator_optimizer(discriminator.parameters(),
                                      {.lr = 2e-4, .betas = {0.5, 0.5}});

  int step = 0;
  double d_sum = 0;
  double g_sum = 0;
  double mean = 0;  // the mean of the last quarter
  while (step < steps) {
    for (const Batch& batch : loader) {
      discriminator.zero_grad();
      const Tensor real_labels = empty({kBatch});
      uniform_(real_labels, 0.8, 1.0);
      const Tensor d_loss_real =
          binary_cross_entropy(discriminator(batch.data).reshape({-1}), real_labels);
      d_loss_real.backward();

      const Tensor fake_images = generator(randn({kBatch, kNoise, 1, 1}));
      const Tensor fake_labels = zeros({kBatch});
      const Tensor d_loss_fake =
          binary_cross_entropy(discriminator(fake_images.detach()).reshape({-1}), fake_labels);
      d_loss_fake.backward();
      const Tensor d_loss = d_loss_real + d_loss_fake;
      discriminator_optimizer.step();

      generator.zero_grad();
      fake_labels.fill_(1);
      const Tensor g_loss =
          binary_cross_entropy(discriminator(fake_images).reshape({-1}), fake_labels);
      g_loss.backward();
      generator_optimizer.step();

      if (step % 50 == 0)
        std::printf("%d: D %.4f, G %.4f\n", step, d_loss.item<float>(), g_loss.item<float>());
      if (step >= steps - steps / 4) {
        d_sum += d_loss.item<float>() / (steps / 4);
        g_sum += g_loss.item<float>() / (steps / 4);
        mean += fake_images.mean().item<double>() / (steps / 4);
      }
      if (++step == steps) break;
    }
  }
  std::printf("mean of the last quarter: D %.4f, G %.4f, pixels %.3f\n", d_sum, g_sum, mean);

  nn::save_safetensors(folder + "/generator.safetensors", generator.state_dict());
  nn::save_safetensors(folder + "/discriminator.safetensors", discriminator.state_dict());
  nn::save_safetensors(folder + "/generator-optimizer.safetensors",
                       generator_optimizer.state_dict());
  DCGANGenerator restored(kNoise, width);
  restored.load_state_dict(nn::load_weights(folder + "/generator.safetensors").tensors);
  generator.eval();
  restored.eval();
  NoGradGuard no_grad;
  const Tensor noise = randn({10, kNoise, 1, 1});
  const Tensor samples = generator(noise);
  nn::save_safetensors(folder + "/samples.safetensors", {{"samples", samples}});
  return d_sum <= most_d && g_sum >= least_g && equal(samples, restored(noise)) ? 0 : 1;
}
