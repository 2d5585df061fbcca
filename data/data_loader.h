// DataLoader: a data set and a sampler become batches.
//
//   DataLoader loader(
//       load_dataset("mnist", Split::Train, data_directory("")),
//       std::make_shared<RandomSampler>(60000),
//       {.batch_size = 64, .num_workers = 2, .transform = {.mean = {0.1307f}, .std = {0.3081f}}});
//   for (Batch& batch : loader) { … batch.data, batch.target … }
//
// Batches and their order depend on the sampler alone, never on the number of workers. A batch's
// memory is its own: keeping it is safe, and letting it go returns it to the caching allocator for
// a later batch.
#pragma once

#include <functional>
#include <iterator>
#include <memory>
#include <span>

#include "ringgrad/data/batch_source.h"
#include "ringgrad/data/image_dataset.h"

namespace ringgrad {

class Dataset;  // dataset.h
class Pass;
class Prefetcher;

struct DataLoaderOptions {
  int64_t batch_size = 1;
  int num_workers = 0;     // threads that prepare batches; 0: the iterating thread does
  int prefetch = 4;        // batches prepared ahead, at least one per worker
  bool drop_last = false;  // leave out a last batch that is not full
  ImageTransform transform = {};
};

// Fills data and target of a batch of these samples. Called on several threads at once.
using MakeBatch = std::function<Batch(std::span<const int64_t> indices, int64_t epoch)>;

// The batches of a data set in memory, each image transformed. Throws what check_dataset_invariants
// and check_transform throw.
MakeBatch image_batches(ImageDataset dataset, ImageTransform transform);
// The samples of a data set, stacked. Throws what its get() and stack_samples() throw.
MakeBatch stacked_batches(std::shared_ptr<const Dataset> dataset);

class DataLoader {
 public:
  // Any source of batches; options.transform is not used. Throws Error on options out of range.
  DataLoader(MakeBatch make_batch, std::shared_ptr<Sampler> sampler,
             DataLoaderOptions options = {});
  DataLoader(ImageDataset dataset, std::shared_ptr<Sampler> sampler,
             DataLoaderOptions options = {});
  DataLoader(std::shared_ptr<const Dataset> dataset, std::shared_ptr<Sampler> sampler,
             DataLoaderOptions options = {});

  class Iterator;
  // Starts the sampler's next pass. What making a batch threw is rethrown when the iteration
  // arrives at it; the next step takes the batch behind it. Leaving the loop early ends the pass.
  // REQUIRES: the loader outlives the iterator; both are used by one thread.
  Iterator begin();
  std::default_sentinel_t end() const { return {}; }

  int64_t size() const;  // batches in a whole epoch

  // Where training goes on after the batches handed out so far, whatever was prefetched; after the
  // last one of a pass, at the beginning of the next; after one that threw, at that one.
  // load_state() there continues with exactly the batches that would have followed. An epoch that
  // the sampler has been given since the pass began counts instead.
  SamplerState state() const {
    return sampler_->state() == untouched_ ? state_ : sampler_->state();
  }
  void load_state(const SamplerState& state);

  // How long iterating threads have waited for batches, over all passes, each one's beginning
  // included. Without workers that is all of the making.
  double waited_seconds() const { return waited_seconds_; }

 private:
  MakeBatch make_batch_;
  std::shared_ptr<Sampler> sampler_;
  DataLoaderOptions options_;
  SamplerState state_;
  SamplerState untouched_;  // the sampler's, unless somebody has set it since
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
  int64_t delivered_ = 0;  // or asked for in vain
  std::shared_ptr<Prefetcher> prefetcher_;
  Batch batch_;
};

}  // namespace ringgrad
