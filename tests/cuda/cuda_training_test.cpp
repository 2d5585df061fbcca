// Training on CUDA devices: the CPU's numbers, and steps that a CUDA graph can record, because
// nothing in them waits for the device.
#include <filesystem>

#include <unistd.h>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/random.h"
#include "ringgrad/cuda_kernels/runtime/graph.h"
#include "ringgrad/nn.h"
#include "ringgrad/nn/checkpoint.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/cuda/cuda_util.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test::cuda_training_test {

namespace {

struct Net : nn::Module {
  nn::Conv2d conv{2, 4, 3, {.padding = 1, .bias = false}};
  nn::BatchNorm2d bn{4};
  nn::Conv2d conv2{4, 4, 3, {.padding = 1}};
  nn::Dropout drop{0.25};
  nn::Linear fc{16, 3};
  Net() {
    register_module("conv", conv);
    register_module("bn", bn);
    register_module("conv2", conv2);
    register_module("drop", drop);
    register_module("fc", fc);
  }
  Tensor forward(const Tensor& x) override {
    const Tensor hidden = bn(conv(x), {.activation = Activation::Relu});
    const Tensor residual = max_pool2d(add(relu(conv2(hidden)), hidden), {.kernel = 4});
    return fc(drop(flatten(residual, 1)));
  }
};

// A network, a batch and an optimizer on a device; the same numbers on every device and in every
// object.
class Trainer {
 public:
  explicit Trainer(Device device) {
    manual_seed(7);
    const Tensor images = rand({6, 2, 8, 8});
    model_ = std::make_unique<Net>();
    model_->to(device);
    images_ = to(images, device);
    labels_ = to(tensor<int64_t>({0, 1, 2, 0, 1, 2}), device);
    loss_ = zeros({}, {.device = device});
    optimizer_ = std::make_unique<optim::SGD>(
        model_->named_parameters(),
        optim::SGDOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 1e-3});
    manual_seed(8);  // dropout draws from the device's own generator
  }

  Tensor step() {
    optimizer_->zero_grad();
    const Tensor loss = cross_entropy((*model_)(images_), labels_, {.label_smoothing = 0.1});
    loss.backward();
    optimizer_->step();
    kernels::copy(loss_, loss);
    return loss;
  }
  void set_lr(double lr) { optimizer_->set_lr(lr); }

  nn::Checkpoint checkpoint() {
    return {.model = model_->state_dict(),
            .optimizer = optimizer_->state_dict(),
            .random = nn::random_state({images_.device()}),
            .progress = {}};
  }
  void load(const nn::Checkpoint& checkpoint) {
    model_->load_state_dict(checkpoint.model);
    optimizer_->load_state_dict(checkpoint.optimizer);
    nn::set_random_state(checkpoint.random, images_.device());
  }

  // Returns everything that training changes, as doubles on the host.
  std::vector<double> state() const {
    std::vector<double> all = to_vector<double>(loss_);
    for (const auto& [name, tensor] : model_->state_dict())
      for (const double value : to_vector<double>(tensor)) all.push_back(value);
    return all;
  }

 private:
  std::unique_ptr<Net> model_;
  Tensor images_;
  Tensor labels_;
  Tensor loss_;
  std::unique_ptr<optim::SGD> optimizer_;
};

const Device kGpu("cuda:0");

}  // namespace

TEST_CASE("training on cuda gives what the CPU gives", "[quick][cuda]") {
  const StreamOrderGuard guard(
      GENERATE(StreamOrder::Eager, StreamOrder::Lazy, StreamOrder::Random));
  Trainer cpu({});
  Trainer gpu(another_device());
  for (int i = 0; i < 4; ++i) {
    cpu.step();
    gpu.step();
  }
  CHECK(difference(gpu.state(), cpu.state(), {DType::Float32, 10000}) == "");
}

