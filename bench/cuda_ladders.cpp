// The ladders of the CUDA kernels, step by step: matrix products and the convolutions of ResNet-18
// on CIFAR-10, in TFLOP/s by CUDA events. Kernels that only move memory are compared with a copy.
// If the build has cuBLAS and cuDNN, kernels::… are compared with them.
//
//   cuda_ladders [matmul] [conv2d] [bandwidth] [vendors]     all of them if none is named
//
// Prints one JSON document, from which gpu_tables.py makes tables with the goals. Refuses an
// emulated device, because its times say nothing about a GPU.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <vector>

#include <nlohmann/json.hpp>

#include "ringgrad/core/device/device_backend.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/core/kernels/autotune.h"
#include "ringgrad/core/kernels/ladder.h"
#include "ringgrad/core/random.h"

using namespace ringgrad;

namespace {

const Device kDevice("cuda");

double seconds(const std::function<void(Stream)>& call) { return seconds_per_call(kDevice, call); }

// Checks that a ladder's steps agree: the largest difference from the first one's result, relative
// to the largest number. Throws Error above what 16 bits explain. The first step is the obvious
// loop, so this checks large shapes, too.
class Agreement {
 public:
  double with_first(const Tensor& result) {
    const std::vector<double> numbers = to_vector<double>(result);
    if (first_.empty()) first_ = numbers;
    double difference = 0;
    double largest = 0;
    for (size_t i = 0; i < numbers.size(); ++i) {
      const double d = std::abs(numbers[i] - first_[i]);
      if (!(d <= difference)) difference = std::isfinite(d) ? d : INFINITY;
      largest = std::max(largest, std::abs(first_[i]));
    }
    if (!(difference <= 0.02 * largest))
      throw Error(str("cuda_ladders: a step is off by ", difference, " of ", largest));
    return difference / largest;
  }

