// A deep convolutional GAN (Radford, Metz & Chintala 2016) for small images: a generator learns to
// draw what a discriminator cannot tell from the data. Two networks, two optimizers, one batch; on
// several ranks two wrappers, too, which cut each batch into shards: the same bits on any number of
// ranks.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "ringgrad/distributed/virtual_ranks.h"
#include "ringgrad/nn/containers.h"
#include "ringgrad/nn/layers.h"
#include "ringgrad/nn/optim/optimizers.h"

namespace ringgrad::models {

struct GanOptions {
  // The size is a multiple of 4.
  int64_t channels = 1;
  int64_t image_size = 28;
  // Numbers that an image is drawn from; channels of the last layer but one.
  int64_t latent = 100;
  int64_t width = 64;
  double lr = 2e-4;
  // Parts into which the ranks of a group cut a batch (virtual_ranks.h); 0: one for each rank.
  int shards = 0;
};

class Gan {
 public:
  // Collective where there is a group, which must outlive the GAN. The networks' weights, and all
  // noise, come from the default generator: the same seed on all ranks makes the same GAN. Throws
  // Error on an image size it cannot draw, and as VirtualRanks on shards that cannot be.
  explicit Gan(const GanOptions& options, ProcessGroup* group = nullptr);

  struct Losses {
    // means over the batch, the same bits on all ranks
    double discriminator;
    double generator;
  };
  // Both networks' next step, on a batch of so many images. Collective. real: float32 [N, channels,
  // size, size] in
  // [-1, 1], the rows of the batch that own_rows() says. Several ranks do what one with all of the
  // batch does, but for rounding; with as many shards, bit for bit.
  Losses step(const Tensor& real, int64_t batch);
  RowRange own_rows(int64_t batch) const;

  // What the generator makes of the same noise each time, at most 64 images: uint8 [count,
  // channels, size, size].
  Tensor draw(int64_t count);

  // All that training needs to go on bit for bit. The progress is the caller's own.
  void save(const std::string& path, const std::map<std::string, std::string>& progress);
  // Throws DataError, and nothing has changed then.
  std::map<std::string, std::string> load(const std::string& path);
  // Their names are "generator.…" and "discriminator.…".
  const nn::Module& networks() const { return networks_; }

 private:
  struct Networks : nn::Module {
    explicit Networks(const GanOptions& options);
    nn::Sequential generator;
    nn::Sequential discriminator;
  };
  // Who divides the work of a network's step; none where there is no group.
  using Wrapper = std::optional<VirtualRanks>;
  // The sum over the shard's images.
  using Loss = std::function<Tensor(const VirtualRanks::Shard& shard)>;

  static double mean_with_gradient(Wrapper& wrapper, int64_t batch, const Loss& loss);
  // The sum of losses where images are said to be real, or not.
  Tensor judge(const Tensor& images, bool real);

  GanOptions options_;
  Networks networks_;
  nn::Sequential& generator_ = networks_.generator;
  nn::Sequential& discriminator_ = networks_.discriminator;
  Tensor fixed_noise_;
  Wrapper shared_generator_;
  Wrapper shared_discriminator_;
  std::optional<optim::Adam> generator_step_;
  std::optional<optim::Adam> discriminator_step_;
};

}  // namespace ringgrad::models
