// cuDNN's plans for our networks on an H200, without one: for a device that is only described,
// graphs are built, engines found and, of convolutions, plans finished with their workspace. What
// runs them is tested where there is a GPU (op_test, which compares providers).
#include <dlfcn.h>

#include <algorithm>
#include <iostream>
#include <set>

#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels/float32_precision.h"
#include "ringgrad/core/kernels/kernel.h"
#include "ringgrad/cuda_kernels/vendor/cudnn_conv_graph.h"
#include "ringgrad/cuda_kernels/vendor/cudnn_norm_graph.h"
#include "ringgrad/models/registry.h"
#include "ringgrad/nn.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/cuda/h200.h"

using namespace ringgrad;
using namespace ringgrad::cuda;

namespace {

constexpr int64_t kBatch = 512;

// The convolutions that a network's forward asks for, batch kBatch, each kind once.
class Convolutions final : public KernelObserver {
 public:
  explicit Convolutions(const char* network) {
    const NoGradGuard no_grad;
    const models::ModelOptions images = models::usual_images(network);
    const auto model = models::make_model(network, images);
    set_current(this);
    (*model)(zeros({1, images.in_channels, images.image_size, images.image_size}));
    set_current(nullptr);
  }
  std::vector<ConvShapes> all;

 private:
  void call(const ObservedCall& call, const std::function<void()>& run) override {
    run();
    if (call.kernel.name() != std::string("conv2d")) return;
    ConvShapes g{DType::Float32,          CUDNN_TENSOR_NHWC,
                 call.tensor(1)->shape(), call.tensor(2)->shape(),
                 call.tensor(0)->shape(), *std::get<const Conv2dOptions*>(call.arguments.back())};
    g.x[0] = g.y[0] = kBatch;
    if (kinds_.insert(str(g.x, g.w, g.y)).second) all.push_back(g);
  }
  std::set<std::string> kinds_;
};

bool has_note(const GraphPart& settings, cudnnBackendNumericalNote_t note) {
  const auto engines =
      settings.parts(CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1);
  const auto notes = engines.at(0).get<cudnnBackendNumericalNote_t>(
      CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT);
  return std::find(notes.begin(), notes.end(), note) != notes.end();
}

// Returns the number of plans; 0 if cuDNN refuses.
size_t plans(ConvPass pass, const ConvShapes& g) {
  const GraphPart h200 = described_device(test::kH200);
  const GraphTarget target{.described = &h200};
  try {
    const std::shared_ptr<OperationGraph> graph = conv2d_graph(pass, g);
    std::vector<GraphPart> engines = graph->engines(target, g.dtype);
    for (GraphPart& engine : engines) {
      CHECK(!has_note(engine, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC));
      if (g.dtype == DType::Float32) CHECK(!has_note(engine, CUDNN_NUMERICAL_NOTE_TENSOR_CORE));
      const int64_t bytes = engine.number(CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE);
      const GraphPlan plan(target, graph, std::move(engine));
      CHECK(plan.workspace_bytes() == static_cast<size_t>(bytes));
    }
    return engines.size();
  } catch (const NotImplementedError& error) {
    UNSCOPED_INFO(error.what());
    return 0;
  }
}

constexpr ConvPass kPasses[] = {ConvPass::Forward, ConvPass::BackwardInput,
                                ConvPass::BackwardWeight};

}  // namespace

TEST_CASE("cuDNN has plans for every convolution of our networks", "[cudnn]") {
  size_t count = 0;
  for (const char* network : {"resnet18", "resnet20", "cnn"})
    for (ConvShapes g : Convolutions(network).all)
      for (const DType dtype : {DType::Float32, DType::Float16, DType::BFloat16}) {
        g.dtype = dtype;
        // As autograd/ops/conv.cpp makes them.
        if (dtype != DType::Float32 && g.x[1] < 8) g.x[1] = g.w[1] = 8;
        for (const ConvPass pass : kPasses) {
          const size_t found = plans(pass, g);
          INFO(network << " " << name(dtype) << " x " << g.x << " w " << g.w << " pass "
                       << static_cast<int>(pass));
          CHECK(found > 0);
          count += found;
        }
      }
  std::cout << count << " plans for an H200 checked, not run\n";
}

