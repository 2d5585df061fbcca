// The loader: the same batches for any number of workers, exact resuming, errors where they belong,
// clean endings.
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "ringgrad/core/base/clock.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/data/data_loader.h"
#include "ringgrad/data/sampler.h"
#include "ringgrad/data/shard_digest.h"
#include "ringgrad/tests/catch.h"

namespace ringgrad::test::data_loader_test {

namespace {

// n images of 2 x 5 x 4, pixel p of image i is i * 11 + p modulo 256; label i modulo 7.
ImageDataset tiny(int64_t n) {
  ImageDataset dataset{"tiny", empty({n, 2, 5, 4}, {.dtype = DType::UInt8}),
                       empty({n}, {.dtype = DType::Int64}), std::vector<std::string>(7, "thing")};
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t p = 0; p < 40; ++p)
      dataset.images.data<uint8_t>()[i * 40 + p] = static_cast<uint8_t>(i * 11 + p);
    dataset.labels.data<int64_t>()[i] = i % 7;
  }
  return dataset;
}

struct Seen {
  std::vector<float> data;
  std::vector<int64_t> target;
  std::vector<int64_t> indices;
  int64_t padding;
  bool operator==(const Seen&) const = default;
};

Seen seen(const Batch& batch) {
  return {to_vector<float>(batch.data), to_vector<int64_t>(batch.target), batch.indices,
          batch.padding};
}

std::vector<Seen> pass(DataLoader& loader) {
  std::vector<Seen> all;
  for (Batch& batch : loader) all.push_back(seen(batch));
  return all;
}

const ImageTransform kAugmented{
    .augment = {.crop_padding = 2, .flip = true, .cutout = 2, .seed = 3},
    .mean = {0.5f, 0.4f},
    .std = {0.25f, 0.2f}};

std::vector<float> augmented(const ImageDataset& dataset, int64_t index, int64_t epoch) {
  const Tensor image = empty({1, 2, 5, 4});
  const auto [scale, shift] = normalization(kAugmented, 2);
  kernels::augment_images(image, dataset.images, tensor<int64_t>({index}),
                          full({}, static_cast<double>(epoch), {.dtype = DType::Int64}), scale,
                          shift, kAugmented.augment);
  return to_vector<float>(image);
}

// A source that makes no tensors, for tests of the machinery alone.
Batch nothing(std::span<const int64_t>, int64_t) { return {}; }

}  // namespace

TEST_CASE("data_loader: batches are the sampled images, transformed", "[quick][threads]") {
  const int workers = GENERATE(0, 1, 3);
  const ImageDataset dataset = tiny(23);
  const auto sampler = std::make_shared<RandomSampler>(23, 5);
  DataLoader loader(dataset, sampler,
                    {.batch_size = 4, .num_workers = workers, .transform = kAugmented});
  REQUIRE(loader.size() == 6);
  for (int64_t epoch = 0; epoch < 3; ++epoch) {
    const std::vector<int64_t> order = sampler->indices({5, epoch, 0});
    size_t next = 0;
    for (Batch& batch : loader) {
      REQUIRE(batch.data.shape() == Shape{batch.size(), 2, 5, 4});
      REQUIRE(batch.size() == std::min<int64_t>(4, static_cast<int64_t>(order.size() - next)));
      const std::vector<float> data = to_vector<float>(batch.data);
      const std::vector<int64_t> target = to_vector<int64_t>(batch.target);
      for (int64_t i = 0; i < batch.size(); ++i) {
        const int64_t index = order[next++];
        REQUIRE(batch.indices[i] == index);
        REQUIRE(target[i] == index % 7);
        const std::vector<float> expected = augmented(dataset, index, epoch);
        REQUIRE(std::equal(expected.begin(), expected.end(), data.begin() + i * 40));
      }
    }
    REQUIRE(next == order.size());
  }
}

