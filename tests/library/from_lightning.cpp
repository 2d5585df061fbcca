// docs/from_lightning.md shows it beside Lightning's: two ranks, a schedule, gradients of two
// batches a step, clipped, the best weights kept. DATA [EPOCHS].
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include <ringgrad/ringgrad.h>

using namespace ringgrad;

double accuracy(nn::Module& net, DataLoader& loader, ProcessGroup& group) {
  NoGradGuard no_grad;
  net.eval();
  const Tensor right = zeros({2});  // those that are right, and all, of every rank
  for (const Batch& batch : loader)
    right += tensor<float>({net(batch.data).argmax(1).eq(batch.target).sum().item<float>(),
                            static_cast<float>(batch.target.numel())});
  net.train();
  group.all_reduce(right).wait();
  return right[0].item<float>() / right[1].item<float>();
}

void fit(const char* name, int epochs) {  // on every rank
  ProcessGroup& group = process_group();
  manual_seed(1);
  nn::Sequential net(nn::Flatten(), nn::Linear(784, 128), nn::ReLU(), nn::Linear(128, 10));
  DistributedDataParallel ddp(net, group);
  optim::Adam optimizer(ddp.parameters(), {.lr = 1e-3});
  optim::LRScheduler scheduler(optimizer, optim::CosineAnnealingLR{.t_max = epochs});
  const auto loader = [&](Split split, const DistributedSamplerOptions& options) {
    const ImageDataset data = load_dataset(name, split);
    const auto sampler =
        std::make_shared<DistributedSampler>(data.size(), group.size(), group.rank(), options);
    return DataLoader(data, sampler, {.batch_size = 32, .num_workers = 1});
  };
  DataLoader train = loader(Split::Train, {});
  DataLoader test = loader(Split::Test, {.shuffle = false, .pad = false});
  double best = 0;
  for (int epoch = 0; epoch < epochs; ++epoch, scheduler.step()) {
    for (int64_t number = 1; const Batch& batch : train) {
      const bool last = number++ % 2 == 0 || number > train.size();
      const auto loss = [&] { return cross_entropy(ddp(batch.data), batch.target) / 2; };
      if (!last) {
        const auto no_sync = ddp.no_sync();
        loss().backward();
        continue;
      }
      loss().backward();
      optim::clip_grad_norm_(ddp.parameters(), 1.0);
      optimizer.step();
      optimizer.zero_grad();
    }
    const double reached = accuracy(net, test, group);
    if (group.is_main_process()) std::printf("epoch %d: accuracy %.4f\n", epoch + 1, reached);
    if (group.is_main_process() && reached > best)
      nn::save_safetensors("best.safetensors", net.state_dict());
    best = std::max(best, reached);
  }
}

int main(int argc, char** argv) {
  return launch([&] { fit(argc > 1 ? argv[1] : "mnist", argc > 2 ? std::atoi(argv[2]) : 3); },
                {.num_processes = 2});
}
