// Data-parallel training, all of it: a small ConvNet on generated digits. ./ddp starts two ranks by
// itself; in those that `ringgrad launch -n 4 -- ./ddp`, torchrun, mpirun or srun has started,
// launch() just calls train().
#include <cstdio>

#include <ringgrad/ringgrad.h>

using namespace ringgrad;

struct Net : nn::Module {
  nn::Conv2d conv{1, 8, 5};
  nn::Linear fc{8 * 12 * 12, 10};
  Net() { register_module("conv", conv), register_module("fc", fc); }
  Tensor forward(const Tensor& x) override {
    return fc(flatten(max_pool2d(relu(conv(x)), {.kernel = 2}), 1));
  }
};

void train() {  // on every rank
  ProcessGroup& group = process_group();
  // Generated into that directory if they are missing.
  const ImageDataset digits = load_dataset("digits", Split::Train, data_directory(""));
  const auto sampler =
      std::make_shared<DistributedSampler>(digits.size(), group.size(), group.rank());
  DataLoader loader(digits, sampler,
                    {.batch_size = 32, .transform = {.mean = {0.13f}, .std = {0.31f}}});
  Net model;
  DistributedDataParallel ddp(model, group);  // from here on all ranks have rank 0's weights
  optim::SGD optimizer(ddp.parameters(), {.lr = 0.05, .momentum = 0.9});
  for (int epoch = 0; epoch < 2; ++epoch) {
    sampler->set_epoch(epoch);  // another order, the same on all ranks
    const Tensor sum = zeros({});
    for (const Batch& batch : loader) {  // this rank's part of the data
      optimizer.zero_grad();
      const Tensor loss = cross_entropy(ddp(batch.data), batch.target);
      loss.backward();  // averages the gradients over the ranks while it runs
      optimizer.step();
      sum += loss.detach();
    }
    group.all_reduce(sum, ReduceOp::Average).wait();
    if (group.is_main_process())
      std::printf("epoch %d: loss %.4f\n", epoch, sum.item<float>() / loader.size());
  }
  // A hash: ranks that differ would be an error.
  std::printf("weights %016lx\n", ddp.check_identical());
}

int main() { return launch(train, {.num_processes = 2}); }
