// DataLoader: makes batches from a data set and a sampler.
//
//   DataLoader loader(
//       load_dataset("mnist", Split::Train, data_directory("")),
//       std::make_shared<RandomSampler>(60000),
//       {.batch_size = 64, .num_workers = 2, .transform = {.mean = {0.1307f}, .std = {0.3081f}}});
//   for (Batch& batch : loader) { … batch.data, batch.target … }
//
// Batches and their order depend on the sampler alone, never on the number of workers. A batch owns
// its memory: it may be kept, and destroying it returns the memory to the caching allocator for a
// later batch.
#pragma once

#include <functional>
#include <iterator>
#include <memory>
#include <span>

#include "ringgrad/data/batch.h"
#include "ringgrad/data/image_dataset.h"
#include "ringgrad/data/sampler.h"

namespace ringgrad {

class Dataset;  // dataset.h
class Pass;

struct DataLoaderOptions {
  int64_t batch_size = 1;
  int num_workers = 0;     // threads that prepare batches; 0: the iterating thread does
  int prefetch = 4;        // batches prepared ahead, at least one per worker
  bool drop_last = false;  // leaves out a last batch that is not full
  ImageTransform transform = {};
};

// Makes data and target of a batch of these samples. Several threads call it at once.
using MakeBatch = std::function<Batch(std::span<const int64_t> indices, int64_t epoch)>;

// Makes batches of a data set in memory, each image transformed. Throws what
// check_dataset_invariants and check_transform throw.
MakeBatch image_batches(ImageDataset dataset, ImageTransform transform);
// Makes batches by stacking a data set's samples. Throws what its get() and stack_samples() throw.
MakeBatch stacked_batches(std::shared_ptr<const Dataset> dataset);

class DataLoader {
 public:
  // Takes any source of batches; options.transform is not used. Throws Error if an option is out of
  // range.
  DataLoader(MakeBatch make_batch, std::shared_ptr<Sampler> sampler,
             DataLoaderOptions options = {});
  DataLoader(ImageDataset dataset, std::shared_ptr<Sampler> sampler,
             DataLoaderOptions options = {});
  DataLoader(std::shared_ptr<const Dataset> dataset, std::shared_ptr<Sampler> sampler,
             DataLoaderOptions options = {});

  class Iterator;
  // Starts the sampler's next pass. If making a batch threw, the exception is rethrown when the
  // iteration reaches it; the next step takes the batch after it. Leaving the loop early ends the
  // pass. REQUIRES: the loader outlives the iterator; one thread uses both.
  Iterator begin();
  std::default_sentinel_t end() const { return {}; }

  int64_t size() const;  // batches in a whole epoch

  // Returns the position after the batches handed out so far, whatever was prefetched. After the
  // last batch of a pass it is the beginning of the next one. After a batch that threw, it is that
  // batch. load_state() continues with exactly the batches that would have followed. After
  // the sampler's set_epoch() during a pass it is the beginning of that epoch.
  SamplerState state() const {
    return sampler_->state() == untouched_ ? state_ : sampler_->state();
  }
  void load_state(const SamplerState& state);

  // Returns how long iterating threads have waited for batches, over all passes, including the
  // beginning of each. Without workers this is the whole time for making batches.
  double waited_seconds() const { return waited_seconds_; }

 private:
  MakeBatch make_batch_;
  std::shared_ptr<Sampler> sampler_;
  DataLoaderOptions options_;
  SamplerState state_;
  SamplerState untouched_;  // the sampler's state, unless it has been set since
  double waited_seconds_ = 0;
};

class DataLoader::Iterator {
 public:
  using value_type = Batch;
  using difference_type = std::ptrdiff_t;

  Iterator(Iterator&&) = default;
  Batch& operator*() { return batch_; }
  Batch* operator->() { return &batch_; }
  Iterator& operator++();
  void operator++(int) { ++*this; }
  bool operator==(std::default_sentinel_t) const;

 private:
  friend class DataLoader;
  explicit Iterator(DataLoader& loader);
  void advance();

  DataLoader* loader_;
  std::shared_ptr<const Pass> pass_;
  int64_t delivered_ = 0;  // includes a batch that failed
  // Makes batch k of the pass, or takes it from worker threads.
  std::function<Batch(int64_t k)> batch_number_;
  Batch batch_;
};

}  // namespace ringgrad
