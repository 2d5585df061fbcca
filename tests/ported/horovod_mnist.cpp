// MNIST as Horovod's example pytorch_mnist trains it: on several processes, whose number multiplies
// the learning rate; metrics are averaged over them:
//   horovod_mnist [--data NAME] [--batch-size N] [--test-batch-size N] [--epochs N] [--lr F]
//                 [--momentum F] [--seed N] [--log-interval N] [--fp16-allreduce 0|1]
//                 [--processes N] [--accuracy F]
#include <cstdio>
#include <map>
#include <stdexcept>
#include <string>

#include <ringgrad/ringgrad.h>

using namespace ringgrad;

struct Net : nn::Module {
  nn::Conv2d conv1{1, 10, 5};
  nn::Conv2d conv2{10, 20, 5};
  nn::Dropout2d conv2_drop;
  nn::Linear fc1{320, 50};
  nn::Linear fc2{50, 10};
  Net() {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("conv2_drop", conv2_drop);
    register_module("fc1", fc1);
    register_module("fc2", fc2);
  }
  Tensor forward(const Tensor& images) override {
    Tensor x = relu(max_pool2d(conv1(images), 2));
    x = relu(max_pool2d(conv2_drop(conv2(x)), 2));
    x = x.view({-1, 320});
    x = relu(fc1(x));
    x = dropout(x, 0.5, is_training());
    x = fc2(x);
    return log_softmax(x, 1);
  }
};

// The ranks' mean of a number.
static double metric_average(double value) {
  const Tensor average = scalar(value, {.dtype = DType::Float64});
  process_group().all_reduce(average, ReduceOp::Average).wait();
  return average.item<double>();
}

static void train(int epoch, DistributedDataParallel& model, DataLoader& loader,
                  DistributedSampler& sampler, optim::Optimizer& optimizer, int64_t log_interval) {
  model.train();
  sampler.set_epoch(epoch);
  for (int64_t batch_idx = 0; const Batch& batch : loader) {
    optimizer.zero_grad();
    const Tensor output = model(batch.data);
    const Tensor loss = nll_loss(output, batch.target);
    loss.backward();
    optimizer.step();
    if (batch_idx++ % log_interval == 0 && process_group().is_main_process())
      std::printf("epoch %d: batch %ld of %ld, loss %.6f\n", epoch, batch_idx, loader.size(),
                  loss.item<double>());
  }
}

static double test(nn::Module& model, DataLoader& loader, const DistributedSampler& sampler) {
  NoGradGuard no_grad;
  model.eval();
  double test_loss = 0;
  double test_accuracy = 0;
  for (const Batch& batch : loader) {
    const Tensor output = model(batch.data);
    test_loss += nll_loss(output, batch.target, {.reduction = Reduction::Sum}).item<double>();
    const Tensor pred = output.argmax(1, /*keepdim=*/true);
    test_accuracy += pred.eq(batch.target.view_as(pred)).to(DType::Float32).sum().item<double>();
  }
  const double samples = static_cast<double>(sampler.size());
  test_loss = metric_average(test_loss / samples);
  test_accuracy = metric_average(test_accuracy / samples);
  if (process_group().is_main_process())
    std::printf("test: average loss %.4f, accuracy %.4f\n", test_loss, test_accuracy);
  return test_accuracy;
}

using Options = std::map<std::string, std::string>;

static void run(const Options& options) {  // on every rank
  const auto number = [&](const char* name) { return std::stod(options.at(name)); };
  ProcessGroup& group = process_group();
  manual_seed(std::stoull(options.at("--seed")));
  const ImageTransform normalize = {.mean = {0.1307f}, .std = {0.3081f}};
  const ImageDataset train_dataset = load_dataset(options.at("--data"), Split::Train);
  const ImageDataset test_dataset = load_dataset(options.at("--data"), Split::Test);
  const auto train_sampler =
      std::make_shared<DistributedSampler>(train_dataset.size(), group.size(), group.rank());
  const auto test_sampler =
      std::make_shared<DistributedSampler>(test_dataset.size(), group.size(), group.rank());
  DataLoader train_loader(train_dataset, train_sampler,
                          {.batch_size = std::stoll(options.at("--batch-size")),
                           .num_workers = 1,
                           .transform = normalize});
  DataLoader test_loader(test_dataset, test_sampler,
                         {.batch_size = std::stoll(options.at("--test-batch-size")),
                          .num_workers = 1,
                          .transform = normalize});

  Net model;
  // Rank 0's parameters are everybody's from here on, as from hvd.broadcast_parameters().
  DistributedDataParallel distributed(model, group);
  if (std::stoi(options.at("--fp16-allreduce")) != 0)
    distributed.register_comm_hook(fp16_compress_hook());
  const double lr_scaler = group.size();
  optim::SGD optimizer(distributed.named_parameters(),
                       {.lr = number("--lr") * lr_scaler, .momentum = number("--momentum")});
  // Other elements are dropped on every rank.
  manual_seed(std::stoull(options.at("--seed")) + static_cast<uint64_t>(group.rank()));
  for (const auto& [name, state] : optimizer.state_dict()) group.broadcast(state, 0).wait();

  double accuracy = 0;
  for (int epoch = 1; epoch <= std::stoi(options.at("--epochs")); ++epoch) {
    train(epoch, distributed, train_loader, *train_sampler, optimizer,
          std::stoll(options.at("--log-interval")));
    accuracy = test(model, test_loader, *test_sampler);
  }
  distributed.check_identical();
  if (accuracy < number("--accuracy"))
    throw std::runtime_error("accuracy less than " + options.at("--accuracy"));
}

int main(int argc, char** argv) {
  Options options = {{"--data", "digits"}, {"--batch-size", "64"},
                     {"--epochs", "10"},   {"--test-batch-size", "1000"},
                     {"--lr", "0.01"},     {"--momentum", "0.5"},
                     {"--seed", "42"},     {"--log-interval", "10"},
                     {"--processes", "2"}, {"--fp16-allreduce", "0"},
                     {"--accuracy", "0"}};
  for (int i = 1; i + 1 < argc; i += 2) options[argv[i]] = argv[i + 1];
  return launch([&] { run(options); }, {.num_processes = std::stoi(options["--processes"])});
}
