// On CUDA devices images lie as NHWC from the first convolution to the last pooling, and no
// operation between them reorders them, forward or backward. Networks compute the same as on the
// CPU.
#include <functional>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/core/random.h"
#include "ringgrad/models/convnet.h"
#include "ringgrad/models/resnet.h"
#include "ringgrad/nn.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test::cuda_layout_test {

namespace {

const Device kGpu("cuda:0");
constexpr int64_t kBatch = 3;  // no weight has as many filters

// Copies that move the channels of 4-D tensors to another place in memory.
struct Reorders {
  int images = 0;
  int weights = 0;
};
Reorders reorders;

class Counter final : public KernelObserver {
  void call(const ObservedCall& call, const std::function<void()>& run) override {
    if (call.kernel.name() == std::string("copy")) {
      const Tensor& y = *call.tensor(0);
      const Tensor& x = *call.tensor(1);
      if (x.dim() == 4 && (x.stride(1) == 1) != (y.stride(1) == 1))
        ++(x.size(0) == kBatch ? reorders.images : reorders.weights);
    }
    run();
  }
};

Reorders reorders_of(const std::function<void()>& body) {
  reorders = {};
  Counter counter;
  KernelObserver::set_current(&counter);
  body();
  KernelObserver::set_current(nullptr);
  return reorders;
}

Tensor random(const Shape& shape, DType dtype = DType::Float32) {
  return to(to(randn(shape), dtype), kGpu).detach();
}

// Returns the results of the network's step on a batch of images: the loss and every gradient.
std::vector<double> step(nn::Module& network, const Tensor& images) {
  const Tensor labels = to(tensor<int64_t>({2, 0, 1}), images.device());
  const Tensor loss = cross_entropy(to(network(images), DType::Float32), labels);
  loss.backward();
  std::vector<double> all = to_vector<double>(loss);
  for (const auto& [name, parameter] : network.named_parameters())
    for (const double value : to_vector<double>(parameter.grad())) all.push_back(value);
  return all;
}

template <class Block, class... Args>
void check_block(DType dtype, int64_t in_channels, const Args&... args) {
  manual_seed(1);
  Block block(in_channels, args...);
  block.to(kGpu);
  block.to(dtype);
  const Tensor x = to_layout(random({kBatch, in_channels, 6, 6}, dtype), Layout::ChannelsLast)
                       .set_requires_grad();
  Tensor y;
  Reorders seen = reorders_of([&] { y = block(relu(x)); });
  CHECK(seen.images == 0);
  CHECK(y.layout() == Layout::ChannelsLast);
  const Tensor dy = to_layout(random(y.shape(), dtype), Layout::ChannelsLast);
  seen = reorders_of([&] { y.backward(dy); });
  CHECK(seen.images == 1);  // the gradient of a leaf is contiguous
}

}  // namespace

TEST_CASE("cuda: images are not reordered inside residual blocks", "[quick][cuda][layout]") {
  const DType dtype = GENERATE(DType::Float32, DType::BFloat16);
  INFO(dtype);
  using models::Shortcut;
  check_block<models::BasicBlock>(dtype, 16, 16, 1);
  check_block<models::BasicBlock>(dtype, 16, 32, 2, Shortcut::Projection);
  check_block<models::BasicBlock>(dtype, 16, 32, 2, Shortcut::Padding);
  check_block<models::Bottleneck>(dtype, 32, 8, 1);
  check_block<models::Bottleneck>(dtype, 16, 8, 2);
}

