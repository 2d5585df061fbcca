// MNIST on several processes that average their gradients by hand, as PyTorch's C++ example does
// over MPI:
//   dist_mnist [DATA SET] [EPOCHS] [ACCURACY WANTED] [PROCESSES]
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include <ringgrad/ringgrad.h>

using namespace ringgrad;

struct Model : nn::Module {
  nn::Conv2d conv1{1, 10, 5};
  nn::Conv2d conv2{10, 20, 5};
  nn::Linear fc1{320, 50};
  nn::Linear fc2{50, 10};
  Model() {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("fc1", fc1);
    register_module("fc2", fc2);
  }
  Tensor forward(const Tensor& images) override {
    Tensor x = relu(max_pool2d(conv1(images), 2));
    x = relu(max_pool2d(dropout(conv2(x), 0.5, is_training()), 2));
    x = x.view({-1, 320});
    x = relu(fc1(x));
    x = dropout(x, 0.5, is_training());
    return log_softmax(fc2(x), 1);
  }
};

static void average_gradients(nn::Module& model, ProcessGroup& group) {
  std::vector<Work> works;
  for (const auto& [name, parameter] : model.named_parameters())
    works.push_back(group.all_reduce(parameter.grad(), ReduceOp::Sum, {.async = true}));
  for (Work& work : works) work.wait();
  for (const Tensor& parameter : model.parameters()) parameter.grad() /= group.size();
}

static double test(Model& model, const ImageDataset& data, const ImageTransform& normalize) {
  NoGradGuard no_grad;
  model.eval();
  DataLoader loader(data, std::make_shared<SequentialSampler>(data.size()),
                    {.batch_size = 1000, .transform = normalize});
  int64_t correct = 0;
  for (const Batch& batch : loader)
    correct += model(batch.data).argmax(1).eq(batch.target).sum().item<int64_t>();
  return static_cast<double>(correct) / static_cast<double>(data.size());
}

static void train(const char* name, int epochs, double wanted) {  // on every rank
  ProcessGroup& group = process_group();
  const ImageTransform normalize = {.mean = {0.1307f}, .std = {0.3081f}};
  const ImageDataset data = load_dataset(name, Split::Train);
  const auto sampler =
      std::make_shared<DistributedSampler>(data.size(), group.size(), group.rank());
  DataLoader loader(data, sampler, {.batch_size = 64, .transform = normalize});

  manual_seed(0);  // the same weights on every rank
  Model model;
  manual_seed(static_cast<uint64_t>(group.rank()));  // and other elements that are dropped
  optim::SGD optimizer(model.parameters(), {.lr = 0.01, .momentum = 0.5});
  for (int epoch = 1; epoch <= epochs; ++epoch) {
    model.train();
    int64_t correct = 0;
    for (const Batch& batch : loader) {
      optimizer.zero_grad();
      const Tensor prediction = model(batch.data);
      nll_loss(prediction, batch.target).backward();
      average_gradients(model, group);
      optimizer.step();
      correct += prediction.argmax(1).eq(batch.target).sum().item<int64_t>();
    }
    std::printf("rank %d: %ld right in epoch %d\n", group.rank(), correct, epoch);
  }
  for (const auto& [parameter_name, parameter] : model.named_parameters()) {
    const Tensor first = parameter.detach().clone();
    group.broadcast(first, 0);
    if (!equal(first, parameter))
      throw std::runtime_error(parameter_name + " differs from rank 0's");
  }
  if (group.rank() != 0) return;
  const double accuracy = test(model, load_dataset(name, Split::Test), normalize);
  std::printf("test: accuracy %.4f\n", accuracy);
  if (accuracy < wanted) throw std::runtime_error("less than " + std::to_string(wanted));
}

int main(int argc, char** argv) {
  const char* name = argc > 1 ? argv[1] : "digits";
  const int epochs = argc > 2 ? std::atoi(argv[2]) : 10;
  const double wanted = argc > 3 ? std::atof(argv[3]) : 0;
  return launch([&] { train(name, epochs, wanted); },
                {.num_processes = argc > 4 ? std::atoi(argv[4]) : 2});
}
