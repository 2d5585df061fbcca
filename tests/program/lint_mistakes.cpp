// A program of two ranks that makes the mistake it is told to make, or none, for lint_test.py:
//   lint_mistakes clean | other-parameters | unstepped | training-mode | … [PROCESSES]
#include <cstdio>
#include <cstdlib>
#include <string>

#include <ringgrad/ringgrad.h>

using namespace ringgrad;

namespace {

std::string mistake;
bool makes(const char* name) { return mistake == name; }

constexpr int64_t kSamples = 30;
constexpr int64_t kFeatures = 6;

struct Net : nn::Module {
  nn::Linear fc1{kFeatures, 8};
  nn::Linear fc2{8, 2};
  nn::BatchNorm1d bn{8};
  Net() {
    register_module("fc1", fc1);
    register_module("bn", bn);
    register_module("fc2", fc2);
  }
  Tensor forward(const Tensor& x) override {
    return fc2(dropout(relu(bn(fc1(x))), 0.1, is_training()));
  }
};

Batch make_batch(std::span<const int64_t> indices, int64_t) {
  const auto n = static_cast<int64_t>(indices.size());
  Batch batch{.data = empty({n, kFeatures}), .target = empty({n}, {.dtype = DType::Int64})};
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t k = 0; k < kFeatures; ++k)
      batch.data.data<float>()[i * kFeatures + k] =
          static_cast<float>((indices[i] * 7 + k * 3) % 11) / 11;
    batch.target.data<int64_t>()[i] = indices[i] % 2;
  }
  return batch;
}

double accuracy(Net& net, ProcessGroup& group) {
  NoGradGuard no_grad;
  if (!makes("training-mode")) net.eval();
  const auto sampler = std::make_shared<DistributedSampler>(
      kSamples - 1, group.size(), group.rank(),
      DistributedSamplerOptions{.shuffle = makes("shuffled"), .pad = makes("padded")});
  DataLoader loader(make_batch, sampler, {.batch_size = 8});
  const Tensor right = zeros({}, {.dtype = DType::Int64});
  for (const Batch& batch : loader) right += net(batch.data).argmax(1).eq(batch.target).sum();
  if (!makes("own-metrics")) group.all_reduce(right).wait();
  net.train();
  return static_cast<double>(right.item<int64_t>()) / (kSamples - 1);
}

void train() {
  ProcessGroup& group = process_group();
  const int ranks = makes("same-samples") ? 1 : group.size();
  const int rank = makes("same-samples") ? 0 : group.rank();
  const auto sampler = std::make_shared<DistributedSampler>(kSamples, ranks, rank);
  const int64_t batch_size = makes("batches") ? 4 + group.rank() : 5;
  DataLoader loader(make_batch, sampler, {.batch_size = batch_size, .drop_last = true});
  Net net;
  Net other;
  optim::SGD before((makes("other-parameters") ? other : net).parameters(), {.lr = 0.1});
  DistributedDataParallel ddp(net, group);
  const std::vector<Tensor> all = ddp.parameters();
  optim::SGD some(std::vector<Tensor>(all.begin(), all.begin() + 2), {.lr = 0.1});
  optim::SGD& optimizer = makes("unstepped") ? some : before;
  for (int epoch = 0; epoch < 2; ++epoch) {
    sampler->set_epoch(makes("same-order") ? 0 : epoch);
    optimizer.set_lr(makes("rates") && epoch == 1 ? 0.1 / (1 + group.rank()) : 0.1);
    double sum = 0;
    Tensor losses = zeros({});
    int64_t step = 0;
    for (const Batch& batch : loader) {
      if (++step > 2) break;  // ranks with batches of other sizes have others
      optimizer.zero_grad();
      const Tensor loss = cross_entropy(ddp(batch.data), batch.target);
      loss.backward();
      optimizer.step();
      if (makes("own-loss")) sum += loss.item<float>();
      losses += loss.detach();
    }
    if (makes("own-loss") && group.is_main_process()) std::printf("loss %.3f\n", sum);
    if (makes("own-loss")) continue;
    if (!makes("own-metrics")) group.all_reduce(losses, ReduceOp::Average).wait();
    const double right = accuracy(net, group);
    if (group.is_main_process())
      std::printf("loss %.3f, accuracy %.3f\n", losses.item<float>(), right);
  }
}

}  // namespace

int main(int argc, char** argv) {
  mistake = argc > 1 ? argv[1] : "clean";
  return launch(train, {.num_processes = argc > 2 ? std::atoi(argv[2]) : 2});
}
