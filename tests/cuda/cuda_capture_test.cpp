// Training whose steps are recorded after the first ones, with the data set on the device. Its bits
// must be those of steps that are queued operation by operation, over epochs and short last
// batches. A step that cannot be recorded is refused.
#include <atomic>
#include <thread>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/device/allocator.h"
#include "ringgrad/core/device/captured_step.h"
#include "ringgrad/core/device/device_backend.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/random.h"
#include "ringgrad/cuda_kernels/runtime/stream.h"
#include "ringgrad/data/resident_batches.h"
#include "ringgrad/nn.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/cuda/cuda_util.h"

namespace ringgrad::test::cuda_capture_test {

namespace {

const Device kGpu("cuda:0");
// five full batches and one of two images
constexpr int64_t kImages = 22;
constexpr int64_t kBatch = 4;
constexpr int kEpochs = 2;

ImageDataset some_images() {
  ImageDataset dataset{"some", empty({kImages, 2, 8, 8}, {.dtype = DType::UInt8}),
                       empty({kImages}, {.dtype = DType::Int64}),
                       std::vector<std::string>(3, "thing")};
  auto* bytes = dataset.images.data<uint8_t>();
  for (int64_t i = 0; i < dataset.images.numel(); ++i)
    bytes[i] = static_cast<uint8_t>(i * 2654435761u >> 13);
  for (int64_t i = 0; i < kImages; ++i) dataset.labels.data<int64_t>()[i] = i % 3;
  return dataset;
}

struct Net : nn::Module {
  nn::Conv2d conv{2, 4, 3, {.padding = 1, .bias = false}};
  nn::Conv2d more{4, 4, 3, {.padding = 1}};
  nn::BatchNorm2d bn{4};
  nn::Dropout drop{0.25};
  nn::Linear fc{16, 3};
  Net() {
    register_module("conv", conv);
    register_module("more", more);
    register_module("bn", bn);
    register_module("drop", drop);
    register_module("fc", fc);
  }
  Tensor forward(const Tensor& x) override {
    const Tensor seen = bn(conv(x), {.activation = Activation::Relu});
    return fc(drop(flatten(max_pool2d(seen + more(seen), {.kernel = 4}), 1)));
  }
};

struct Kind {
  // The parameters', too, with 16 bits, and then there are float32 copies of them.
  DType dtype = DType::Float32;
  AugmentOptions augment = {};
  bool adam = false;  // AMSGrad that ascends the negative loss, instead of SGD
};

// A training program with every part that has state on the device.
class Run {
 public:
  explicit Run(const Kind& kind)
      : batches_(some_images(), std::make_shared<RandomSampler>(kImages, 5), kBatch,
                 {.augment = kind.augment, .mean = {0.5f}, .std = {0.25f}},
                 {.dtype = kind.dtype, .device = kGpu}),
        // The first steps overflow.
        ascends_(kind.adam),
        scaler_(kGpu, {.initial_scale = 65536.0 * 64, .growth_interval = 3}) {
    manual_seed(7);
    model_ = std::make_unique<Net>();
    model_->to(kGpu);
    if (kind.dtype != DType::Float32) {
      model_->to(kind.dtype);
      masters_.emplace(model_->named_parameters());
    }
    const nn::NamedTensors trained = masters_ ? masters_->parameters() : model_->named_parameters();
    if (ascends_)
      optimizer_ = std::make_unique<optim::Adam>(
          trained, optim::AdamOptions{.lr = 0.1, .amsgrad = true, .maximize = true});
    else
      optimizer_ = std::make_unique<optim::SGD>(
          trained, optim::SGDOptions{.lr = 0.1, .momentum = 0.9, .weight_decay = 1e-3});
    loss_sum_ = zeros({}, {.device = kGpu});
  }