 private:
  std::vector<double> first_;
};

Tensor noise(const Shape& shape, DType dtype) {
  const Tensor x = empty(shape, {dtype, kDevice});
  normal_(x, 0, 1);
  return x;
}
Tensor channels_last(const Shape& nchw, DType dtype) {
  const Tensor x = empty(nchw, {dtype, kDevice, Layout::ChannelsLast});
  copy_(x, noise(nchw, dtype));
  return x;
}

// The times of the ladder's steps, by their names, for operands of one size.
struct Step {
  std::string name;
  double tflops;
  double difference;
};
std::vector<Step> climb(const char* kernel, DType dtype, const std::vector<int64_t>& size) {
  const Ladder* ladder = find_ladder(kernel);
  if (!ladder) throw Error(str("cuda_ladders: the kernels have no ladder for ", kernel));
  const LadderProblem problem = ladder->problem(kDevice, dtype, size);
  Agreement agreement;
  std::vector<Step> steps;
  for (int i = 0; i < static_cast<int>(ladder->steps.size()); ++i) {
    if (!problem.supports(i)) continue;
    const double time = seconds([&](Stream stream) { problem.run(i, stream); });
    steps.push_back({ladder->steps[static_cast<size_t>(i)].name, problem.operations / time * 1e-12,
                     agreement.with_first(problem.results[0])});
  }
  return steps;
}

void matmul_ladder(nlohmann::json& rows, int64_t n, DType dtype) {
  for (const Step& step : climb("matmul", dtype, {n}))
    rows.push_back({{"kernel", "matmul"},
                    {"size", n},
                    {"dtype", name(dtype)},
                    {"step", step.name},
                    {"difference", step.difference},
                    {"tflops", step.tflops}});
}

struct Layer {
  int64_t channels;
  int64_t filters;
  int64_t image;
  int64_t stride;
};
// The 3 × 3 convolutions of ResNet-18: the stem, and its four stages.
constexpr Layer kLayers[] = {{3, 64, 32, 1},    {64, 64, 32, 1},  {64, 128, 32, 2},
                             {128, 128, 16, 1}, {256, 256, 8, 1}, {512, 512, 4, 1}};

void conv_ladder(nlohmann::json& rows, const Layer& layer, int64_t batch, DType dtype) {
  const std::vector<int64_t> size = {batch, layer.channels, layer.filters, layer.image,
                                     layer.stride};
  const std::vector<Step> y = climb("conv2d", dtype, size),
                          dx = climb("conv2d_backward_input", dtype, size),
                          dw = climb("conv2d_backward_weight", dtype, size);
  for (size_t i = 0; i < y.size(); ++i)
    rows.push_back(
        {{"kernel", "conv2d"},
         {"layer", str(layer.channels, "x", layer.image, "x", layer.image, " to ", layer.filters)},
         {"batch", batch},
         {"dtype", name(dtype)},
         {"step", y[i].name},
         {"difference", std::max({y[i].difference, dx[i].difference, dw[i].difference})},
         {"tflops", y[i].tflops},
         {"tflops_backward_input", dx[i].tflops},
         {"tflops_backward_weight", dw[i].tflops}});
}

// Compares kernels that only move memory with a copy of the same array, which moves two. An array
// has half a gigabyte in 16 bits, so that the 60 MB of an H200's L2 keep little of it from one run
// to the next. Each kernel must move a number of arrays: y = a + b moves three; batch norm in
// training reads x twice; its gradient reads dy, x and, for the ReLU, y twice.
void bandwidth(nlohmann::json& rows, DType dtype) {
  const Shape shape = {4096, 64, 32, 32};
  const Shape channels = {64};
  const Tensor a = channels_last(shape, dtype), b = channels_last(shape, dtype), y = empty_like(a),
               dx = empty_like(a);
  const Tensor weight = noise(channels, DType::Float32);
  const Tensor bias = noise(channels, DType::Float32);
  const Tensor mean = empty_like(weight), var = empty_like(weight), sums = empty_like(weight),
               dots = empty_like(weight);
  const auto bytes = static_cast<double>(a.numel() * static_cast<int64_t>(itemsize(dtype)));
  const ProviderGuard ours(Provider::Native);
  const double copy_rate = 2 * bytes / seconds([&](Stream) { copy_(y, a); });
  const auto row = [&](const char* kernel, int arrays, const std::function<void(Stream)>& run) {
    const double rate = arrays * bytes / seconds(run);
    rows.push_back({{"kernel", kernel},
                    {"dtype", name(dtype)},
                    {"gigabytes_per_second", rate * 1e-9},
                    {"of_copy", rate / copy_rate}});
  };
  row("add", 3, [&](Stream) { kernels::add(y, a, b); });
  row("relu", 2, [&](Stream) { kernels::relu(y, a); });
  row("batch_norm and ReLU", 3,
      [&](Stream) { kernels::batch_norm(y, {}, mean, var, a, weight, bias, {}, 1e-5, true, {}); });
  row("batch_norm and ReLU, backward", 7, [&](Stream) {
    kernels::batch_norm_backward(sums, dots, dx, {}, b, a, y, mean, var, weight, 1e-5);
  });
}

// Compares our kernels with the vendor's for a training step, as autotune measures them.
nlohmann::json vendor_comparison(int64_t batch) {
  const ProviderGuard fastest(Provider::Fastest);
  for (const DType dtype : {DType::BFloat16, DType::Float16, DType::Float32}) {
    for (const Layer& layer : kLayers) {
      const Conv2dOptions options{.stride = layer.stride, .padding = 1};
      const int64_t out = options.out_h(layer.image, 3);
      const Tensor x = channels_last({batch, layer.channels, layer.image, layer.image}, dtype);
      const Tensor y = channels_last({batch, layer.filters, out, out}, dtype), dx = empty_like(x),
                   dy = empty_like(y);
      const Tensor w = noise({layer.filters, layer.channels, 3, 3}, dtype);
      const Tensor dw = empty_like(w);
      const Tensor weight = noise({layer.filters}, DType::Float32),
                   bias = noise({layer.filters}, DType::Float32);
      const Tensor mean = empty_like(weight);
      const Tensor var = empty_like(weight);
      const Tensor sum = empty_like(weight);
      const Tensor dot = empty_like(weight);
      kernels::conv2d(y, x, w, {}, options);
      kernels::conv2d_backward_input(dx, y, w, {}, options);
      kernels::conv2d_backward_weight(dw, y, x, options);
      kernels::batch_norm(dy, {}, mean, var, y, weight, bias, {}, 1e-5, true, {});
      kernels::batch_norm_backward(sum, dot, empty_like(y), {}, dy, y, dy, mean, var, weight, 1e-5);
    }
    const Tensor a = noise({1, 4096, 4096}, dtype), b = noise({1, 4096, 4096}, dtype),
                 c = empty_like(a);
    kernels::matmul(c, a, b, {});
  }
  nlohmann::json rows = nlohmann::json::array();
  for (const TunedCall& call : tuned_calls(kDevice)) {
    if (std::isinf(call.vendor_us)) continue;  // the library has no kernel for it
    rows.push_back({{"call", call.call},
                    {"native_us", call.native_us},
                    {"vendor_us", call.vendor_us},
                    {"of_vendor", call.vendor_us / call.native_us}});
  }
  return rows;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::vector<std::string> wanted(argv + 1, argv + argc);
    for (const std::string& part : wanted)
      if (part != "matmul" && part != "conv2d" && part != "bandwidth" && part != "vendors")
        throw Error("cuda_ladders: '" + part + "', expected matmul, conv2d, bandwidth or vendors");
    const auto wants = [&](const char* part) {
      return wanted.empty() || std::find(wanted.begin(), wanted.end(), part) != wanted.end();
    };
    check_device("cuda_ladders", kDevice);
    const std::string gpu = device_backend(kDevice.type).describe(kDevice.index);
    if (gpu.starts_with("emulated"))
      throw DeviceError("cuda_ladders: cuda:0 is " + gpu + ", and its times mean nothing");
    nlohmann::json rows = nlohmann::json::array();
    if (wants("matmul"))
      for (const DType dtype : {DType::BFloat16, DType::Float16, DType::Float32})
        for (const int64_t n : {1024, 4096}) matmul_ladder(rows, n, dtype);
    if (wants("conv2d"))
      for (const DType dtype : {DType::BFloat16, DType::Float32})
        for (const Layer& layer : kLayers) conv_ladder(rows, layer, 512, dtype);
    if (wants("bandwidth"))
      for (const DType dtype : {DType::BFloat16, DType::Float32}) bandwidth(rows, dtype);
    nlohmann::json document = {
        {"gpu", gpu}, {"rows", rows}, {"vendors", vendor_libraries(kDevice.type)}};
    document["against_vendors"] =
        wants("vendors") ? vendor_comparison(512) : nlohmann::json::array();
    std::printf("%s\n", document.dump(1).c_str());
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 3;
  }
}