TEST_CASE("cuda: a network reorders no image, and each weight once", "[quick][cuda][layout]") {
  const DType dtype = GENERATE(DType::Float32, DType::BFloat16);
  const models::Shortcut shortcut =
      GENERATE(models::Shortcut::Padding, models::Shortcut::Projection);
  models::CifarResNet network(8, {.num_classes = 3, .shortcut = shortcut});
  network.to(kGpu);
  network.to(dtype);
  const Tensor images = random({kBatch, 3, 8, 8}, dtype);
  const ProviderGuard ours(Provider::Native);  // cuDNN takes weights as they are
  const Reorders seen = reorders_of([&] { step(network, images); });
  CHECK(seen.images == 0);
  // These are the weights of seven 3×3 convolutions, for y and dx. dw gets its order when its parts
  // are added up. Weights of 1×1 have the same bytes in both orders.
  CHECK(seen.weights == 7);
}

TEST_CASE("cuda: images that are flattened are reordered there alone", "[quick][cuda][layout]") {
  models::ConvNet network({.num_classes = 3, .image_size = 8});
  network.to(kGpu);
  const Tensor images = random({kBatch, 1, 8, 8});
  CHECK(reorders_of([&] { step(network, images); }).images == 2);  // and their gradient
}

TEST_CASE("cuda: other operations on images keep their layout", "[quick][cuda][layout]") {
  for (const DType dtype : {DType::Float32, DType::BFloat16}) {
    const Tensor x = to_layout(random({kBatch, 8, 6, 6}, dtype), Layout::ChannelsLast);
    const Tensor per_channel = random({8, 1, 1}, dtype);
    const Tensor w = random({8, 4, 3, 3}, dtype);
    const Tensor few = random({kBatch, 3, 6, 6}, dtype);
    const Tensor first = random({8, 3, 3, 3}, dtype);
    const auto results = [&]() -> std::vector<Tensor> {
      return {relu(x),
              gelu(x),
              exp(x),
              add(x, 1.0),
              mul(x, x),
              add(x, per_channel),
              sub(per_channel, x),
              pad(x, {1, 1}),
              to(x, DType::Float32),
              max_pool2d(x, {}),
              avg_pool2d(x, {}),
              adaptive_avg_pool2d(x, 2),
              batch_norm(x, {}, {}, {}, {}, {}),
              batch_norm(x, {}, {}, {}, {}, {.max_pool = 2}),
              conv2d(few, first),
              conv2d(x, w, {}, {.padding = 1, .groups = 2}),
              conv2d(x, random({8, 8, 3, 3}, dtype), {}, {.padding = 2, .dilation = 2}),
              conv_transpose2d(x, random({8, 4, 2, 2}, dtype), {}, {.stride = 2})};
    };
    std::vector<Tensor> all;
    // For tensor cores the 3 channels become eight, because 8 filters are too few for
    // conv2d_first_layer.cu.
    CHECK(reorders_of([&] { all = results(); }).images == (dtype == DType::BFloat16 ? 1 : 0));
    for (size_t i = 0; i < all.size(); ++i) {
      INFO("result " << i << ", " << dtype);
      CHECK(all[i].layout() == Layout::ChannelsLast);
    }
  }
}

TEST_CASE("cuda: ResNet computes with NHWC images what it computes on the CPU",
          "[quick][cuda][layout]") {
  const models::Shortcut shortcut =
      GENERATE(models::Shortcut::Padding, models::Shortcut::Projection);
  const auto network = [&](Device device) {
    manual_seed(4);
    auto made = std::make_unique<models::CifarResNet>(
        8, models::CifarResNetOptions{.num_classes = 3, .shortcut = shortcut});
    made->to(device);
    return made;
  };
  const Tensor images = randn({kBatch, 3, 16, 16});
  const std::vector<double> expected = step(*network({}), images);
  CHECK(difference(step(*network(kGpu), to(images, kGpu)), expected, {DType::Float32, 10000}) ==
        "");
  const Tensor channels_last = to_layout(images, Layout::ChannelsLast);
  CHECK(difference(step(*network({}), channels_last), expected, {DType::Float32, 10000}) == "");
  CHECK(difference(step(*network(kGpu), to(channels_last, kGpu)), expected,
                   {DType::Float32, 10000}) == "");
}

}  // namespace ringgrad::test::cuda_layout_test