  // The state after training; `in_step` is called in the middle of each step.
  std::vector<double> train(bool captured,
                            const std::function<void(const Tensor& loss)>& in_step = {}) {
    manual_seed(8);  // dropout draws from the device's own generator
    const auto step = [&] { this->step(in_step); };
    CapturedStep repeated(kGpu, step);
    int steps = 0;
    for (int epoch = 0; epoch < kEpochs; ++epoch)
      for (batches_.start_pass(); !batches_.indices().empty(); batches_.advance(), ++steps) {
        optimizer_->set_lr(0.1 / (1 + steps));
        if (captured && batches_.indices().size() == kBatch)
          repeated();
        else
          step();
      }
    CHECK(steps == kEpochs * 6);
    return state();
  }
  int steps_on_host() const { return steps_on_host_; }

 private:
  void step(const std::function<void(const Tensor& loss)>& in_step) {
    ++steps_on_host_;
    if (masters_) masters_->zero_grad();
    optimizer_->zero_grad();
    const Batch batch = batches_.current();
    const Tensor loss = cross_entropy(to((*model_)(batch.data), DType::Float32), batch.target,
                                      {.label_smoothing = 0.1});
    if (in_step) in_step(loss);
    const bool scaled = batch.data.dtype() == DType::Float16;
    (scaled ? scaler_.scale(loss) : ascends_ ? -loss : loss).backward();
    if (masters_) masters_->take_gradients();
    if (scaled) scaler_.unscale(*optimizer_);
    std::vector<Tensor> clipped;
    for (const auto& [name, tensor] :
         masters_ ? masters_->parameters() : model_->named_parameters())
      clipped.push_back(tensor);
    optim::clip_grad_norm_(clipped, 0.5);
    if (scaled) {
      scaler_.step(*optimizer_);
      scaler_.update();
    } else {
      optimizer_->step();
    }
    if (masters_) masters_->publish();
    kernels::add(loss_sum_, loss_sum_, loss.detach());
  }

  // Returns everything that training changes, as doubles on the host.
  std::vector<double> state() {
    std::vector<double> all = to_vector<double>(loss_sum_);
    all.push_back(scaler_.current_scale());
    for (const auto& named : {model_->state_dict(), optimizer_->state_dict()})
      for (const auto& [name, tensor] : named)
        for (const double value : to_vector<double>(tensor)) all.push_back(value);
    for (const double value : to_vector<double>(default_generator(kGpu).state()))
      all.push_back(value);
    return all;
  }

