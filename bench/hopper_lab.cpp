// Runs the variants of bench/hopper_lab_*.cu, first probes of what instructions mean, then
// kernels. Prints a JSON line for each as soon as it is known, so that
// nothing is lost when a lent GPU's time is over.
//
//   hopper_lab [--seconds S] [--small] [--list] [NAME …]
//
// NAME: a part of "kernel name shape"; variants that have one of them run, otherwise all.
// --seconds: no variant begins later. --small: small shapes, and no times, for an emulated device.
// Exit status: the number of variants that are wrong.
//
// A line has the kernel, the variant and its shape. `error` is relative to the largest number of a
// reference, and says whether the variant is `right`. cold_us is the median of graphs of 20
// launches whose operands are not in the second-level cache, warm_us of those whose are. tflops and
// gigabytes_per_second follow from cold_us. A variant may add more.
#include "ringgrad/bench/hopper_lab.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <limits>
#include <memory>

#include "ringgrad/core/device/device_backend.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/random.h"

namespace ringgrad::lab {
namespace {

constexpr double kL2Bytes = 60e6;

std::vector<Variant>& registered() {
  static std::vector<Variant> variants;
  return variants;
}

struct Microseconds {
  double median;
  double least;
};

// Times graphs of 20 launches.
Microseconds time(const Prepared& variant, bool cold) {
  constexpr int kLaunches = 20;
  constexpr int kReplays = 5;
  const Device device(DeviceType::CUDA);
  DeviceBackend& backend = device_backend(device.type);
  const auto graph = backend.capture(device.index, [&] {
    for (int i = 0; i < kLaunches; ++i)
      variant.run(current_stream(device), cold ? i % variant.sets : 0);
  });
  const Stream stream = current_stream(device);
  graph->launch(stream);  // warms up
  std::vector<double> times;
  for (int i = 0; i < kReplays; ++i) {
    const auto timer = backend.start_timer(stream);
    graph->launch(stream);
    timer->stop();
    times.push_back(timer->milliseconds() * 1e3 / kLaunches);
  }
  std::ranges::sort(times);
  return {times[kReplays / 2], times[0]};
}

// Returns what is known about a variant.
nlohmann::json measure(const Variant& variant, bool small) {
  const Device device(DeviceType::CUDA);
  nlohmann::json line = {
      {"kernel", variant.kernel}, {"variant", variant.name}, {"shape", variant.shape}};
  if (variant.predicted_us > 0) line["predicted_us"] = variant.predicted_us;
  const Prepared prepared = variant.prepare(small);
  prepared.run(current_stream(device), 0);
  device_backend(device.type).synchronize(current_stream(device));
  if (prepared.error) {
    const double error = prepared.error();
    line["error"] = std::isfinite(error) ? nlohmann::json(error) : nlohmann::json("not finite");
    line["right"] = error <= variant.most_error;
  }
  if (variant.operations > 0 && !small) {
    const Microseconds cold = time(prepared, true);
    const Microseconds warm = time(prepared, false);
    line["cold_us"] = cold.median;
    line["cold_least_us"] = cold.least;
    line["warm_us"] = warm.median;
    line["warm_least_us"] = warm.least;
    line["tflops"] = variant.operations / cold.median * 1e-6;
    line["gigabytes_per_second"] = variant.bytes / cold.median * 1e-3;
  }
  if (prepared.more) line.update(prepared.more());
  return line;
}

struct Options {
  double seconds = std::numeric_limits<double>::infinity();
  bool small = false;
  bool list = false;
  std::vector<std::string> names;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--small") {
      options.small = true;
    } else if (word == "--list") {
      options.list = true;
    } else if (word == "--seconds" && i + 1 < argc) {
      options.seconds = std::stod(argv[++i]);
    } else if (word.starts_with("--")) {
      throw Error(str("hopper_lab: '", word, "', expected --seconds S, --small, --list or a name"));
    } else {
      options.names.push_back(word);
    }
  }
  return options;
}

int run(const Options& options) {
  const auto begin = std::chrono::steady_clock::now();
  const auto seconds = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  std::ranges::stable_partition(registered(),
                                [](const Variant& variant) { return variant.kernel == "probe"; });
  int wrong = 0;
  int chosen = 0;
  for (const Variant& variant : registered()) {
    const std::string whole = variant.kernel + " " + variant.name + " " + variant.shape;
    const bool wanted =
        options.names.empty() || std::ranges::any_of(options.names, [&](const std::string& name) {
          return whole.find(name) != std::string::npos;
        });
    if (!wanted) continue;
    ++chosen;
    if (options.list) {
      std::printf("%s\n", whole.c_str());
      continue;
    }
    nlohmann::json line = {
        {"kernel", variant.kernel}, {"variant", variant.name}, {"shape", variant.shape}};
    if (seconds() > options.seconds) {
      line["left_out"] = "no time left";
    } else {
      try {
        line = measure(variant, options.small);
      } catch (const Error& error) {
        line["failed"] = error.what();
      }
    }
    wrong += line.contains("failed") || line.value("right", true) == false;
    line["at_s"] = seconds();
    std::printf("%s\n", line.dump().c_str());
    std::fflush(stdout);
  }
  if (chosen == 0) throw Error("hopper_lab: no variant has such a name; --list shows them all");
  return std::min(wrong, 100);
}

}  // namespace

bool register_variants(std::vector<Variant> variants) {
  std::ranges::move(variants, std::back_inserter(registered()));
  return true;
}

int sets_for(double bytes) {
  constexpr double kMost = 20;
  return static_cast<int>(std::clamp(std::ceil(2 * kL2Bytes / bytes), 1.0, kMost));
}

double relative_error(const Tensor& result, const Tensor& reference) {
  const std::vector<float> found = to_vector<float>(result);
  const std::vector<float> expected = to_vector<float>(reference);
  double difference = 0;
  double largest = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double d = std::abs(double{found[i]} - double{expected[i]});
    if (!(d <= difference)) difference = std::isfinite(d) ? d : INFINITY;
    largest = std::max(largest, std::abs(double{expected[i]}));
  }
  return largest > 0 ? difference / largest : difference;
}

Tensor noise(const Shape& shape, DType dtype) {
  const Tensor x = empty(shape, {.dtype = dtype, .device = Device(DeviceType::CUDA)});
  normal_(x, 0, 1);
  return x;
}

}  // namespace ringgrad::lab

int main(int argc, char** argv) {
  try {
    return ringgrad::lab::run(ringgrad::lab::parse(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 120;
  }
}
