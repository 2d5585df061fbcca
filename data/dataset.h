// Dataset: samples by number, as in PyTorch, for data that is not an ImageDataset in memory.
//
//   struct Squares : Dataset {
//     Example get(int64_t i) const override { return {scalar(double(i)), scalar(double(i * i))}; }
//     int64_t size() const override { return 100; }
//   };
//   const auto parts = random_split(std::make_shared<Squares>(), {80, 20});
//   DataLoader loader(parts[0], std::make_shared<RandomSampler>(parts[0]->size()),
//                     {.batch_size = 8, .num_workers = 2});
#pragma once

#include <memory>
#include <vector>

#include "ringgrad/core/tensor.h"

namespace ringgrad {

struct Example {
  Tensor data;
  Tensor target = {};  // may be undefined
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  // Returns sample i of 0 … size() - 1, on the CPU. Several threads call it at once if the loader
  // has workers.
  virtual Example get(int64_t i) const = 0;
  virtual int64_t size() const = 0;
};

// Some samples of another data set. Throws IndexError on an invalid index.
class Subset : public Dataset {
 public:
  Subset(std::shared_ptr<const Dataset> dataset, std::vector<int64_t> indices);
  Example get(int64_t i) const override;
  int64_t size() const override { return static_cast<int64_t>(indices_.size()); }
  const std::vector<int64_t>& indices() const { return indices_; }

 private:
  std::shared_ptr<const Dataset> dataset_;
  std::vector<int64_t> indices_;
};

// The samples of several data sets, one after the other. Throws Error if there are none.
class ConcatDataset : public Dataset {
 public:
  explicit ConcatDataset(std::vector<std::shared_ptr<const Dataset>> datasets);
  Example get(int64_t i) const override;
  int64_t size() const override { return ends_.back(); }

 private:
  std::vector<std::shared_ptr<const Dataset>> datasets_;
  std::vector<int64_t> ends_;  // the number after the last sample of each
};

// Sample i is data[i] and target[i]; the target may be undefined. Throws ShapeError unless both
// have the same number of rows.
class TensorDataset : public Dataset {
 public:
  explicit TensorDataset(const Tensor& data, const Tensor& target = {});
  Example get(int64_t i) const override;
  int64_t size() const override { return data_.size(0); }

 private:
  Tensor data_;
  Tensor target_;
};

// Returns subsets of these sizes that share no sample. A seed gives the same subsets on every
// machine. Throws Error unless the sizes add up to the data set's.
std::vector<std::shared_ptr<Subset>> random_split(const std::shared_ptr<const Dataset>& dataset,
                                                  const std::vector<int64_t>& sizes,
                                                  uint64_t seed = 0);

// Stacks tensors of one shape and dtype along a new first dimension; PyTorch calls this collate. If
// all are undefined, so is the result. Throws ShapeError or DTypeError if they differ.
Tensor stack_samples(const std::vector<Tensor>& samples);

}  // namespace ringgrad
