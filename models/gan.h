// A deep convolutional GAN (Radford, Metz & Chintala 2016) for small images: a generator learns to draw what a
// discriminator cannot tell from the data. Two networks, two optimizers, one batch; on several ranks two wrappers, too.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "ringgrad/distributed/distributed_data_parallel.h"
#include "ringgrad/nn/containers.h"
#include "ringgrad/nn/layers.h"
#include "ringgrad/nn/optim/optimizers.h"

namespace ringgrad::models {

struct GanOptions {
  int64_t channels = 1, image_size = 28;  // a multiple of 4
  int64_t latent = 100, width = 64;       // numbers that an image is drawn from; channels of the last layer but one
  double lr = 2e-4;
};

class Gan {
 public:
  // Collective where there is a group, which must outlive the GAN. The networks' weights, and all noise, come from the
  // default generator: the same seed on all ranks makes the same GAN. Throws Error on an image size it cannot draw.
  explicit Gan(const GanOptions& options, ProcessGroup* group = nullptr);

  struct Losses {
    double discriminator, generator;  // on this rank's images
  };
  // Both networks' next step. Collective. real: float32 [N, channels, size, size] in [-1, 1], this rank's part of the
  // batch, of the same N on all ranks. Several ranks do what one with all of the batch does, but for rounding.
  Losses step(const Tensor& real);

  // What the generator makes of the same noise each time, at most 64 images: uint8 [count, channels, size, size].
  Tensor draw(int64_t count);

  // All that training needs to go on bit for bit. The progress is the caller's own.
  void save(const std::string& path, const std::map<std::string, std::string>& progress);
  std::map<std::string, std::string> load(const std::string& path);  // throws DataError, and nothing has changed then
  nn::NamedTensors state_dict() const;  // "generator.…", "discriminator.…": weights and buffers

 private:
  Tensor judge(const Tensor& images, bool real);  // the loss where images are said to be real, or not

  GanOptions options_;
  ProcessGroup* group_;
  nn::Sequential generator_, discriminator_;
  Tensor fixed_noise_;
  std::optional<DistributedDataParallel> shared_generator_, shared_discriminator_;
  std::optional<optim::Adam> generator_step_, discriminator_step_;
};

}  // namespace ringgrad::models