TEST_CASE("tensors move between devices whatever the order of their streams", "[quick][cuda]") {
  if (!enough_devices(2)) return;
  const StreamOrderGuard guard(
      GENERATE(StreamOrder::Eager, StreamOrder::Lazy, StreamOrder::Random));
  const Device there("cuda:1");
  // Never the same twice: memory is used again, and must not hold the right answer already.
  static int factor = 2;
  for (int round = 0; round < 8; ++round, ++factor) {
    const Tensor x = ones({100}, {.device = kGpu});
    // This comes after the kernel that computes the message.
    const Tensor multiple = to(mul(x, factor), there);
    REQUIRE(to_vector<double>(multiple) == std::vector<double>(100, factor));
    const Tensor y = to(x, there);
    fill_(x, 0);  // after the copy that reads x
    synchronize(current_stream(kGpu));
    REQUIRE(to_vector<double>(y) == std::vector<double>(100, 1));
  }
}

TEST_CASE("copies from and to the host are done when they return", "[quick][cuda]") {
  const StreamOrderGuard guard(GENERATE(StreamOrder::Lazy, StreamOrder::Random));
  const std::vector<float> expected(100, 1);
  for (int round = 0; round < 8; ++round) {
    const Tensor host = ones({100});
    const Tensor x = to(host, kGpu);
    fill_(host, 0);
    const Tensor dense = zeros({100});
    const Tensor strided = zeros({200}).as_strided({100}, {2}, 0);
    copy_(dense, x);
    copy_(strided, x);
    REQUIRE(to_vector<float>(dense) == expected);
    REQUIRE(to_vector<float>(strided) == expected);
  }
}

TEST_CASE("a checkpoint of one device goes on on another", "[quick][cuda]") {
  const auto path =
      std::filesystem::temp_directory_path() / str("ringgrad-cuda-", getpid(), ".safetensors");
  const Device there = GENERATE(Device(), kGpu);
  if (there.is_cuda() && !enough_devices(2)) return;
  Trainer source(another_device());
  Trainer target(there);
  source.step();
  source.step();
  nn::save_checkpoint(path, source.checkpoint());
  target.step();
  target.load(nn::load_checkpoint(path));
  std::filesystem::remove(path);
  source.step();
  target.step();  // with the dropout that it would have had there
  CHECK(difference(target.state(), source.state(), {DType::Float32, 10000}) == "");
}

TEST_CASE("a captured step trains as the step itself does, and follows the learning rate",
          "[quick][cuda]") {
  const StreamOrderGuard guard(GENERATE(StreamOrder::Eager, StreamOrder::Random));
  std::vector<double> expected;
  {
    Trainer eager(kGpu);
    for (int i = 0; i < 5; ++i) {
      eager.set_lr(0.1 / (i + 1));
      eager.step();
    }
    expected = eager.state();
  }
  Trainer captured(kGpu);
  captured.step();
  const cuda::Graph graph = cuda::capture(kGpu, [&] { captured.step(); });
  for (int i = 1; i < 5; ++i) {
    captured.set_lr(0.1 / (i + 1));
    graph.launch(current_stream(kGpu));
  }
  REQUIRE(captured.state() == expected);
}

TEST_CASE("a step that waits for the device cannot be captured", "[quick][cuda]") {
  Trainer trainer(kGpu);
  trainer.step();
  const auto capture_failure = [&](const std::function<void(const Tensor& loss)>& wait) {
    return failure([&] { cuda::capture(kGpu, [&] { wait(trainer.step()); }); });
  };
  const std::string forbidden = "cudaErrorStreamCaptureUnsupported";
  REQUIRE(contains(capture_failure([](const Tensor& loss) { loss.item<float>(); }), forbidden));
  REQUIRE(contains(capture_failure([](const Tensor& loss) { to(loss, Device()); }), forbidden));
  REQUIRE(contains(capture_failure([](const Tensor&) { synchronize(current_stream(kGpu)); }),
                   forbidden));
  trainer.step();  // and the device can be used afterwards
  REQUIRE(std::isfinite(trainer.state()[0]));
}

}  // namespace ringgrad::test::cuda_training_test
