// Times of single operations on the CPU: forward without a graph, and forward with backward.
//
//   operations float32|bfloat16 [NAME…]
//
// Prints {"name": [microseconds forward, with backward], …} for the named operations, or for all
// that do not take seconds. The numbers are medians over at least 0.1 s each: of the process's time
// of processors with RINGGRAD_THREADS=1, else of the time on the wall.
// peers/operations_pytorch.py has the same cases; operations.py runs both in turn.
#include <time.h>

#include <algorithm>
#include <functional>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "ringgrad/autograd/engine.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/device/parallel.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/random_tensors.h"

using namespace ringgrad;

namespace {

using Inputs = std::vector<Tensor>;
using Run = std::function<Tensor(const Inputs&)>;

// In microseconds: this process's time of processors where it has one thread, which other programs
// do not lengthen; else the time on the wall.
double now_us() {
  timespec time{};
  const bool one_thread = thread_count(current_stream(Device())) == 1;
  clock_gettime(one_thread ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return 1e6 * static_cast<double>(time.tv_sec) + 1e-3 * static_cast<double>(time.tv_nsec);
}

double median_us(const std::function<void()>& run) {
  for (int i = 0; i < 2; ++i) run();
  std::vector<double> times;
  for (const double start = now_us(); times.size() < 3 || now_us() - start < 1e5;) {
    const double begin = now_us();
    run();
    times.push_back(now_us() - begin);
  }
  std::nth_element(times.begin(), times.begin() + static_cast<int64_t>(times.size() / 2),
                   times.end());
  return times[times.size() / 2];
}

nlohmann::ordered_json results;
DType dtype;
std::vector<std::string> names;

Tensor normal(const Shape& shape) { return to(randn(shape), dtype); }

void measure(const std::string& name, const Inputs& inputs, const Run& run) {
  if (!names.empty() && std::find(names.begin(), names.end(), name) == names.end()) return;
  double forward = 0;
  double both = 0;
  Tensor grad;
  {
    const NoGradGuard no_grad;
    // A result is gone before the next one is made, as the peer's is.
    forward = median_us([&] { run(inputs); });
    grad = ones_like(run(inputs));
  }
  for (const Tensor& x : inputs) x.set_requires_grad();
  both = median_us([&] {
    for (const Tensor& x : inputs) x.set_grad({});
    run(inputs).backward(grad);
  });
  results[name] = {forward, both};
}

// Operations on a million numbers: elementwise and along dimensions.
void square_matrices() {
  const Shape shape{1024, 1024};
  // Numbers in (0, 1), for logarithms.
  const Tensor other = normal(shape);
  const Tensor part = to(rand(shape) * 0.9 + 0.05, dtype);
  const Tensor row = normal({1024});
  const Tensor column = normal({1024, 1});
  const Tensor places = randperm(1024);
  const Tensor all_places = to(rand(shape) * 1023.0, DType::Int64);
  const std::vector<std::pair<const char*, std::function<Tensor(const Tensor&)>>> of_any = {
      {"exp", [](const Tensor& x) { return exp(x); }},
      {"sin", [](const Tensor& x) { return sin(x); }},
      {"tanh", [](const Tensor& x) { return tanh(x); }},
      {"sigmoid", [](const Tensor& x) { return sigmoid(x); }},
      {"relu", [](const Tensor& x) { return relu(x); }},
      {"gelu", [](const Tensor& x) { return gelu(x); }},
      {"silu", [](const Tensor& x) { return silu(x); }},
      {"elu", [](const Tensor& x) { return elu(x); }},
      {"softplus", [](const Tensor& x) { return softplus(x); }},
      {"pow 3", [](const Tensor& x) { return pow(x, 3); }},
      {"dropout", [](const Tensor& x) { return dropout(x, 0.5); }},
      {"add", [=](const Tensor& x) { return x + other; }},
      {"add row", [=](const Tensor& x) { return x + row; }},
      {"mul column", [=](const Tensor& x) { return x * column; }},
      {"where", [=](const Tensor& x) { return where(x > 0.0, x, other); }},
      {"sum", [](const Tensor& x) { return sum(x); }},
      {"sum 0", [](const Tensor& x) { return sum(x, 0); }},
      {"sum 1", [](const Tensor& x) { return sum(x, 1); }},
      {"var 1", [](const Tensor& x) { return var(x, 1); }},
      {"max", [](const Tensor& x) { return max(x); }},
      {"max 1", [](const Tensor& x) { return max(x, 1).values; }},
      {"cumsum 0", [](const Tensor& x) { return cumsum(x, 0); }},
      {"sort", [](const Tensor& x) { return sort(x).values; }},
      {"topk", [](const Tensor& x) { return topk(x, 5).values; }},
      {"mse", [=](const Tensor& x) { return mse_loss(x, other); }},
      {"huber", [=](const Tensor& x) { return huber_loss(x, other); }},
      {"bce with logits",
       [=](const Tensor& x) { return binary_cross_entropy_with_logits(x, part); }},
      {"transposed copy", [](const Tensor& x) { return contiguous(transpose(x, 0, 1)); }},
      {"cat 1",
       [=](const Tensor& x) {
         return cat({x, other}, 1);
       }},
      {"tril", [](const Tensor& x) { return tril(x); }},
      {"index_select 0", [=](const Tensor& x) { return index_select(x, 0, places); }},
      {"gather 1", [=](const Tensor& x) { return gather(x, 1, all_places); }},
      {"scatter_add 1", [=](const Tensor& x) { return scatter_add(x, 1, all_places, other); }},
      {"index_add 0", [=](const Tensor& x) { return index_add(x, 0, places, other); }},
      {"masked_select", [](const Tensor& x) { return masked_select(x, x > 0.0); }},
  };
  for (const auto& [name, run] : of_any)
    measure(name, {normal(shape)}, [&run = run](const Inputs& in) { return run(in[0]); });
  measure("log", {clone(part)}, [](const Inputs& in) { return log(in[0]); });
}

void layers() {
  const Shape images{32, 64, 28, 28};
  measure("softmax", {normal({8192, 128})}, [](const Inputs& in) { return softmax(in[0]); });
  measure("softmax 0", {normal({128, 8192})}, [](const Inputs& in) { return softmax(in[0], 0); });
  const Tensor thousand = to(rand({1024}) * 999.0, DType::Int64);
  const Tensor ten = to(rand({8192}) * 9.0, DType::Int64);
  measure("cross_entropy 1000", {normal({1024, 1000})},
          [=](const Inputs& in) { return cross_entropy(in[0], thousand); });
  measure("cross_entropy 10", {normal({8192, 10})},
          [=](const Inputs& in) { return cross_entropy(in[0], ten); });
  measure("layer_norm", {normal({4096, 512}), normal({512}), normal({512})},
          [](const Inputs& in) { return layer_norm(in[0], {512}, in[1], in[2]); });
  measure("group_norm", {normal(images), normal({64}), normal({64})},
          [](const Inputs& in) { return group_norm(in[0], 8, in[1], in[2]); });
  measure("batch_norm 2d", {normal(images), normal({64}), normal({64})},
          [](const Inputs& in) { return batch_norm(in[0], in[1], in[2], {}, {}); });
  measure("batch_norm 1d", {normal({4096, 256}), normal({256}), normal({256})},
          [](const Inputs& in) { return batch_norm(in[0], in[1], in[2], {}, {}); });
  measure("prelu", {normal(images), normal({64, 1, 1})},
          [](const Inputs& in) { return prelu(in[0], in[1]); });
  measure("max_pool", {normal(images)}, [](const Inputs& in) { return max_pool2d(in[0], 2); });
  measure("avg_pool", {normal(images)}, [](const Inputs& in) { return avg_pool2d(in[0], 2); });
  measure("upsample nearest", {normal({16, 64, 14, 14})},
          [](const Inputs& in) { return upsample(in[0], 28); });
  measure("upsample bilinear", {normal({16, 64, 14, 14})},
          [](const Inputs& in) { return upsample(in[0], 28, {.mode = UpsampleMode::Bilinear}); });
  measure("pad", {normal(images)}, [](const Inputs& in) { return pad(in[0], {1, 1, 1, 1}); });
  measure("permuted copy", {normal(images)}, [](const Inputs& in) {
    return contiguous(permute(in[0], {0, 2, 3, 1}));
  });
  const Tensor words = to(rand({8192}) * 31999.0, DType::Int64);
  measure("embedding", {normal({32000, 256})},
          [=](const Inputs& in) { return embedding(words, in[0]); });
}

void products() {
  const Shape bmm_shape{64, 128, 64};
  measure("matmul", {normal({512, 512}), normal({512, 512})},
          [](const Inputs& in) { return matmul(in[0], in[1]); });
  for (const int64_t n : {1024, 2048, 4096})
    if (!names.empty())
      measure(fmt::format("matmul {}", n), {normal({n, n}), normal({n, n})},
              [](const Inputs& in) { return matmul(in[0], in[1]); });
  measure("bmm", {normal(bmm_shape), normal({64, 64, 128})},
          [](const Inputs& in) { return matmul(in[0], in[1]); });
  measure("linear", {normal({256, 1024}), normal({1024, 1024}), normal({1024})},
          [](const Inputs& in) { return linear(in[0], in[1], in[2]); });
  measure("attention", {normal(bmm_shape), normal(bmm_shape), normal(bmm_shape)},
          [](const Inputs& in) {
            return matmul(softmax(matmul(in[0], transpose(in[1], 1, 2)) / 8.0), in[2]);
          });
  const std::vector<std::pair<const char*, Shape>> heads = {{"attention 64", {1, 4, 64, 32}},
                                                            {"attention 256", {16, 8, 256, 64}},
                                                            {"attention 2048", {1, 8, 2048, 64}}};
  for (const auto& [name, shape] : heads)
    for (const bool is_causal : {false, true})
      measure(is_causal ? fmt::format("{}, causal", name) : name,
              {normal(shape), normal(shape), normal(shape)}, [is_causal](const Inputs& in) {
                return scaled_dot_product_attention(in[0], in[1], in[2], {}, 0, is_causal);
              });
  const auto conv = [](const char* name, const Shape& x, const Shape& w,
                       const Conv2dOptions& options) {
    measure(name, {normal(x), normal(w), normal({w[0]})},
            [=](const Inputs& in) { return conv2d(in[0], in[1], in[2], options); });
  };
  const Shape x{16, 64, 28, 28};
  conv("conv 3x3", x, {64, 64, 3, 3}, {.padding = 1});
  conv("conv 1x1", x, {128, 64, 1, 1}, {});
  conv("conv 5x5", x, {64, 64, 5, 5}, {.padding = 2});
  conv("conv 7x7 / 2, 3 channels", {8, 3, 112, 112}, {64, 3, 7, 7}, {.stride = 2, .padding = 3});
  conv("conv 4x4 / 2", {16, 64, 32, 32}, {128, 64, 4, 4}, {.stride = 2, .padding = 1});
  conv("conv 3x3, dilated", x, {64, 64, 3, 3}, {.padding = 2, .dilation = 2});
  conv("conv 3x3, 4 groups", x, {64, 16, 3, 3}, {.padding = 1, .groups = 4});
  conv("conv 3x3, depthwise", x, {64, 1, 3, 3}, {.padding = 1, .groups = 64});
  measure("conv_transpose 4x4 / 2",
          {normal({16, 128, 16, 16}), normal({128, 64, 4, 4}), normal({64})}, [](const Inputs& in) {
            return conv_transpose2d(in[0], in[1], in[2], {.stride = 2, .padding = 1});
          });
}

}  // namespace

int main(int argc, char** argv) {
  const std::string type = argc > 1 ? argv[1] : "";
  if (type != "float32" && type != "bfloat16") {
    fmt::print(stderr, "operations float32|bfloat16 [NAME…]\n");
    return 2;
  }
  dtype = type == "float32" ? DType::Float32 : DType::BFloat16;
  names.assign(argv + 2, argv + argc);
  square_matrices();
  layers();
  products();
  fmt::print("{}\n", results.dump());
}
