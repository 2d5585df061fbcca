#include "ringgrad/models/gan.h"

#include "ringgrad/autograd/engine.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/random.h"
#include "ringgrad/distributed/sync_batch_norm.h"
#include "ringgrad/nn/checkpoint.h"
#include "ringgrad/nn/init.h"

namespace ringgrad::models {
namespace {

constexpr int64_t kDrawn = 64;

// From noise to an image of a quarter of the size, then twice as large, twice.
nn::Sequential make_generator(const GanOptions& o) {
  return nn::Sequential(
      nn::ConvTranspose2d(o.latent, 2 * o.width, o.image_size / 4, {.bias = false}), nn::BatchNorm2d(2 * o.width),
      nn::ReLU(), nn::ConvTranspose2d(2 * o.width, o.width, 4, {.stride = 2, .padding = 1, .bias = false}),
      nn::BatchNorm2d(o.width), nn::ReLU(),
      nn::ConvTranspose2d(o.width, o.channels, 4, {.stride = 2, .padding = 1, .bias = false}), nn::Tanh());
}

// The way back, to one number: the logarithm of the odds that the image is real.
nn::Sequential make_discriminator(const GanOptions& o) {
  return nn::Sequential(
      nn::Conv2d(o.channels, o.width, 4, {.stride = 2, .padding = 1, .bias = false}), nn::LeakyReLU(0.2),
      nn::Conv2d(o.width, 2 * o.width, 4, {.stride = 2, .padding = 1, .bias = false}), nn::BatchNorm2d(2 * o.width),
      nn::LeakyReLU(0.2), nn::Conv2d(2 * o.width, 1, o.image_size / 4, {.bias = false}));
}

// As the paper has it: weights from N(0, 0.02), those of batch norm from N(1, 0.02).
void initialise(const nn::Module& network) {
  for (const auto& [name, weight] : network.named_parameters())
    if (weight.dim() == 4)
      nn::init::normal_(weight, 0, 0.02);
    else if (name.ends_with("weight"))
      nn::init::normal_(weight, 1, 0.02);
}

int64_t checked(int64_t image_size) {
  CHECK(image_size >= 8 && image_size % 4 == 0, "Gan: images of ", image_size, " pixels, expected a multiple of 4");
  return image_size;
}

void set_frozen(const nn::Module& network, bool frozen) {
  for (const Tensor& parameter : network.parameters()) parameter.requires_grad_(!frozen);
}

void append(nn::NamedTensors& all, const std::string& prefix, const nn::NamedTensors& some) {
  for (const auto& [name, tensor] : some) all.emplace_back(prefix + name, tensor);
}

}  // namespace

Gan::Gan(const GanOptions& options, ProcessGroup* group)
    : options_(options),
      group_(group),
      generator_(make_generator(options)),
      discriminator_(make_discriminator(options)) {
  checked(options.image_size);
  initialise(generator_);
  initialise(discriminator_);
  fixed_noise_ = randn({kDrawn, options.latent, 1, 1});
  if (group) {
    convert_sync_batchnorm(generator_, *group);
    convert_sync_batchnorm(discriminator_, *group);
    shared_generator_.emplace(generator_, *group);
    shared_discriminator_.emplace(discriminator_, *group);
  }
  const optim::AdamOptions adam{.lr = options.lr, .betas = {0.5, 0.999}};
  generator_step_.emplace(generator_.named_parameters(), adam);
  discriminator_step_.emplace(discriminator_.named_parameters(), adam);
}

Tensor Gan::judge(const Tensor& images, bool real) {
  const bool trains = discriminator_.parameters()[0].requires_grad();
  const Tensor odds = shared_discriminator_ && trains ? (*shared_discriminator_)(images) : discriminator_(images);
  return binary_cross_entropy_with_logits(odds, full(odds.shape(), real ? 1 : 0));
}

Gan::Losses Gan::step(const Tensor& real) {
  // Each rank draws the noise of the whole batch, and uses its part.
  const int64_t ranks = group_ ? group_->size() : 1, rank = group_ ? group_->rank() : 0, count = real.size(0);
  const Tensor noise = randn({ranks * count, options_.latent, 1, 1}).narrow(0, rank * count, count);
  const Tensor fake = shared_generator_ ? (*shared_generator_)(noise) : generator_(noise);

  discriminator_step_->zero_grad();
  const Tensor told_apart = judge(real, true) + judge(fake.detach(), false);
  told_apart.backward();
  discriminator_step_->step();

  set_frozen(discriminator_, true);  // it only passes on what the generator should have done
  generator_step_->zero_grad();
  const Tensor deceived = judge(fake, true);
  deceived.backward();
  generator_step_->step();
  set_frozen(discriminator_, false);
  return {told_apart.item<float>(), deceived.item<float>()};
}

Tensor Gan::draw(int64_t count) {
  CHECK(count >= 1 && count <= kDrawn, "Gan::draw: ", count, " images, expected 1 to ", kDrawn);
  const NoGradGuard no_grad;
  generator_.eval();
  const Tensor images = generator_(fixed_noise_.narrow(0, 0, count));
  generator_.train();
  return to((images + 1.0) * 127.5, DType::UInt8);
}

nn::NamedTensors Gan::state_dict() const {
  nn::NamedTensors all;
  append(all, "generator.", generator_.state_dict());
  append(all, "discriminator.", discriminator_.state_dict());
  return all;
}

void Gan::save(const std::string& path, const std::map<std::string, std::string>& progress) {
  nn::NamedTensors steps;
  append(steps, "generator.", generator_step_->state_dict());
  append(steps, "discriminator.", discriminator_step_->state_dict());
  nn::save_checkpoint(path,
                      {.model = state_dict(), .optimizer = steps, .random = nn::random_state(), .progress = progress});
}

std::map<std::string, std::string> Gan::load(const std::string& path) {
  const nn::Checkpoint saved = nn::load_checkpoint(path);
  const auto of = [](const nn::NamedTensors& named, const char* prefix) { return nn::without_prefix(named, prefix); };
  nn::check_by_name("Gan::load", state_dict(), saved.model, true);
  nn::check_random_state(saved.random);
  generator_step_->load_state_dict(of(saved.optimizer, "generator."));
  discriminator_step_->load_state_dict(of(saved.optimizer, "discriminator."));
  generator_.load_state_dict(of(saved.model, "generator."));
  discriminator_.load_state_dict(of(saved.model, "discriminator."));
  nn::set_random_state(saved.random);
  return saved.progress;
}

}  // namespace ringgrad::models