// Tensor cores compute float32 products in TF32 only.
TEST_CASE("cuDNN's engines for float32 use tensor cores where TF32 is allowed, and only there",
          "[cudnn]") {
  const ConvShapes g{DType::Float32, CUDNN_TENSOR_NHWC, {64, 64, 16, 16},
                     {64, 64, 3, 3}, {64, 64, 16, 16},  {.padding = 1}};
  const auto on_tensor_cores = [&](ConvPass pass) {
    const GraphPart h200 = described_device(test::kH200);
    const std::vector<GraphPart> engines =
        conv2d_graph(pass, g)->engines({.described = &h200}, g.dtype);
    CHECK(!engines.empty());
    return std::count_if(engines.begin(), engines.end(), [](const GraphPart& engine) {
      CHECK(!has_note(engine, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC));
      CHECK(!has_note(engine, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS));
      return has_note(engine, CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
    });
  };
  for (const ConvPass pass : kPasses) {
    CHECK(on_tensor_cores(pass) == 0);
    set_float32_matmul_precision("high");
    CHECK(on_tensor_cores(pass) > 0);
    set_float32_matmul_precision("highest");
  }
}

TEST_CASE("cuDNN has plans for every kind of convolution of the contract", "[cudnn]") {
  using enum DType;
  constexpr auto kNhwc = CUDNN_TENSOR_NHWC;
  constexpr auto kNchw = CUDNN_TENSOR_NCHW;
  const ConvShapes kinds[] = {
      {Float64, kNhwc, {8, 16, 8, 8}, {16, 16, 3, 3}, {8, 16, 8, 8}, {.padding = 2, .dilation = 2}},
      {Float64, kNhwc, {8, 16, 8, 8}, {16, 4, 3, 3}, {8, 16, 8, 8}, {.padding = 1, .groups = 4}},
      {Float32, kNchw, {8, 3, 8, 9}, {5, 3, 3, 1}, {8, 5, 4, 11}, {.stride = {2, 1}, .padding = 1}},
      {BFloat16, kNhwc, {8, 12, 8, 8}, {12, 3, 3, 3}, {8, 12, 8, 8}, {.padding = 1, .groups = 4}},
      {BFloat16, kNhwc, {8, 16, 8, 8}, {16, 16, 3, 3}, {8, 16, 24, 24}, {.padding = 9}},
  };
  for (const ConvShapes& g : kinds)
    for (const ConvPass pass : kPasses) {
      INFO(name(g.dtype) << " x " << g.x << " w " << g.w << " pass " << static_cast<int>(pass));
      CHECK(plans(pass, g) > 0);
    }
}

// Then the vendor's implementation returns false, and ours runs.
TEST_CASE("what cuDNN does not support has no plan", "[cudnn]") {
  const ConvShapes impossible[] = {
      {DType::Float32,
       CUDNN_TENSOR_NHWC,
       {8, 16, 8, 8},
       {16, 16, 3, 3},
       {8, 16, 9, 8},
       {.padding = 1}},
      {DType::BFloat16,
       CUDNN_TENSOR_NHWC,
       {8, 16, 8, 8},
       {16, 12, 3, 3},
       {8, 16, 8, 8},
       {.padding = 1}},
  };
  for (const ConvShapes& g : impossible)
    for (const ConvPass pass : kPasses) CHECK(plans(pass, g) == 0);
  CHECK_THROWS_AS(described_device("{}"), NotImplementedError);
}

TEST_CASE("cuDNN has engines for batch norm with ReLU and residual, forward and backward",
          "[cudnn]") {
  if (!dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) &&
      !dlopen(RINGGRAD_CUDA_STUB, RTLD_NOW | RTLD_GLOBAL)) {
    std::cout << "left out: cuDNN compiles them at run time, "
                 "and looks for libcuda.so.1 or the toolkit's stub of it\n";
    return;
  }
  const GraphPart h200 = described_device(test::kH200);
  const GraphTarget target{.described = &h200};
  for (const DType dtype : {DType::Float32, DType::Float16, DType::BFloat16})
    for (const Shape& images :
         {Shape{kBatch, 64, 32, 32}, Shape{kBatch, 512, 4, 4}, Shape{kBatch, 16, 32, 32}})
      for (const auto& [relu, residual] : {std::pair(false, false), {true, false}, {true, true}}) {
        const NormShapes shapes{images, dtype, CUDNN_TENSOR_NHWC};
        INFO(name(dtype) << " " << images << (relu ? " relu" : "")
                         << (residual ? " residual" : ""));
        const auto forward = batch_norm_graph(shapes, residual, relu);
        const auto backward = batch_norm_backward_graph(shapes);
        for (const auto& graph : {forward, backward}) {
          const std::vector<GraphPart> engines = graph->engines(target, dtype);
          CHECK(!engines.empty());
          for (const GraphPart& engine : engines)
            CHECK(engine.number(CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE) >= 0);
        }
      }
  // But not for a residual without ReLU, which our networks do not have.
  const NormShapes images{{kBatch, 64, 32, 32}, DType::BFloat16, CUDNN_TENSOR_NHWC};
  CHECK(batch_norm_graph(images, true, false)->engines(target, images.dtype).empty());
}
