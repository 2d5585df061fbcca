// Times of the CPU's convolution kernels for the layers of ResNet-18 (batch 64) and ResNet-20 (batch 128) on CIFAR-10.
//
//   conv_bench [repetitions = 9] [threads = all cores] [part of a layer's name]
//
// Milliseconds, median (and least) of alternating repetitions: whatever disturbs the machine hits all contestants
// alike. Wall time; with one thread the thread's processor time, which hardly notices other programs. GFLOP/s count the
// multiplications of the definition, so Winograd's may exceed the machine's peak. "filters" is the preparation of the
// filters for both directions, once per step. The sums take, for each layer, the algorithm that fastest_algorithm
// names.
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "core/cpu/conv/conv2d.h"
#include "core/cpu/thread_pool.h"
#include "core/cpu/workspace.h"

using namespace ringgrad;
using namespace ringgrad::conv;

namespace {

struct Layer {
  const char* name;
  int count;  // how often the network has it
  Conv2dGeometry g;
  bool first = false;  // reads contiguous images, and nobody wants its data gradient
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
  return {{"3-16@32", 1, layer(3, 32, 16, 3, 1), true}, {"16@32", 6, layer(16, 32, 16, 3, 1)},
          {"32@16", 5, layer(32, 16, 32, 3, 1)},        {"64@8", 5, layer(64, 8, 64, 3, 1)},
          {"16-32@32 s2", 1, layer(16, 32, 32, 3, 2)},  {"32-64@16 s2", 1, layer(32, 16, 64, 3, 2)}};
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

// All contestants in turn, `repetitions` times after one round that warms up.
void race(std::vector<Contestant>& contestants, int repetitions, bool processor_time) {
  for (int i = 0; i <= repetitions; ++i)
    for (Contestant& c : contestants) {
      const double start = milliseconds(processor_time);
      c.run();
      if (i > 0) c.times.push_back(milliseconds(processor_time) - start);
    }
  for (Contestant& c : contestants) std::sort(c.times.begin(), c.times.end());
}

class Images {
 public:
  Images(Stream stream, int64_t numel) : memory_(stream, numel) {
    for (int64_t i = 0; i < numel; ++i) memory_[i] = static_cast<float>(i * 7919 % 1009) / 504.5f - 1;
  }
  float* data() const { return memory_.data(); }

 private:
  cpu::Workspace<float> memory_;
};

// Prints a layer's rows; returns the time of one step of it.
double bench(Stream stream, const Layer& layer, int repetitions, bool processor_time) {
  const Conv2dGeometry& g = layer.g;
  const Images x(stream, std::max(input_shape(g).numel(), g.n * g.c * g.h * g.w)), dx(stream, input_shape(g).numel());
  const Images y(stream, output_shape(g).numel()), dy(stream, output_shape(g).numel());
  const Images w(stream, g.k * g.c * g.r * g.s), dw(stream, g.k * g.c * g.r * g.s);
  const double operations =
      2e-6 * static_cast<double>(g.n * g.k * g.oh * g.ow * g.c * g.r * g.s);  // per millisecond: GFLOP/s
  std::vector<std::pair<const char*, Algorithm>> algorithms{{"direct", Algorithm::Direct}};
  if (!layer.first && supports(Algorithm::Winograd, g)) algorithms.push_back({"winograd", Algorithm::Winograd});

  std::vector<Contestant> contestants;
  std::vector<std::unique_ptr<Images>> prepared;
  const auto room = [&](int64_t floats) {
    prepared.push_back(std::make_unique<Images>(stream, floats));
    return floats > 0 ? prepared.back()->data() : nullptr;
  };
  for (const auto& [name, algorithm] : algorithms) {
    const Algorithm a = algorithm;
    if (layer.first) {
      float* const form = room(prepared_filter_floats_nchw(g));
      contestants.push_back({[&, form] { prepare_filters_nchw(stream, g, w.data(), form); }});
      contestants.push_back({[&, form] { forward_nchw(stream, g, x.data(), {w.data(), form}, y.data()); }});
      contestants.push_back({[] {}});
      contestants.push_back({[&] { backward_weight_nchw(stream, g, x.data(), dy.data(), dw.data()); }});
      continue;
    }
    float* const ahead = room(prepared_filter_floats(g, a, Direction::Forward));
    float* const back = room(prepared_filter_floats(g, a, Direction::BackwardInput));
    contestants.push_back({[&, a, ahead, back] {
      if (ahead) prepare_filters(stream, g, a, Direction::Forward, w.data(), ahead);
      if (back) prepare_filters(stream, g, a, Direction::BackwardInput, w.data(), back);
    }});
    contestants.push_back({[&, a, ahead] { forward(stream, g, a, x.data(), {w.data(), ahead}, y.data()); }});
    contestants.push_back({[&, a, back] { backward_input(stream, g, a, dy.data(), {w.data(), back}, dx.data()); }});
    contestants.push_back({[&, a] { backward_weight(stream, g, a, x.data(), dy.data(), dw.data()); }});
  }
  race(contestants, repetitions, processor_time);

  double step = 0;
  for (size_t i = 0; i < algorithms.size(); ++i) {
    const Contestant* const c = &contestants[4 * i];
    const bool chosen = layer.first || fastest_algorithm(g) == algorithms[i].second;
    fmt::print("{:18} x{} {:8} {}", layer.name, layer.count, algorithms[i].first, chosen ? '*' : ' ');
    for (int pass : {1, 2, 3})
      fmt::print("  {:6.2f} ({:6.2f}) {:4.0f}", c[pass].median(), c[pass].times[0],
                 c[pass].median() < 0.01 ? 0 : operations / c[pass].median());
    fmt::print("   {:.2f}\n", c[0].median());
    for (int pass : {0, 1, 2, 3}) step += chosen ? c[pass].median() : 0;
  }
  std::fflush(stdout);
  return step * layer.count;
}

}  // namespace

int main(int argc, char** argv) {
  const int repetitions = argc > 1 ? std::max(1, std::atoi(argv[1])) : 9;
  ThreadPool pool(argc > 2 ? std::max(1, std::atoi(argv[2])) : cpu_cores());
  const std::string part = argc > 3 ? argv[3] : "";
  const Stream stream{Device("cpu"), &pool};
  fmt::print("{} threads, {} repetitions, {} time\n", pool.threads(), repetitions,
             pool.threads() == 1 ? "processor" : "wall");
  fmt::print("{:32}  {:21}  {:21}  {:21}  filters\n", "ms median (least) GFLOP/s", "forward", "data gradient",
             "weight gradient");
  for (const auto& [name, layers] :
       {std::pair{"ResNet-18, batch 64", resnet18()}, {"ResNet-20, batch 128", resnet20()}}) {
    double sum = 0;
    for (const Layer& layer : layers)
      if (std::string(layer.name).find(part) != std::string::npos)
        sum += bench(stream, layer, repetitions, pool.threads() == 1);
    fmt::print("{}: {:.1f} ms\n\n", name, sum);
  }
}