TEST_CASE("data_loader: the same batches for any number of workers and any prefetch",
          "[quick][threads]") {
  auto epochs = [](int workers, int prefetch) {
    DataLoader loader(
        tiny(50), std::make_shared<RandomSampler>(50, 1),
        {.batch_size = 3, .num_workers = workers, .prefetch = prefetch, .transform = kAugmented});
    std::vector<std::vector<Seen>> all{pass(loader), pass(loader)};
    return all;
  };
  const auto expected = epochs(0, 1);
  REQUIRE(expected[0].size() == 17);
  REQUIRE_FALSE(expected[0] == expected[1]);
  for (int workers : {1, 3})
    for (int prefetch : {1, 2, 100}) REQUIRE(epochs(workers, prefetch) == expected);
}

TEST_CASE("data_loader: an image is the same on any rank, world and batch size",
          "[quick][threads]") {
  std::vector<std::vector<float>> alone(30);
  DataLoader one(tiny(30), std::make_shared<RandomSampler>(30, 2),
                 {.batch_size = 1, .transform = kAugmented});
  for (Batch& batch : one) alone[batch.indices[0]] = to_vector<float>(batch.data);
  ShardDigest digest;
  for (int64_t rank = 0; rank < 4; ++rank) {
    const auto sampler =
        std::make_shared<DistributedSampler>(30, 4, rank, DistributedSamplerOptions{.seed = 2});
    DataLoader loader(tiny(30), sampler,
                      {.batch_size = 5, .num_workers = 1, .transform = kAugmented});
    int64_t padding = 0;
    for (Batch& batch : loader) {
      const std::vector<float> data = to_vector<float>(batch.data);
      for (int64_t i = 0; i < batch.size(); ++i)
        REQUIRE(std::equal(alone[batch.indices[i]].begin(), alone[batch.indices[i]].end(),
                           data.begin() + i * 40));
      digest.add(std::span(batch.indices).first(static_cast<size_t>(batch.size() - batch.padding)));
      padding += batch.padding;
    }
    REQUIRE(padding == (rank < 2 ? 0 : 1));  // 30 = 4 * 8 - 2: the last two ranks repeat one each
  }
  REQUIRE(digest == complete_digest(30));  // what was delivered, not what was planned
}

TEST_CASE("data_loader: drop_last leaves out a batch that is not full", "[quick][threads]") {
  for (int64_t n : {0, 3, 4, 9, 12}) {
    DataLoader keep(tiny(n), std::make_shared<SequentialSampler>(n), {.batch_size = 4});
    DataLoader drop(tiny(n), std::make_shared<SequentialSampler>(n),
                    {.batch_size = 4, .drop_last = true});
    REQUIRE(static_cast<int64_t>(pass(keep).size()) == (n + 3) / 4);
    REQUIRE(keep.size() == (n + 3) / 4);
    REQUIRE(static_cast<int64_t>(pass(drop).size()) == n / 4);
    REQUIRE(drop.size() == n / 4);
  }
}

TEST_CASE("data_loader: from the state after any batch it goes on with exactly the next",
          "[quick][threads]") {
  const int workers = GENERATE(0, 2);
  const bool drop_last = GENERATE(false, true);
  const DataLoaderOptions options{
      .batch_size = 3, .num_workers = workers, .drop_last = drop_last, .transform = kAugmented};
  auto make = [&](uint64_t seed) {
    return DataLoader(
        tiny(29),
        std::make_shared<DistributedSampler>(29, 2, 1, DistributedSamplerOptions{.seed = seed}),
        options);
  };
  DataLoader loader = make(8);
  std::vector<Seen> all;
  std::vector<SamplerState> states{loader.state()};
  for (int epoch = 0; epoch < 2; ++epoch)
    for (Batch& batch : loader) {
      all.push_back(seen(batch));
      states.push_back(loader.state());
    }
  REQUIRE(states.back() == SamplerState{8, 2, 0});
  const size_t per_epoch = all.size() / 2;
  for (size_t at = 0; at < all.size(); ++at) {
    DataLoader resumed = make(0);  // the state brings its seed
    resumed.load_state(states[at]);
    REQUIRE(resumed.state() == states[at]);
    const std::vector<Seen> rest = pass(resumed);
    REQUIRE(rest == std::vector<Seen>(all.begin() + static_cast<std::ptrdiff_t>(at),
                                      all.begin() + static_cast<std::ptrdiff_t>(
                                                        (at / per_epoch + 1) * per_epoch)));
    REQUIRE(resumed.state() == states[(at / per_epoch + 1) * per_epoch]);
  }
}

