// Random networks and batches for random_ddp.cpp. A seed names them, and they are the same on every
// rank and in one process.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/random.h"
#include "ringgrad/nn.h"

namespace ringgrad::test {

// Makes choices from a seed.
class Choices {
 public:
  explicit Choices(uint64_t seed, uint64_t stream = 0) : sequence_(seed, Purpose::Shapes, stream) {}
  int64_t below(int64_t n) {
    return static_cast<int64_t>(sequence_.below(static_cast<uint64_t>(n)));
  }
  int64_t between(int64_t low, int64_t high) { return low + below(high - low + 1); }
  bool chance(int percent) { return below(100) < percent; }
  template <class T>
  T of(const std::vector<T>& values) {
    return values[static_cast<size_t>(below(static_cast<int64_t>(values.size())))];
  }

 private:
  RandomSequence sequence_;
};

struct NetworkOptions {
  DType dtype = DType::Float64;
  bool batch_norm = true;
  bool counts = true;  // buffers that forward writes
};

// A chain of layers on images [N, 2, 4, 4], then on rows of features, to 3 classes. Some layers are
// special: one that is used twice, two that share their weight, one that no loss depends on, one
// that only some steps use, frozen ones. It may have buffers of integers, of booleans and of each
// floating dtype, which forward writes or leaves alone.
class RandomNetwork : public nn::Module {
 public:
  RandomNetwork(uint64_t seed, const NetworkOptions& options);
  // body() and head() may be in one wrapper each, or both in one.
  Tensor forward(const Tensor& x) override { return head()(body()(x)); }
  nn::Module& body() { return *body_; }
  nn::Module& head() { return *head_; }
  bool has_batch_norm() const { return has_batch_norm_; }
  void use_branch(bool on);  // in the following steps
  std::string description() const { return text_; }

 private:
  std::shared_ptr<nn::Module> body_;
  std::shared_ptr<nn::Module> head_;
  bool has_batch_norm_ = false;
  std::string text_;
};

// Makes a batch of n samples, the same on every rank. The values are of order 1. The labels are
// below 3, and some are -100 if that is wanted.
struct Batch3 {
  Tensor x;
  Tensor target;
};
Batch3 random_batch(uint64_t seed, int64_t number, int64_t samples, DType dtype, bool unlabelled);

double epsilon_of(DType dtype);  // floating: from 1 to the next number

}  // namespace ringgrad::test
