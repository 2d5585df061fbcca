// The choice among cuDNN's plans: the fastest that works runs; it is found once and remembered.
// Graphs, engines and plans are cuDNN's own, for a described H200. Four of cuDNN's functions are
// replaced by this program, so no GPU is needed: a handle is a number, and running a plan takes
// some time.
#include <dlfcn.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <map>
#include <sstream>
#include <thread>

#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels/autotune.h"
#include "ringgrad/cuda_kernels/vendor/cudnn_conv_graph.h"
#include "ringgrad/cuda_kernels/vendor/cudnn_plans.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/cuda/h200.h"

using namespace ringgrad;
using namespace ringgrad::cuda;

namespace {

// The order in which plans were run for the first time.
std::map<cudnnBackendDescriptor_t, int> order;
int runs = 0;
int plans = 0;
int handles = 0;
std::vector<void*> seen;  // the addresses of the latest run
constexpr int kFails = 1;
constexpr int kFastest = 2;
bool refused = false;  // each plan says that it is not supported, after all

template <class Function>
Function* real(Function*, const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {
cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  static char places[8];
  *handle = reinterpret_cast<cudnnHandle_t>(&places[handles++]);
  return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t, cudaStream_t) { return CUDNN_STATUS_SUCCESS; }

// The description of the device takes the place of a handle.
cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t part,
                                       cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t count,
                                       const void* values) {
  static const auto set = real(cudnnBackendSetAttribute, "cudnnBackendSetAttribute");
  const auto name_device = [&](cudnnBackendAttributeName_t as) {
    static const GraphPart h200 = described_device(test::kH200);
    const cudnnBackendDescriptor_t device = h200.native();
    return set(part, as, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &device);
  };
  if (name == CUDNN_ATTR_OPERATIONGRAPH_HANDLE) return CUDNN_STATUS_SUCCESS;
  if (name == CUDNN_ATTR_EXECUTION_PLAN_HANDLE)
    return name_device(CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP);
  if (name == CUDNN_ATTR_ENGINEHEUR_MODE) name_device(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP);
  if (name == CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS)
    seen.assign(static_cast<void* const*>(values), static_cast<void* const*>(values) + count);
  return set(part, name, type, count, values);
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t) {
  ++runs;
  if (!order.contains(plan)) order[plan] = plans++;
  const int number = order[plan];
  if (refused) return CUDNN_STATUS_NOT_SUPPORTED;
  if (number == kFails) return CUDNN_STATUS_EXECUTION_FAILED;
  std::this_thread::sleep_for(std::chrono::microseconds(number == kFastest ? 300 : 3000));
  return CUDNN_STATUS_SUCCESS;
}
}

TEST_CASE("the fastest of cuDNN's plans that work runs, found once", "[cudnn]") {
  std::string cache = (std::filesystem::temp_directory_path() / "ringgrad-cudnn-XXXXXX").string();
  REQUIRE(mkdtemp(cache.data()));
  setenv("RINGGRAD_CACHE_DIR", cache.c_str(), 1);
  const Tensor x = zeros({8, 16, 8, 8});
  const Tensor w = zeros({16, 16, 3, 3});
  const Tensor y = zeros({8, 16, 8, 8});
  void* addresses[] = {x.raw_data(), w.raw_data(), y.raw_data()};
  ConvShapes shapes{DType::Float32, CUDNN_TENSOR_NCHW, x.shape(),
                    w.shape(),      y.shape(),         {.padding = 1}};
  int built = 0;
  const auto run = [&](const char* call) {
    runs = built = 0;
    const auto graph = [&] { return ++built, conv2d_graph(ConvPass::Forward, shapes); };
    return run_fastest(current_stream(x.device()), "conv2d", call, shapes.dtype, graph, addresses);
  };
  REQUIRE(run("a call"));
  CHECK(built == 1);
  CHECK(plans > 3);
  CHECK(seen == std::vector<void*>(std::begin(addresses), std::end(addresses)));
  const auto fastest =
      std::find_if(order.begin(), order.end(), [](auto& plan) { return plan.second == kFastest; });
  order = {*fastest};
  CHECK(run("a call"));
  CHECK((runs == 1 && built == 0 && order.size() == 1));
  // Another thread has its own handle and plans, and the measured choice. The next thread takes
  // over what this one leaves.
  const auto on_a_thread = [&] { std::thread([&] { CHECK(run("a call")); }).join(); };
  on_a_thread();
  CHECK((runs == 1 && built == 1 && handles == 2));
  on_a_thread();
  CHECK((runs == 1 && built == 0 && handles == 2));

  // A plan that does not run any more is reported once, and not tried again.
  std::ostringstream said;
  std::streambuf* const before = std::cerr.rdbuf(said.rdbuf());
  refused = true;
  CHECK_FALSE(run("a call"));
  refused = false;
  CHECK_FALSE(run("a call"));
  CHECK((runs == 0 && built == 0));
  std::cerr.rdbuf(before);
  const std::string message = said.str();
  CHECK(message.find("cuDNN's plan for a call was the fastest") != std::string::npos);
  CHECK(std::count(message.begin(), message.end(), '\n') == 1);

  addresses[2] = static_cast<char*>(y.raw_data()) + 4;
  CHECK_FALSE(run("a call"));
  addresses[2] = y.raw_data();
  shapes.y = {8, 16, 9, 8};
  CHECK_FALSE(run("an impossible call"));
  CHECK(built == 1);
  CHECK_FALSE(run("an impossible call"));
  CHECK((runs == 0 && built == 0));
  CHECK(tuned_calls(x.device()).empty());  // these are no comparison with a native kernel
  std::filesystem::remove_all(cache);
}
