// Data-parallel ranks as threads of a test: small networks, data, and training on 1 … n ranks.
#pragma once

#include <cmath>
#include <mutex>

#include "ringgrad/autograd/engine.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/random.h"
#include "ringgrad/distributed/distributed_data_parallel.h"
#include "ringgrad/nn.h"
#include "ringgrad/nn/optim/optimizers.h"
#include "ringgrad/tests/distributed/host_groups.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test {

// Catch2's macros belong to the test's own thread.
inline void must(bool condition, const std::string& what) {
  if (!condition) throw Error(what);
}

// The body throws an error with these words on every rank, and the group lives on. (A rank that
// ended with it would take the others along, wherever they are.)
template <class Body>
void must_be_refused(ProcessGroup& group, const std::string& words, Body body) {
  std::string error = "nothing was refused";
  try {
    body();
  } catch (const std::exception& e) {
    error = e.what();
  }
  must(error.find(words) != std::string::npos, error);
  group.barrier().wait();
}

// Throws the error of the first failing rank.
template <class Body>
void run_ddp_ranks(int size, Body body, const char* channel = "shm") {
  const auto errors = errors_of_ranks(host_groups(size, channel), body);
  for (size_t r = 0; r < errors.size(); ++r)
    if (!errors[r].empty()) throw Error("on rank " + std::to_string(r) + ": " + errors[r]);
}

// Makes a network in a rank's thread. Initialisation draws from the process's one generator, so one
// lock guards networks of all kinds.
inline std::mutex generator_mutex;
template <class Net, class... Args>
std::unique_ptr<Net> make_seeded(uint64_t seed, Args&&... args) {
  const std::lock_guard lock(generator_mutex);
  manual_seed(seed);
  return std::make_unique<Net>(std::forward<Args>(args)...);
}

// Does the same, with all parameters and floating buffers in one dtype.
template <class Net, class... Args>
std::unique_ptr<Net> make_net(uint64_t seed, DType dtype, Args&&... args) {
  auto net = make_seeded<Net>(seed, std::forward<Args>(args)...);
  net->to(dtype);
  return net;
}

struct SmallCnn : nn::Module {
  nn::Conv2d conv1{1, 4, 3, {.padding = 1}};
  nn::Conv2d conv2{4, 8, 3, {.padding = 1}};
  nn::Linear fc{8 * 4 * 4, 10};
  SmallCnn() {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("fc", fc);
  }
  Tensor forward(const Tensor& x) override {
    const Tensor h = max_pool2d(relu(conv1(x)), {.kernel = 2});
    return fc(flatten(relu(conv2(h)), 1));
  }
};

struct Mlp : nn::Module {
  nn::Linear first{6, 16};
  nn::Linear middle{16, 16};
  nn::Linear last{16, 3};
  Mlp() {
    register_module("first", first);
    register_module("middle", middle);
    register_module("last", last);
  }
  Tensor forward(const Tensor& x) override { return last(relu(middle(relu(first(x))))); }
};

// For images [N, 1, 8, 8]: six parameters, and buffers of two dtypes.
struct NormedCnn : nn::Module {
  nn::Conv2d conv{1, 4, 3, {.padding = 1}};
  nn::BatchNorm2d bn{4};
  nn::Linear fc{4 * 4 * 4, 3};
  NormedCnn() {
    register_module("conv", conv);
    register_module("bn", bn);
    register_module("fc", fc);
  }
  Tensor forward(const Tensor& x) override {
    return fc(flatten(max_pool2d(relu(bn(conv(x))), {.kernel = 2}), 1));
  }
};

// For images [N, 1, 8, 8]: two batch norms, of which the second one has all that can be fused.
struct TwiceNormedCnn : nn::Module {
  nn::Conv2d conv1{1, 4, 3, {.padding = 1, .bias = false}};
  nn::Conv2d conv2{4, 4, 3, {.padding = 1, .bias = false}};
  nn::BatchNorm2d bn1{4};
  nn::BatchNorm2d bn2{4};
  nn::Linear fc;
  explicit TwiceNormedCnn(int64_t classes = 10) : fc(4 * 4 * 4, classes) {
    register_module("conv1", conv1);
    register_module("bn1", bn1);
    register_module("conv2", conv2);
    register_module("bn2", bn2);
    register_module("fc", fc);
  }
  Tensor forward(const Tensor& x) override {
    const Tensor h = bn1(conv1(x), {.activation = Activation::Relu});
    return fc(
        flatten(bn2(conv2(h), {.activation = Activation::Relu, .residual = h, .max_pool = 2}), 1));
  }
};

// Samples [begin, end) of an endless data set, of which rank r of n has every n-th.
struct Samples {
  Tensor x;
  Tensor target;
};
inline Samples samples(const Shape& shape, int64_t classes, DType dtype, int64_t begin, int64_t end,
                       int rank = 0, int ranks = 1) {
  std::vector<double> values;
  std::vector<int64_t> targets;
  for (int64_t i = begin + rank; i < end; i += ranks) {
    for (int64_t k = 0; k < shape.numel(); ++k)
      values.push_back(
          uniform_from(philox(7, static_cast<uint64_t>(i * shape.numel() + k)).word[0]) * 2 - 1);
    targets.push_back(static_cast<int64_t>(philox(8, static_cast<uint64_t>(i)).word[0] %
                                           static_cast<uint64_t>(classes)));
  }
  std::vector<int64_t> sizes{static_cast<int64_t>(targets.size())};
  sizes.insert(sizes.end(), shape.begin(), shape.end());
  const Tensor x = empty(Shape(sizes), {.dtype = dtype});
  copy_(x, tensor(values, x.shape()));
  return {x, tensor(targets)};
}

inline std::vector<double> flat_values(const nn::Module& module) {
  std::vector<double> all;
  for (const auto& [name, tensor] : module.state_dict()) {
    const auto values = to_vector<double>(tensor);
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

// REQUIRES: every parameter has a gradient.
inline std::vector<double> gradients(const nn::Module& module) {
  std::vector<double> all;
  for (const Tensor& parameter : module.parameters()) {
    const auto values = to_vector<double>(parameter.grad());
    all.insert(all.end(), values.begin(), values.end());
  }
  return all;
}

// Returns |a - b| / |b|, of all values as one vector.
inline double relative_difference(const std::vector<double>& a, const std::vector<double>& b) {
  if (a.size() != b.size()) return INFINITY;
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    difference += (a[i] - b[i]) * (a[i] - b[i]);
    norm += b[i] * b[i];
  }
  return difference == 0 ? 0 : std::sqrt(difference / norm);  // both may be all zeros
}

// Returns the distance by which training may drift from the same training with another order of
// additions. All later steps carry a rounding on, which no short bound covers. But it is the same
// multiple of u in each type, as long as no rounding decides what a ReLU lets through. So both
// types get the same multiple, and float64 shows mistakes: its tolerance is 1e-12, while a missing
// or repeated sample changes the weights by 1e-3 and more.
inline double training_tolerance(DType dtype) { return 1e4 * machine_epsilon(dtype) / 2; }

}  // namespace ringgrad::test
