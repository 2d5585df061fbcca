// Times the CPU's convolution kernels for the layers of ResNet-18 (batch 64), ResNet-20 (batch 128)
// and airbench's network (batch 500), whose images leave tiles ragged, on CIFAR-10.
//
//   conv_bench [repetitions = 9] [threads = all cores] [part of a layer's name]
//
// Prints milliseconds, the median (and least) of alternating repetitions, so that disturbances of
// the machine affect all contestants alike. Times are wall time. With one thread they are the
// thread's processor time, which other programs hardly affect. GFLOP/s count the multiplications of
// the definition, so Winograd's may exceed the machine's peak. For the sums each layer uses the
// algorithm that the plan chooses.
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "ringgrad/core/cpu/conv/convolve.h"
#include "ringgrad/core/cpu/conv/plan.h"
#include "ringgrad/core/cpu/thread_pool.h"
#include "ringgrad/core/cpu/workspace.h"

using namespace ringgrad;
using namespace ringgrad::conv;

namespace {

struct Layer {
  const char* name;
  int count;  // how often the network contains it
  Conv2dGeometry g;
  bool first = false;  // reads contiguous images, and needs no data gradient
};

std::vector<Layer> resnet18() {
  const auto layer = [](int64_t c, int64_t h, int64_t k, int64_t r, int64_t stride) {
    return conv2d_geometry(64, c, h, h, k, r, r, stride, r / 2);
  };
  return {{"3-64@32", 1, layer(3, 32, 64, 3, 1), true},
          {"64@32", 4, layer(64, 32, 64, 3, 1)},
          {"128@16", 3, layer(128, 16, 128, 3, 1)},
          {"256@8", 3, layer(256, 8, 256, 3, 1)},
          {"512@4", 3, layer(512, 4, 512, 3, 1)},
          {"64-128@32 s2", 1, layer(64, 32, 128, 3, 2)},
          {"128-256@16 s2", 1, layer(128, 16, 256, 3, 2)},
          {"256-512@8 s2", 1, layer(256, 8, 512, 3, 2)},
          {"64-128@32 1x1 s2", 1, layer(64, 32, 128, 1, 2)},
          {"128-256@16 1x1 s2", 1, layer(128, 16, 256, 1, 2)},
          {"256-512@8 1x1 s2", 1, layer(256, 8, 512, 1, 2)}};
}

std::vector<Layer> resnet20() {
  const auto layer = [](int64_t c, int64_t h, int64_t k, int64_t r, int64_t stride) {
    return conv2d_geometry(128, c, h, h, k, r, r, stride, r / 2);
  };
  return {
      {"3-16@32", 1, layer(3, 32, 16, 3, 1), true}, {"16@32", 6, layer(16, 32, 16, 3, 1)},
      {"32@16", 5, layer(32, 16, 32, 3, 1)},        {"64@8", 5, layer(64, 8, 64, 3, 1)},
      {"16-32@32 s2", 1, layer(16, 32, 32, 3, 2)},  {"32-64@16 s2", 1, layer(32, 16, 64, 3, 2)}};
}

std::vector<Layer> airbench() {
  const auto layer = [](int64_t c, int64_t h, int64_t k) {
    return conv2d_geometry(500, c, h, h, k, 3, 3, 1, 1);
  };
  return {{"24-64@31", 1, layer(24, 31, 64)},
          {"64@15", 1, layer(64, 15, 64)},
          {"64-256@15", 1, layer(64, 15, 256)},
          {"256@7", 2, layer(256, 7, 256)},
          {"256@3", 1, layer(256, 3, 256)}};
}

double milliseconds(bool processor_time) {
  if (!processor_time) {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration<double, std::milli>(now).count();
  }
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

struct Contestant {
  std::function<void()> run;
  std::vector<double> times = {};
  double median() const { return times[times.size() / 2]; }
};

// Runs all contestants in turn, `repetitions` times after one warm-up round.
void race(std::vector<Contestant>& contestants, int repetitions, bool processor_time) {
  for (int i = 0; i <= repetitions; ++i)
    for (Contestant& c : contestants) {
      const double start = milliseconds(processor_time);
      c.run();
      if (i > 0) c.times.push_back(milliseconds(processor_time) - start);
    }
  for (Contestant& c : contestants) std::sort(c.times.begin(), c.times.end());
}

template <class T>
class Images {
 public:
  Images(Stream stream, int64_t numel) : memory_(stream, std::max<int64_t>(1, numel)) {
    for (int64_t i = 0; i < numel; ++i)
      memory_[i] = static_cast<float>(i * 7919 % 1009) / 504.5f - 1;
  }
  T* data() const { return memory_.data(); }

 private:
  cpu::Workspace<T> memory_;
};

ConvProblem problem_of(const Conv2dGeometry& g, ConvAlgorithm wanted) {
  return {.x = {g.n, g.c, g.h, g.w},
          .w = {g.k, g.c, g.r, g.s},
          .options = {.stride = g.stride, .padding = g.padding},
          .x_layout = Layout::ChannelBlocked,
          .layout = Layout::ChannelBlocked,
          .wanted = wanted};
}
template <class T>
ConvMethod method_of(const Conv2dGeometry& g, ConvPass pass, ConvAlgorithm wanted) {
  ConvProblem problem = problem_of(g, wanted);
  problem.pass = pass;
  problem.dtype = dtype_of<T>;
  return plan(problem).method;
}

// The three passes of a layer in a training step with one method: forward, data gradient and weight
// gradient.
template <class T>
class LayerStep {
 public:
  LayerStep(Stream stream, const Layer& layer, ConvAlgorithm algorithm)
      : stream_(stream),
        g_(layer.g),
        first_(layer.first),
        algorithm_(algorithm),
        x_(stream, first_ ? 0 : input_shape(g_).numel()),
        dx_(stream, first_ ? 0 : input_shape(g_).numel()),
        y_(stream, output_shape(g_).numel()),
        dy_(stream, output_shape(g_).numel()),
        nchw_(stream, first_ ? g_.n * g_.c * g_.h * g_.w : 0),
        w_(stream, g_.k * g_.c * g_.r * g_.s),
        dw_(stream, g_.k * g_.c * g_.r * g_.s) {}

  void forward() {
    if (first_) return convolve_nchw(stream_, g_, nchw_.data(), w_.data(), nullptr, y_.data());
    convolve<T>(stream_, g_, method_of<T>(g_, ConvPass::Forward, algorithm_), Direction::Forward,
                x_.data(), w_.data(), nullptr, nullptr, y_.data());
  }
  void backward_input() {
    if (!first_)
      convolve<T>(stream_, g_, method_of<T>(g_, ConvPass::BackwardInput, algorithm_),
                  Direction::BackwardInput, dy_.data(), w_.data(), nullptr, nullptr, dx_.data());
  }
  void backward_weight() {
    if (first_) return weight_gradient_nchw(stream_, g_, nchw_.data(), dy_.data(), dw_.data());
    weight_gradient(stream_, g_, method_of<T>(g_, ConvPass::BackwardWeight, algorithm_), x_.data(),
                    dy_.data(), dw_.data());
  }

 private:
  Stream stream_;
  Conv2dGeometry g_;
  bool first_;
  ConvAlgorithm algorithm_;
  Images<T> x_;
  Images<T> dx_;
  Images<T> y_;
  Images<T> dy_;
  Images<float> nchw_;
  Images<float> w_;
  Images<float> dw_;
};

// The types of images whose times are added up.
constexpr const char* kImages[] = {"float32", "bfloat16"};

// Prints a layer's rows and adds the times of one step to `sums`.
void bench(Stream stream, const Layer& layer, int repetitions, bool processor_time,
           double (&sums)[2]) {
  struct Row {
    ConvAlgorithm algorithm;
    int images;
  };
  std::vector<Row> rows;
  std::vector<Contestant> contestants;
  const auto add = [&]<class T>(ConvAlgorithm algorithm, int images) {
    if (algorithm == ConvAlgorithm::Winograd &&
        (layer.first || !has_winograd(problem_of(layer.g, algorithm))))
      return;
    const auto step = std::make_shared<LayerStep<T>>(stream, layer, algorithm);
    rows.push_back({algorithm, images});
    contestants.push_back({[step] { step->forward(); }});
    contestants.push_back({[step] { step->backward_input(); }});
    contestants.push_back({[step] { step->backward_weight(); }});
  };
  for (ConvAlgorithm algorithm : {ConvAlgorithm::Direct, ConvAlgorithm::Winograd}) {
    add.operator()<float>(algorithm, 0);
    add.operator()<bfloat16>(algorithm, 1);
  }
  race(contestants, repetitions, processor_time);

  const Conv2dGeometry& g = layer.g;
  const double operations = 2e-6 * static_cast<double>(g.n * g.k * g.oh * g.ow * g.c * g.r * g.s);
  for (size_t i = 0; i < rows.size(); ++i) {
    const Contestant* const c = &contestants[3 * i];
    const ConvMethod fastest = plan(problem_of(g, ConvAlgorithm::Auto), false).method;
    const bool chosen = layer.first || (fastest == ConvMethod::Direct) ==
                                           (rows[i].algorithm == ConvAlgorithm::Direct);
    fmt::print("{:18} x{} {:8} {:8} {}", layer.name, layer.count,
               rows[i].algorithm == ConvAlgorithm::Direct ? "direct" : "winograd",
               kImages[rows[i].images], chosen ? '*' : ' ');
    for (int pass : {0, 1, 2})
      fmt::print("  {:6.2f} ({:6.2f}) {:4.0f}", c[pass].median(), c[pass].times[0],
                 c[pass].median() < 1e-3 ? 0 : operations / c[pass].median());
    fmt::print("\n");
    for (int pass : {0, 1, 2}) sums[rows[i].images] += chosen ? c[pass].median() * layer.count : 0;
  }
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const int repetitions = argc > 1 ? std::max(1, std::atoi(argv[1])) : 9;
  ThreadPool pool(argc > 2 ? std::max(1, std::atoi(argv[2])) : cpu_cores());
  const std::string part = argc > 3 ? argv[3] : "";
  const Stream stream{Device("cpu"), &pool};
  fmt::print("{} threads, {} repetitions, {} time\n", pool.threads(), repetitions,
             pool.threads() == 1 ? "processor" : "wall");
  fmt::print("{:45}  {:21}  {:21}  {:21}\n", "ms median (least) GFLOP/s", "forward",
             "data gradient", "weight gradient");
  for (const auto& [name, layers] : {std::pair{"ResNet-18, batch 64", resnet18()},
                                     {"ResNet-20, batch 128", resnet20()},
                                     {"airbench, batch 500", airbench()}}) {
    double sums[2] = {};
    for (const Layer& layer : layers)
      if (std::string(layer.name).find(part) != std::string::npos)
        bench(stream, layer, repetitions, pool.threads() == 1, sums);
    for (int images : {0, 1})
      if (sums[images] > 0) fmt::print("{}, {}: {:.1f} ms\n", name, kImages[images], sums[images]);
  }
}
