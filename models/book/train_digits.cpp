// The book's program: trains a network on drawn digits, data-parallel, over TCP.
//
//   ringgrad_book [--ranks N] [--epochs N] [--network small|convnet|resnet20] [--folder FOLDER]
//
// It starts N ranks of itself. Each rank takes its share of every epoch. While backward runs,
// gradients are averaged over the ranks bucket by bucket, so all ranks keep the same weights. After
// each epoch rank 0 saves a checkpoint in FOLDER. If the program is started again, it continues
// from there. If a rank dies, the job ends with an error that names it, and with exit code 5.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "ringgrad/autograd/classifier_ops.h"
#include "ringgrad/autograd/thread_modes.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/random.h"
#include "ringgrad/data/data_loader.h"
#include "ringgrad/data/formats/idx.h"
#include "ringgrad/data/sampler.h"
#include "ringgrad/data/synthetic/digits.h"
#include "ringgrad/distributed/buckets/gradient_buckets.h"
#include "ringgrad/distributed/launch.h"
#include "ringgrad/models/cifar_resnet.h"
#include "ringgrad/models/convnet.h"
#include "ringgrad/nn/checkpoint.h"
#include "ringgrad/nn/optim/sgd_and_adam.h"

namespace ringgrad {
namespace {

constexpr int kDigits = 10;
constexpr double kLearningRate = 0.1;  // falls to 0 over the epochs

struct Options {
  int ranks = 2;
  int epochs = 5;
  std::string network = "small";
  std::string folder = "book_run";
};

// Two convolutions that halve the picture's sides, and a linear layer: 10,026 parameters.
struct SmallNet : nn::Module {
  nn::Conv2d conv1{1, 8, 5, {.stride = 2}};
  nn::BatchNorm2d norm1{8};
  nn::Conv2d conv2{8, 16, 3, {.stride = 2}};
  nn::BatchNorm2d norm2{16};
  nn::Linear fc{16 * 5 * 5, kDigits};