  std::unique_ptr<Net> model_;
  ResidentBatches batches_;
  bool ascends_;
  optim::GradScaler scaler_;
  std::optional<optim::MasterWeights> masters_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  Tensor loss_sum_;
  int steps_on_host_ = 0;
};

}  // namespace

TEST_CASE("captured steps train as the steps themselves do, bit for bit", "[quick][cuda]") {
  const StreamOrderGuard guard(GENERATE(StreamOrder::Eager, StreamOrder::Random));
  const AugmentOptions augment{.crop_padding = 2, .flip = true, .cutout = 3, .seed = 4};
  for (const Kind& kind :
       {Kind{}, Kind{.augment = augment}, Kind{.dtype = DType::Float16, .augment = augment},
        Kind{.dtype = DType::BFloat16}, Kind{.adam = true}}) {
    INFO(kind.dtype << (kind.augment.flip ? ", augmented" : "") << (kind.adam ? ", Adam" : ""));
    Run eager(kind);
    Run captured(kind);
    const std::vector<double> expected = eager.train(false);
    REQUIRE(std::isfinite(expected[0]));
    REQUIRE((captured.train(true) == expected));  // without printing them all
    REQUIRE(eager.steps_on_host() == 12);
    // Two as they are, one recorded, and the two short ones.
    REQUIRE(captured.steps_on_host() == 5);
  }
}

TEST_CASE("a captured pass adds to gradients, whatever was known when it was recorded",
          "[quick][cuda]") {
  const Tensor x = to(tensor<float>({1, 2, 3, 4}, {2, 2}), kGpu);
  const Tensor w = to(ones({1, 2}), kGpu).detach().set_requires_grad();
  optim::SGD optimizer(nn::NamedTensors{{"w", w}}, optim::SGDOptions{.lr = 0.1});
  const auto pass = [&] { sum(linear(x, w)).backward(); };
  CapturedStep captured(kGpu, pass);
  for (int step = 0; step < 3; ++step) {  // the first two passes are queued, the others replayed
    optimizer.zero_grad();
    captured();
    captured();
    CHECK(to_vector<float>(w.grad()) == std::vector<float>{8, 12});
  }
  optimizer.zero_grad();
  captured();
  pass();
  CHECK(to_vector<float>(w.grad()) == std::vector<float>{8, 12});
}

TEST_CASE("a step that asks the device in the middle is refused when it is recorded",
          "[quick][cuda]") {
  const auto with = [](const std::function<void(const Tensor& loss)>& in_step) {
    return failure([&] { Run({}).train(true, in_step); });
  };
  const std::string refused = "cudaErrorStreamCaptureUnsupported";
  REQUIRE(with({}) == "");
  REQUIRE(contains(with([](const Tensor& loss) { loss.item<float>(); }), refused));
  REQUIRE(contains(with([](const Tensor& loss) { to_vector<float>(loss); }), refused));
  REQUIRE(contains(with([](const Tensor&) { synchronize(current_stream(kGpu)); }), refused));
  REQUIRE(std::isfinite(Run({}).train(true)[0]));  // the device can be used afterwards
}

TEST_CASE("another thread may give memory back while a step is captured", "[quick][cuda]") {
  const Tensor x = zeros({64}, {.device = kGpu});
  const auto graph = device_backend(DeviceType::CUDA).capture(0, [&] {
    // A cached block of the stream that is being captured.
    { const Tensor freed = ones({1000}, {.device = kGpu}); }
    std::thread([] { empty_cache(kGpu); }).join();
    kernels::affine(x, x, 1, 1);
  });
  graph->launch(current_stream(kGpu));
  CHECK(to_vector<float>(x) == std::vector<float>(64, 1));
}

TEST_CASE("a graph ends while others are captured", "[quick][cuda]") {
  DeviceBackend& gpu = device_backend(DeviceType::CUDA);
  const Tensor x = zeros({64}, {.device = kGpu});
  const auto add_one = [&] { kernels::affine(x, x, 1, 1); };
  const bool by_this_thread = GENERATE(true, false);
  auto earlier = gpu.capture(0, add_one);
  earlier->launch(current_stream(kGpu));
  const auto graph = gpu.capture(0, [&] {
    add_one();
    if (by_this_thread)
      earlier.reset();
    else
      std::thread([&] { earlier.reset(); }).join();
    add_one();
  });
  graph->launch(current_stream(kGpu));
  CHECK(to_vector<float>(x) == std::vector<float>(64, 3));
}

TEST_CASE("memory may be given back inside a capture", "[quick][cuda]") {
  const Tensor x = zeros({64}, {.device = kGpu});
  const auto graph = device_backend(DeviceType::CUDA).capture(0, [&] {
    { const Tensor freed = ones({1000}, {.device = kGpu}); }
    empty_cache(kGpu);
    kernels::affine(x, x, 1, 1);
  });
  graph->launch(current_stream(kGpu));
  CHECK(to_vector<float>(x) == std::vector<float>(64, 1));
}

namespace {

constexpr int64_t kMiB = 1 << 20;
int64_t free_bytes() {
  return static_cast<int64_t>(device_backend(DeviceType::CUDA).free_memory(0));
}
int64_t cached_bytes() {
  const MemoryStats stats = memory_stats(kGpu);
  return stats.reserved_bytes - stats.live_bytes;
}
// Allocates memory on the current stream and frees it.
void use(int64_t bytes) { const Tensor temporary = zeros({bytes}, {DType::UInt8, kGpu}); }

}  // namespace

TEST_CASE("while a captured step lives, only its own memory stays reserved", "[quick][cuda]") {
  const Tensor x = zeros({64}, {.device = kGpu});
  empty_cache(kGpu);
  REQUIRE(cached_bytes() == 0);
  {
    CapturedStep step(kGpu, [&] {
      use(2 * kMiB);
      kernels::affine(x, x, 1, 1);
    });
    for (int i = 0; i < 3; ++i) step();
    const int64_t before = free_bytes();
    const int64_t own = cached_bytes();
    CHECK(own >= 2 * kMiB);
    for (const int64_t size : {20, 24, 28}) {  // three size classes: none is used again
      use(size * kMiB);
      empty_cache(kGpu);
      CHECK(cached_bytes() == own);
      CHECK(free_bytes() >= before - kMiB);
    }
    CapturedStep another(kGpu, [&] { use(3 * kMiB); });
    for (int i = 0; i < 3; ++i) another();
    CHECK(cached_bytes() >= own + 3 * kMiB);
    CHECK(cached_bytes() < own + 4 * kMiB);
    for (int i = 0; i < 2; ++i) step();
  }
  CHECK(to_vector<float>(x) == std::vector<float>(64, 5));
  empty_cache(kGpu);
  CHECK(cached_bytes() == 0);
}

// A process group's stream is such a stream: it holds the buckets of a recorded step.
TEST_CASE("memory that a captured step takes for another stream stays reserved, too",
          "[quick][cuda]") {
  empty_cache(kGpu);
  const Tensor x = zeros({kMiB}, {.device = kGpu});
  const cuda::OwnedStream other(kGpu);
  {
    const auto graph = device_backend(DeviceType::CUDA).capture(0, [&] {
      const Stream own = current_stream(kGpu);
      cuda::wait_for(other.get(), own);
      {
        const StreamGuard guard(other.get());
        const Tensor temporary = empty_like(x);
        kernels::fill(temporary, 1);
        kernels::add(x, x, temporary);
      }
      cuda::wait_for(own, other.get());
    });
    empty_cache(kGpu);
    CHECK(cached_bytes() == 4 * kMiB);
    for (int i = 0; i < 2; ++i) graph->launch(current_stream(kGpu));
    CHECK(to_vector<float>(x)[kMiB - 1] == 2);
  }
  empty_cache(kGpu);
  CHECK(cached_bytes() == 0);
}

// NCCL's own threads may leave when a rank has died, and then a long queue of replays cannot end.
TEST_CASE("at most 64 replays of a captured step are under way", "[quick][cuda]") {
  const StreamOrderGuard order(StreamOrder::Lazy);
  std::atomic<int> ended = 0;
  const auto graph = device_backend(DeviceType::CUDA).capture(0, [&] {
    const auto count = [](void* ended) { ++*static_cast<std::atomic<int>*>(ended); };
    CUDA_CHECK(cudaLaunchHostFunc(cuda::native(current_stream(kGpu)), count, &ended));
  });
  int most = 0;
  for (int launched = 1; launched <= 200; ++launched) {
    graph->launch(current_stream(kGpu));
    most = std::max(most, launched - ended);
  }
  CHECK(most <= 64);
#ifdef RINGGRAD_CUDA_EMULATED  // a device may be faster
  CHECK(most > 32);
#endif
  synchronize(current_stream(kGpu));
  CHECK(ended == 200);
}

TEST_CASE("what has no graphs says so", "[quick][cuda]") {
  REQUIRE(CapturedStep::possible(kGpu));
  REQUIRE_FALSE(CapturedStep::possible(Device()));
  REQUIRE_THROWS_AS(device_backend(DeviceType::CPU).capture(0, [] {}), NotImplementedError);
}

}  // namespace ringgrad::test::cuda_capture_test
