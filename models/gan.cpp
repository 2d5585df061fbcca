#include "ringgrad/models/gan.h"

#include "ringgrad/autograd/engine.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/random.h"
#include "ringgrad/core/random_tensors.h"
#include "ringgrad/nn/checkpoint.h"
#include "ringgrad/nn/init.h"
#include "ringgrad/nn/random_state.h"

namespace ringgrad::models {
namespace {

constexpr int64_t kDrawn = 64;

// Turns noise into an image of a quarter of each side, and doubles the sides twice.
nn::Sequential make_generator(const GanOptions& o) {
  return nn::Sequential(
      nn::ConvTranspose2d(o.latent, 2 * o.width, o.image_size / 4, {.bias = false}),
      nn::BatchNorm2d(2 * o.width), nn::ReLU(),
      nn::ConvTranspose2d(2 * o.width, o.width, 4, {.stride = 2, .padding = 1, .bias = false}),
      nn::BatchNorm2d(o.width), nn::ReLU(),
      nn::ConvTranspose2d(o.width, o.channels, 4, {.stride = 2, .padding = 1, .bias = false}),
      nn::Tanh());
}

// The reverse, down to one number: the logarithm of the odds that the image is real.
nn::Sequential make_discriminator(const GanOptions& o) {
  return nn::Sequential(
      nn::Conv2d(o.channels, o.width, 4, {.stride = 2, .padding = 1, .bias = false}),
      nn::LeakyReLU(0.2),
      nn::Conv2d(o.width, 2 * o.width, 4, {.stride = 2, .padding = 1, .bias = false}),
      nn::BatchNorm2d(2 * o.width), nn::LeakyReLU(0.2),
      nn::Conv2d(2 * o.width, 1, o.image_size / 4, {.bias = false}));
}

// As in the paper, weights are drawn from N(0, 0.02), and those of batch norm from N(1, 0.02).
void initialise(const nn::Module& network) {
  for (const auto& [name, weight] : network.named_parameters())
    if (weight.dim() == 4)
      nn::init::normal_(weight, 0, 0.02);
    else if (name.ends_with("weight"))
      nn::init::normal_(weight, 1, 0.02);
}

const GanOptions& checked(const GanOptions& o) {
  CHECK(o.image_size >= 8 && o.image_size % 4 == 0, "Gan: images of ", o.image_size,
        " pixels, expected a multiple of 4");
  return o;
}

void set_frozen(const nn::Module& network, bool frozen) {
  for (const Tensor& parameter : network.parameters()) parameter.requires_grad_(!frozen);
}

void append(nn::NamedTensors& all, const std::string& prefix, const nn::NamedTensors& some) {
  for (const auto& [name, tensor] : some) all.emplace_back(prefix + name, tensor);
}

}  // namespace

Gan::Networks::Networks(const GanOptions& options)
    : generator(make_generator(options)), discriminator(make_discriminator(options)) {
  register_module("generator", generator);
  register_module("discriminator", discriminator);
  initialise(generator);
  initialise(discriminator);
}

Gan::Gan(const GanOptions& options, ProcessGroup* group)
    : options_(checked(options)), networks_(options) {
  CHECK(group || options.shards == 0, "Gan: ", options.shards,
        " shards need a group, of one rank at least");
  fixed_noise_ = randn({kDrawn, options.latent, 1, 1});
  // Each wrapper handles the buffers of both networks, and the gradients of one: the network that
  // is not frozen when the wrapper is made.
  const auto wrap = [&](Wrapper& wrapper, const nn::Module& other) {
    set_frozen(other, true);
    wrapper.emplace(
        networks_, *group,
        VirtualRanksOptions{.shards = options.shards > 0 ? options.shards : group->size(),
                            .sync_batch_norm = true});
    set_frozen(other, false);
  };
  if (group) {
    wrap(shared_generator_, discriminator_);
    wrap(shared_discriminator_, generator_);
  }
  const optim::AdamOptions adam{.lr = options.lr, .betas = {0.5, 0.999}};
  generator_step_.emplace(generator_.named_parameters(), adam);
  discriminator_step_.emplace(discriminator_.named_parameters(), adam);
}

RowRange Gan::own_rows(int64_t batch) const {
  return shared_generator_ ? shared_generator_->own_rows(batch) : RowRange{0, batch};
}

double Gan::mean_with_gradient(Wrapper& wrapper, int64_t batch, const Loss& loss) {
  if (wrapper)
    return wrapper->step(batch, [&](const VirtualRanks::Shard& shard) {
      const Tensor sum = loss(shard);
      sum.backward();
      return sum;
    });
  const Tensor mean = loss({0, 0, batch, nullptr, {}}) / static_cast<double>(batch);
  mean.backward();
  return mean.item<float>();
}

Tensor Gan::judge(const Tensor& images, bool real) {
  const Tensor odds = discriminator_(images);
  return binary_cross_entropy_with_logits(odds, full(odds.shape(), real ? 1 : 0), Reduction::Sum);
}

Gan::Losses Gan::step(const Tensor& real, int64_t batch) {
  const RowRange own = own_rows(batch);
  CHECK_AS(ShapeError, real.dim() == 4 && real.size(0) == own.size(), "Gan::step: images of shape ",
           real.shape(), ", expected this rank's ", own.size(), " of a batch of ", batch);
  // Each rank draws the noise of the whole batch and uses its part.
  const Tensor noise = randn({batch, options_.latent, 1, 1}).narrow(0, own.begin, own.size());
  const auto rows = [](const Tensor& x, const VirtualRanks::Shard& shard) {
    return x.narrow(0, shard.begin, shard.end - shard.begin);
  };
  std::map<int, Tensor> fakes;  // for each shard

  discriminator_step_->zero_grad();
  const double told_apart =
      mean_with_gradient(shared_discriminator_, batch, [&](const VirtualRanks::Shard& shard) {
        const Tensor fake = fakes[shard.index] = generator_(rows(noise, shard));
        return judge(rows(real, shard), true) + judge(fake.detach(), false);
      });
  discriminator_step_->step();

  set_frozen(discriminator_, true);  // it only passes on the generator's gradient
  generator_step_->zero_grad();
  const double deceived = mean_with_gradient(
      shared_generator_, batch,
      [&](const VirtualRanks::Shard& shard) { return judge(fakes[shard.index], true); });
  generator_step_->step();
  set_frozen(discriminator_, false);
  return {told_apart, deceived};
}

Tensor Gan::draw(int64_t count) {
  CHECK(count >= 1 && count <= kDrawn, "Gan::draw: ", count, " images, expected 1 to ", kDrawn);
  const NoGradGuard no_grad;
  generator_.eval();
  const Tensor images = generator_(fixed_noise_.narrow(0, 0, count));
  generator_.train();
  return to((images + 1.0) * 127.5, DType::UInt8);
}

void Gan::save(const std::string& path, const std::map<std::string, std::string>& progress) {
  nn::NamedTensors steps;
  append(steps, "generator.", generator_step_->state_dict());
  append(steps, "discriminator.", discriminator_step_->state_dict());
  nn::save_checkpoint(path, {.model = networks_.state_dict(),
                             .optimizer = steps,
                             .random = nn::random_state(),
                             .progress = progress});
}

std::map<std::string, std::string> Gan::load(const std::string& path) {
  const nn::Checkpoint saved = nn::load_checkpoint(path);
  const auto of = [](const nn::NamedTensors& named, const char* prefix) {
    return nn::without_prefix(named, prefix);
  };
  nn::check_by_name("Gan::load", networks_.state_dict(), saved.model, true);
  nn::check_random_state(saved.random);
  generator_step_->load_state_dict(of(saved.optimizer, "generator."));
  discriminator_step_->load_state_dict(of(saved.optimizer, "discriminator."));
  networks_.load_state_dict(saved.model);
  nn::set_random_state(saved.random);
  return saved.progress;
}

}  // namespace ringgrad::models
