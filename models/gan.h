// A deep convolutional GAN (Radford, Metz & Chintala 2016) for small images. A generator learns to
// draw images that a discriminator cannot tell from the data. There are two networks and two
// optimizers on one batch. On several ranks there are also two wrappers, which cut each batch into
// shards, so that the bits are the same on any number of ranks.
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
  // image_size is a multiple of 4.
  int64_t channels = 1;
  int64_t image_size = 28;
  // latent is how many numbers an image is made from. width is the number of channels of the last
  // layer but one.
  int64_t latent = 100;
  int64_t width = 64;
  double lr = 2e-4;
  // The number of parts into which the ranks of a group cut a batch (virtual_ranks.h). 0 means one
  // for each rank.
  int shards = 0;
};

class Gan {
 public:
  // Collective if there is a group, which must outlive the GAN. The networks' weights and all noise
  // come from the default generator, so the same seed on all ranks makes the same GAN. Throws Error
  // if the image size is not possible, and as VirtualRanks if the shards are not.
  explicit Gan(const GanOptions& options, ProcessGroup* group = nullptr);

  struct Losses {
    // means over the batch, the same bits on all ranks
    double discriminator;
    double generator;
  };
  // Trains both networks for one step on a batch of `batch` images. Collective. `real` is float32
  // [N, channels, size, size] in [-1, 1]: the rows of the batch given by own_rows(). Several ranks
  // compute the same as one rank with the whole batch, up to rounding; with equally many shards,
  // bit for bit.
  Losses step(const Tensor& real, int64_t batch);
  RowRange own_rows(int64_t batch) const;

  // Returns the generator's images for the same noise each time, at most 64: uint8 [count,
  // channels, size, size].
  Tensor draw(int64_t count);

  // Saves all that training needs to continue bit for bit. `progress` is the caller's own.
  void save(const std::string& path, const std::map<std::string, std::string>& progress);
  // Throws DataError; nothing has changed then.
  std::map<std::string, std::string> load(const std::string& path);
  // Names begin with "generator." or "discriminator.".
  const nn::Module& networks() const { return networks_; }

 private:
  struct Networks : nn::Module {
    explicit Networks(const GanOptions& options);
    nn::Sequential generator;
    nn::Sequential discriminator;
  };
  // Divides the work of a network's step. It is empty without a group.
  using Wrapper = std::optional<VirtualRanks>;
  // Returns the sum of the losses over the shard's images.
  using Loss = std::function<Tensor(const VirtualRanks::Shard& shard)>;

  static double mean_with_gradient(Wrapper& wrapper, int64_t batch, const Loss& loss);
  // Returns the sum of the losses of images that are labelled real, or not.
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