TEST_CASE("data_loader: an epoch that the sampler is given shows in the state",
          "[quick][threads]") {
  const auto sampler = std::make_shared<RandomSampler>(10, 1);
  DataLoader loader(nothing, sampler, {.batch_size = 5});
  sampler->set_epoch(5);
  REQUIRE(loader.state() == SamplerState{1, 5, 0});
  std::vector<SamplerState> states;
  for ([[maybe_unused]] Batch& batch : loader) states.push_back(loader.state());
  REQUIRE(states == std::vector<SamplerState>{{1, 5, 5}, {1, 6, 0}});
  sampler->set_epoch(8);
  REQUIRE(loader.state() == SamplerState{1, 8, 0});
  loader.load_state({1, 2, 5});
  REQUIRE(loader.state() == SamplerState{1, 2, 5});
}

TEST_CASE("data_loader: what a worker throws arrives at its batch, and those before it arrive",
          "[quick][threads]") {
  const int workers = GENERATE(0, 1, 3);
  const MakeBatch make = [](std::span<const int64_t> indices, int64_t) -> Batch {
    if (indices[0] == 7) throw DataError("sample 7 is damaged");
    return {};
  };
  DataLoader loader(make, std::make_shared<SequentialSampler>(20),
                    {.batch_size = 1, .num_workers = workers});
  for (int attempt = 0; attempt < 2; ++attempt) {
    int64_t delivered = 0;
    std::string error;
    try {
      for ([[maybe_unused]] Batch& batch : loader) ++delivered;
    } catch (const DataError& e) {
      error = e.what();
    }
    REQUIRE(error == "sample 7 is damaged");
    REQUIRE(delivered == 7);
    REQUIRE(loader.state().position == 7);
  }
}

TEST_CASE("data_loader: behind a batch that could not be made the pass goes on",
          "[quick][threads]") {
  const int workers = GENERATE(0, 2);
  const MakeBatch make = [](std::span<const int64_t> indices, int64_t epoch) -> Batch {
    if ((epoch == 0 && indices[0] == 1) || (epoch == 1 && indices[0] == 0))
      throw DataError("a sample is damaged");
    return {};
  };
  DataLoader loader(make, std::make_shared<SequentialSampler>(4),
                    {.batch_size = 1, .num_workers = workers});
  std::vector<int64_t> indices;
  std::vector<SamplerState> states;
  auto batch = loader.begin();
  while (batch != loader.end()) {
    if (!batch->indices.empty()) indices.push_back(batch->indices[0]);
    states.push_back(loader.state());
    try {
      ++batch;
    } catch (const DataError&) {
    }
  }
  REQUIRE(indices == std::vector<int64_t>{0, 2, 3});
  REQUIRE(states == std::vector<SamplerState>{{0, 0, 1}, {0, 0, 1}, {0, 0, 3}, {0, 1, 0}});

  loader.load_state({0, 0, 2});
  loader.begin();  // and no further
  REQUIRE(loader.state() == SamplerState{0, 0, 3});
  REQUIRE_THROWS_AS(loader.begin(), DataError);
  REQUIRE(loader.state() == SamplerState{0, 1, 0});
}

