// A device that makes batches from a data set in its own memory must make the loader's batches, bit
// for bit. This holds for any transform, any rank, in the middle of an epoch, and up to the short
// last batch.
#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/data/data_loader.h"
#include "ringgrad/data/resident_batches.h"
#include "ringgrad/tests/catch.h"

namespace ringgrad::test::data_resident_test {

namespace {

ImageDataset some_images(const Shape& shape) {
  ImageDataset dataset{"some", empty(shape, {.dtype = DType::UInt8}),
                       empty({shape[0]}, {.dtype = DType::Int64}),
                       std::vector<std::string>(10, "thing")};
  auto* bytes = dataset.images.data<uint8_t>();
  for (int64_t i = 0; i < shape.numel(); ++i)
    bytes[i] = static_cast<uint8_t>(i * 2654435761u >> 13);
  for (int64_t i = 0; i < shape[0]; ++i) dataset.labels.data<int64_t>()[i] = i * 7 % 10;
  return dataset;
}

ImageDataset like_mnist() { return some_images({23, 1, 28, 28}); }
ImageDataset like_cifar() { return some_images({21, 3, 32, 32}); }

const ImageTransform kGrey{.mean = {0.1307f}, .std = {0.3081f}};
const ImageTransform kCifar{.augment = {.crop_padding = 4, .flip = true, .cutout = 8, .seed = 3},
                            .mean = {0.4914f, 0.4822f, 0.4465f},
                            .std = {0.2470f, 0.2435f, 0.2616f}};

std::shared_ptr<Sampler> sampler(int64_t images, int ranks = 1, int rank = 0) {
  return std::make_shared<DistributedSampler>(images, ranks, rank,
                                              DistributedSamplerOptions{.seed = 5, .pad = false});
}

std::vector<Device> devices() {
  std::vector<Device> all = {Device()};
  if (device_count(DeviceType::CUDA) > 0) all.emplace_back("cuda:0");
  return all;
}

// Follows both through `passes` passes.
void require_same(DataLoader& loader, ResidentBatches& resident, int passes) {
  for (int pass = 0; pass < passes; ++pass) {
    resident.start_pass();
    for (const Batch& want : loader) {
      REQUIRE(std::vector<int64_t>(resident.indices().begin(), resident.indices().end()) ==
              want.indices);
      const Batch got = resident.current();
      REQUIRE(got.indices == want.indices);
      REQUIRE(got.padding == want.padding);
      REQUIRE(got.data.shape() == want.data.shape());
      REQUIRE(to_vector<int64_t>(got.target) == to_vector<int64_t>(want.target));
      // Every value of 16 bits is a float's.
      Tensor in_dtype = empty(want.data.shape(), {.dtype = got.data.dtype()});
      copy_(in_dtype, want.data);
      REQUIRE(to_vector<float>(got.data) == to_vector<float>(in_dtype));
      REQUIRE(resident.state() == loader.state());
      resident.advance();
    }
    REQUIRE(resident.indices().empty());
  }
}

}  // namespace

TEST_CASE("resident: the loader's batches, bit for bit", "[quick]") {
  for (const Device device : devices())
    for (const DType dtype : {DType::Float32, DType::Float16, DType::BFloat16})
      for (const bool grey : {true, false}) {
        INFO(device << ", " << dtype << (grey ? ", like MNIST" : ", like CIFAR"));
        const ImageDataset dataset = grey ? like_mnist() : like_cifar();
        const ImageTransform& transform = grey ? kGrey : kCifar;
        DataLoader loader(dataset, sampler(dataset.size()),
                          {.batch_size = 8, .transform = transform});
        ResidentBatches resident(dataset, sampler(dataset.size()), 8, transform,
                                 {.dtype = dtype, .device = device});
        require_same(loader, resident, 2);
      }
}

TEST_CASE("resident: each augmentation alone", "[quick]") {
  for (const Device device : devices())
    for (const AugmentOptions& augment :
         {AugmentOptions{.crop_padding = 3, .seed = 1}, AugmentOptions{.flip = true},
          AugmentOptions{.cutout = 5, .seed = 9}}) {
      ImageTransform transform = kCifar;
      transform.augment = augment;
      DataLoader loader(like_cifar(), sampler(21), {.batch_size = 4, .transform = transform});
      ResidentBatches resident(like_cifar(), sampler(21), 4, transform, {.device = device});
      require_same(loader, resident, 1);
    }
}

TEST_CASE("resident: ranks share out the images as with loaders, from any state on", "[quick]") {
  for (const Device device : devices())
    for (int rank = 0; rank < 3; ++rank) {
      DataLoader loader(like_cifar(), sampler(21, 3, rank), {.batch_size = 2, .transform = kCifar});
      ResidentBatches resident(like_cifar(), sampler(21, 3, rank), 2, kCifar, {.device = device});
      REQUIRE(resident.state() == loader.state());
      require_same(loader, resident, 1);
      for (const SamplerState state :
           {SamplerState{5, 7, 6}, SamplerState{5, 7, 20}, SamplerState{6, 0, 0}}) {
        loader.load_state(state);
        resident.load_state(state);
        REQUIRE(resident.state() == state);
        require_same(loader, resident, 2);
      }
    }
}

TEST_CASE("resident: an epoch that the sampler is given shows in the state", "[quick]") {
  const std::shared_ptr<Sampler> given = sampler(23);
  ResidentBatches resident(like_mnist(), given, 8, kGrey, {});
  resident.start_pass();
  REQUIRE(resident.state() == SamplerState{5, 0, 8});
  given->set_epoch(7);
  REQUIRE(resident.state() == SamplerState{5, 7, 0});
  resident.start_pass();
  REQUIRE(resident.state() == SamplerState{5, 7, 8});
}

TEST_CASE("resident: mistakes are errors", "[quick]") {
  ResidentBatches too_many(like_mnist(), sampler(24), 8, kGrey, {});
  REQUIRE_THROWS_AS(too_many.start_pass(), IndexError);
  REQUIRE_THROWS_AS(ResidentBatches(like_mnist(), sampler(23), 0, kGrey, {}), Error);
  REQUIRE_THROWS_AS(ResidentBatches(like_mnist(), sampler(23), 8, kCifar, {}), Error);
  ImageDataset bad = like_mnist();
  bad.labels.data<int64_t>()[3] = 10;
  REQUIRE_THROWS_AS(ResidentBatches(bad, sampler(23), 8, kGrey, {}), IndexError);
}

}  // namespace ringgrad::test::data_resident_test