  SmallNet() {
    register_module("conv1", conv1);
    register_module("norm1", norm1);
    register_module("conv2", conv2);
    register_module("norm2", norm2);
    register_module("fc", fc);
  }
  Tensor forward(const Tensor& x) override {
    const Tensor y = relu(norm2(conv2(relu(norm1(conv1(x))))));
    return fc(flatten(y, 1));
  }
};

std::shared_ptr<nn::Module> make_network(const std::string& name) {
  if (name == "small") return std::make_shared<SmallNet>();
  if (name == "convnet") return std::make_shared<models::ConvNet>();
  CHECK(name == "resnet20", "--network is '", name, "', expected small, convnet or resnet20");
  return std::make_shared<models::CifarResNet>(20, models::CifarResNetOptions{.in_channels = 1});
}

ImageDataset read_digits(const std::string& folder, const std::string& part) {
  std::vector<std::string> classes;
  for (int digit = 0; digit < kDigits; ++digit) classes.push_back(std::to_string(digit));
  return read_idx_dataset("digits", folder + "/" + part + "-images-idx3-ubyte",
                          folder + "/" + part + "-labels-idx1-ubyte", classes);
}

// Averages tensors that are not gradients, such as the running statistics of batch norm, over the
// ranks.
void average(ProcessGroup& group, const std::vector<Tensor>& tensors) {
  for (const Tensor& x : tensors)
    if (is_floating(x.dtype())) group.all_reduce(x, ReduceOp::Average).wait();
}

// Returns the fraction of the test pictures that the network recognises. Each rank evaluates its
// share.
double accuracy(nn::Module& network, DataLoader& loader, ProcessGroup& group) {
  const NoGradGuard no_gradients;
  network.eval();
  int64_t asked = 0;
  int64_t right = 0;
  for (const Batch& batch : loader) {
    const std::vector<float> scores = to_vector<float>(network(batch.data));
    auto begin = scores.begin();
    for (const int64_t digit : to_vector<int64_t>(batch.target)) {
      const auto end = begin + kDigits;
      right += std::max_element(begin, end) - begin == digit;
      begin = end;
      ++asked;
    }
  }
  network.train();
  const Tensor all_asked = full({}, asked, {.dtype = DType::Int64});
  const Tensor all_right = full({}, right, {.dtype = DType::Int64});
  group.all_reduce(all_asked, ReduceOp::Sum).wait();
  group.all_reduce(all_right, ReduceOp::Sum).wait();
  return static_cast<double>(all_right.item<int64_t>()) / all_asked.item<int64_t>();
}

// Returns the number of epochs that a checkpoint has completed.
int epochs_of(const nn::Checkpoint& saved, const std::string& file) {
  const auto entry = saved.progress.find("epoch");
  const auto epochs =
      entry == saved.progress.end() ? std::nullopt : parse_number<int>(entry->second);
  CHECK_AS(DataError, epochs && *epochs >= 0, file, " does not say how many epochs it has seen, ",
           "so this program has not written it; move it away, or give another --folder");
  return *epochs;
}

void train(const Options& options) {
  ProcessGroup& group = process_group();
  manual_seed(1);  // the same weights on all ranks
  const auto network = make_network(options.network);
  const auto averaged =
      std::make_shared<GradientBuckets>("ringgrad_book", group, network->named_parameters());
  optim::SGD optimizer(network->named_parameters(), {.lr = kLearningRate, .momentum = 0.9});

  int first_epoch = 0;
  const std::string file = options.folder + "/checkpoint.safetensors";
  if (std::filesystem::exists(file)) {
    const nn::Checkpoint saved = nn::load_checkpoint(file);
    first_epoch = epochs_of(saved, file);
    network->load_state_dict(saved.model);
    optimizer.load_state_dict(saved.optimizer);
    if (group.rank() == 0) fmt::print("resumes after epoch {}\n", first_epoch);
  }

  const ImageDataset digits = read_digits(options.folder, "train");
  const ImageDataset unseen = read_digits(options.folder, "t10k");
  const auto sampler =
      std::make_shared<DistributedSampler>(digits.size(), group.size(), group.rank());
  const auto test_sampler = std::make_shared<DistributedSampler>(
      unseen.size(), group.size(), group.rank(),
      DistributedSamplerOptions{.shuffle = false, .pad = false});
  const ImageTransform transform{.mean = {0.13f}, .std = {0.31f}};
  DataLoader loader(digits, sampler, {.batch_size = 16, .transform = transform});
  DataLoader test_loader(unseen, test_sampler, {.batch_size = 100, .transform = transform});

  for (int epoch = first_epoch; epoch < options.epochs; ++epoch) {
    sampler->set_epoch(epoch);  // another order, the same on all ranks
    optimizer.set_lr(kLearningRate * (options.epochs - epoch) / options.epochs);
    for (const Batch& batch : loader) {
      optimizer.zero_grad();
      cross_entropy((*network)(batch.data), batch.target).backward();  // also averages
      optimizer.step();
    }
    average(group, network->buffers());
    const double right = accuracy(*network, test_loader, group);
    if (group.rank() > 0) continue;
    nn::save_checkpoint(file, {.model = network->state_dict(),
                               .optimizer = optimizer.state_dict(),
                               .random = {},
                               .progress = {{"epoch", std::to_string(epoch + 1)}}});
    fmt::print("epoch {}: {:.2f} % of the test digits are recognised\n", epoch + 1, 100 * right);
    std::fflush(stdout);
  }
}

int whole_number(const std::string& option, const std::string& text) {
  const std::optional<int> number = parse_number<int>(text);
  CHECK(number && *number > 0, option, " is '", text, "', expected a whole number from 1 on");
  return *number;
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string option = argv[i];
    CHECK(i + 1 < argc, option, ": expected a value behind it");
    const std::string value = argv[i + 1];
    if (option == "--ranks")
      options.ranks = whole_number(option, value);
    else if (option == "--epochs")
      options.epochs = whole_number(option, value);
    else if (option == "--network")
      options.network = value;
    else if (option == "--folder")
      options.folder = value;
    else
      CHECK(false, option, ": no such option, expected --ranks, --epochs, --network or --folder");
  }
  make_network(options.network);  // throws if there is no network of this name
  return options;
}

int run(int argc, char** argv) {
  const Options options = parse(argc, argv);
  if (!std::filesystem::exists(options.folder + "/t10k-labels-idx1-ubyte")) {
    std::filesystem::create_directories(options.folder);
    make_digits(options.folder);
  }
  return launch([&] { train(options); }, {.num_processes = options.ranks});
}

}  // namespace
}  // namespace ringgrad

int main(int argc, char** argv) {
  try {
    return ringgrad::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "ringgrad_book: {}\n", error.what());
    return 2;
  }
}