TEST_CASE("data_loader: leaving a pass early stops its workers and the next one starts afresh",
          "[quick][threads]") {
  const int workers = GENERATE(1, 3);
  std::atomic<int> active{0};
  std::atomic<int> made{0};
  const MakeBatch make = [&](std::span<const int64_t>, int64_t) {
    ++active;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ++made;
    --active;
    return Batch{};
  };
  DataLoader loader(make, std::make_shared<SequentialSampler>(1000),
                    {.batch_size = 1, .num_workers = workers});
  for (int stop = 0; stop < 5; ++stop) {
    made = 0;
    int64_t delivered = 0;
    for ([[maybe_unused]] Batch& batch : loader)
      if (delivered++ == stop) break;
    REQUIRE(active == 0);                              // joined
    REQUIRE(made <= stop + 1 + std::max(4, workers));  // never further ahead than the prefetch
  }
}

TEST_CASE("data_loader: a batch that is kept is not overwritten", "[quick][threads]") {
  DataLoader loader(tiny(64), std::make_shared<SequentialSampler>(64),
                    {.batch_size = 2, .num_workers = 2});
  std::vector<Batch> kept;
  std::vector<Seen> expected;
  for (Batch& batch : loader) {
    kept.push_back(batch);
    expected.push_back(seen(batch));
  }
  for (size_t i = 0; i < kept.size(); ++i) REQUIRE(seen(kept[i]) == expected[i]);
}

TEST_CASE("data_loader: it counts the time waited for batches, and no other", "[quick][threads]") {
  using Clock = std::chrono::steady_clock;
  const int workers = GENERATE(0, 1);
  const auto nap = std::chrono::milliseconds(3);
  double made = 0;
  double used = 0;  // by one thread each
  const MakeBatch make = [&](std::span<const int64_t>, int64_t) {
    const auto start = Clock::now();
    // So long that this thread comes to wait for the first.
    std::this_thread::sleep_for(made == 0 ? 30 * nap : nap);
    made += seconds_since(start);
    return Batch{};
  };
  DataLoader loader(make, std::make_shared<SequentialSampler>(4),
                    {.batch_size = 1, .num_workers = workers});
  const auto start = Clock::now();
  for ([[maybe_unused]] Batch& batch : loader) {
    const auto begun = Clock::now();
    std::this_thread::sleep_for(nap);
    used += seconds_since(begun);
  }
  const double all = seconds_since(start);
  // With a worker at least the first batch is waited for.
  REQUIRE(loader.waited_seconds() >= (workers == 0 ? made : 0.003));
  REQUIRE(loader.waited_seconds() <= all - used);
}

TEST_CASE("data_loader: mistakes are errors, at once", "[quick][threads]") {
  const auto sampler = std::make_shared<SequentialSampler>(10);
  REQUIRE_THROWS_AS(DataLoader(nothing, sampler, {.batch_size = 0}), Error);
  REQUIRE_THROWS_AS(DataLoader(nothing, sampler, {.num_workers = -1}), Error);
  REQUIRE_THROWS_AS(DataLoader(nothing, sampler, {.prefetch = 0}), Error);
  REQUIRE_THROWS_AS(DataLoader(nothing, nullptr), Error);
  REQUIRE_THROWS_AS(DataLoader(tiny(10), sampler, {.transform = {.mean = {1, 2, 3}}}), Error);

  ImageDataset bad = tiny(10);
  bad.labels.data<int64_t>()[3] = 7;
  REQUIRE_THROWS_AS(DataLoader(bad, sampler), IndexError);
  bad.labels = tiny(9).labels;
  REQUIRE_THROWS_AS(DataLoader(bad, sampler), ShapeError);
  bad = tiny(10);
  bad.images = empty({10, 2, 5, 4});
  REQUIRE_THROWS_AS(DataLoader(bad, sampler), DTypeError);

  // A sampler for a larger data set than there is.
  DataLoader loader(tiny(10), std::make_shared<SequentialSampler>(11),
                    {.batch_size = 4, .num_workers = 1});
  REQUIRE_THROWS_AS(pass(loader), IndexError);
}

}  // namespace ringgrad::test::data_loader_test
