#include "ringgrad/core/kernels/autotune.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "ringgrad/core/base/before_main.h"
#include "ringgrad/core/base/environment.h"
#include "ringgrad/core/base/file.h"
#include "ringgrad/core/device/device_backend.h"
#include "ringgrad/core/device/parallel.h"
#include "ringgrad/core/kernels/call_signature.h"
#include "ringgrad/core/kernels/float32_precision.h"
#include "ringgrad/core/kernels/kernel.h"

namespace ringgrad {
namespace {

constexpr double kForever = std::numeric_limits<double>::infinity();

// Microseconds of each way to run a call: the native kernel and the vendor's, or the vendor's
// plans.
using Times = std::vector<double>;
using Ways = std::vector<std::function<bool(Stream)>>;
constexpr const char* kPlansOf = "plans of ";  // what the vendor's begin with

// Several runs, to be measured together. On CUDA they are a graph, as the steps of a training are:
// what the host takes to queue a kernel is no part of its time.
class Runs {
 public:
  Runs(Stream stream, int count, const std::function<void(Stream)>& run)
      : stream_(stream), count_(count) {
    all_ = [count, run](Stream on) {
      for (int i = 0; i < count; ++i) run(on);
    };
    if (stream.device.is_cpu()) return;
    graph_ = backend().capture(stream.device.index, [&] { all_(current_stream(stream.device)); });
  }
  // Of one run.
  double microseconds() const {
    const auto timer = backend().start_timer(stream_);
    if (graph_)
      graph_->launch(stream_);
    else
      all_(stream_);
    timer->stop();
    return timer->milliseconds() * 1e3 / count_;
  }

 private:
  DeviceBackend& backend() const { return device_backend(stream_.device.type); }

  Stream stream_;
  int count_;
  std::function<void(Stream)> all_;
  std::unique_ptr<DeviceGraph> graph_;
};

// Of each way to run a call, the least of three alternating samples, after one that warms up: what
// disturbs the machine only ever adds. Infinity for a way that says that it has no kernel, or
// fails.
Times measure(Stream stream, const Ways& ways) {
  // Microseconds, so that starting and waiting do not count.
  constexpr double kSample = 300;
  // Kernels inside of any way are not part of this question.
  const ProviderGuard guard(Provider::Native);
  std::vector<std::optional<Runs>> runs(ways.size());
  int count = 0;
  for (size_t i = 0; i < ways.size(); ++i) {
    const auto run = [&ways, i](Stream on) { ways[i](on); };
    try {
      if (!ways[i](stream)) continue;
      if (count == 0) {
        const double once = Runs(stream, 1, run).microseconds();
        count = static_cast<int>(std::clamp(kSample / std::max(once, 1.0), 1.0, 20.0));
      }
      runs[i].emplace(stream, count, run);
      synchronize(stream);
    } catch (const Error&) {
      runs[i].reset();
      synchronize(stream);  // which throws where it is the device that fails
    }
  }
  Times least(ways.size(), kForever);
  for (int sample = 0; sample < 3; ++sample)
    for (size_t i = 0; i < ways.size(); ++i)
      if (runs[i]) least[i] = std::min(least[i], runs[i]->microseconds());
  return least;
}

// Where the vendor has no kernel, that is for this process to remember and not for the file: its
// library may change. The names of calls with plans have its version.
class Table {
 public:
  explicit Table(const std::filesystem::path& file) : file_(file) { read(); }

  const Times* find(const std::string& call) const {
    const auto found = calls_.find(call);
    return found == calls_.end() ? nullptr : &found->second;
  }
  const std::map<std::string, Times>& calls() const { return calls_; }

  void add(const std::string& call, Times times) {
    read();  // what other processes have measured meanwhile
    calls_[call] = times;
    if (!is_kept(call, times)) return;
    TextOutput text;
    text << kHeader << '\n';
    for (const auto& [name, microseconds] : calls_) {
      if (!is_kept(name, microseconds)) continue;
      text << name;
      for (const double us : microseconds) us < kForever ? text << '\t' << us : text << "\t-";
      text << '\n';
    }
    const std::string bytes = text.str();
    try {
      std::error_code ignored;
      std::filesystem::create_directories(file_.parent_path(), ignored);
      write_text(file_, bytes);
    } catch (const IoError&) {  // it costs a measurement in the next process
    }
  }

 private:
  static constexpr const char* kHeader =
      "# ringgrad autotune 5: call, native us, vendor us; or us of the vendor's plans";

  static bool is_kept(const std::string& call, const Times& times) {
    return call.starts_with(kPlansOf) ||
           std::find(times.begin(), times.end(), kForever) == times.end();
  }

  // Adds what the file knows and this process does not. A line that does not parse ends it: it will
  // be measured anew.
  void read() {
    Classic<std::ifstream> in(file_);
    std::string line;
    if (!std::getline(in, line) || line != kHeader) return;
    while (std::getline(in, line)) {
      TextInput fields(line);
      std::string call;
      Times times;
      std::getline(fields, call, '\t');
      for (std::string field; std::getline(fields, field, '\t');) {
        const std::optional<double> us = field == "-" ? kForever : parse_number<double>(field);
        if (!us) break;
        times.push_back(*us);
      }
      if (times.size() < 2) break;
      calls_.emplace(call, times);
    }
  }

  std::filesystem::path file_;
  std::map<std::string, Times> calls_;
};

std::recursive_mutex mutex;  // a vendor that is timed may ask for its own fastest plan

// One for all devices of a name. Under the mutex.
Table& table_of(Device device) {
  static auto* const of_device = new std::map<std::pair<DeviceType, int>, std::shared_ptr<Table>>;
  static auto* const of_file = new std::map<std::string, std::shared_ptr<Table>>;
  std::shared_ptr<Table>& table = (*of_device)[{device.type, device.index}];
  if (table) return *table;
  const std::string file = autotune_file(device);
  std::shared_ptr<Table>& shared = (*of_file)[file];
  if (!shared) shared = std::make_shared<Table>(file);
  return *(table = shared);
}

// What a call's speed depends on besides its arguments.
std::string with_settings(Stream stream, const std::string& call) {
  if (!stream.device.is_cpu()) {
    const bool tf32 = allows_tf32() && call.find("float32") != std::string::npos;
    return tf32 ? call + " tf32" : call;
  }
  static constexpr const char* kAlgorithms[] = {"", " direct", " winograd"};
  return call + " threads " + std::to_string(thread_count(stream)) +
         kAlgorithms[static_cast<int>(conv_algorithm())];
}

// The first way is taken if it takes at most this many times the fastest one's time. Measured times
// vary by a percent or two, and the ways differ in the last bits of their results: noise should not
// choose between them.
constexpr double kNotWorthIt = 1.03;

// Returns the first of the ways that are as good as the fastest, or nullopt if no way runs.
std::optional<size_t> fastest(Stream stream, const std::string& key, const Ways& ways) {
  // Measured under the lock: two measurements at once would disturb each other.
  std::lock_guard lock(mutex);
  Table& table = table_of(stream.device);
  const Times* known = table.find(key);
  if (!known || known->size() != ways.size()) {
    if (device_backend(stream.device.type).capturing()) return 0;
    table.add(key, measure(stream, ways));
    known = table.find(key);
  }
  const double least = *std::min_element(known->begin(), known->end());
  if (least == kForever) return std::nullopt;
  const auto chosen = std::find_if(known->begin(), known->end(),
                                   [&](double time) { return time <= kNotWorthIt * least; });
  return chosen - known->begin();
}

bool choose(const ObservedCall& call, const std::function<void(Stream)>& native,
            const std::function<bool(Stream)>& vendor) {
  return vendor_is_faster(call.stream, call_signature(call.kernel.name(), call.arguments), native,
                          vendor);
}
BEFORE_MAIN(autotune, register_vendor_choice(choose));

}  // namespace

bool vendor_is_faster(Stream stream, const std::string& call,
                      const std::function<void(Stream)>& native,
                      const std::function<bool(Stream)>& vendor) {
  const auto always = [&](Stream on) { return native(on), true; };
  return fastest(stream, with_settings(stream, call), {always, vendor}) == 1;
}

std::optional<size_t> fastest_plan(Stream stream, const std::string& call, const Ways& plans) {
  if (plans.size() < 2) return plans.empty() ? std::nullopt : std::optional<size_t>(0);
  return fastest(stream, kPlansOf + with_settings(stream, call), plans);
}

std::vector<TunedCall> tuned_calls(Device device) {
  std::lock_guard lock(mutex);
  std::vector<TunedCall> all;
  for (const auto& [call, times] : table_of(device).calls())
    if (!call.starts_with(kPlansOf)) all.push_back({call, times[0], times[1]});
  return all;
}

std::string autotune_file(Device device) {
  std::string file = "autotune-" + device_backend(device.type).describe(device.index) + ".tsv";
  for (char& c : file)
    if (!is_letter(c) && !is_digit(c) && c != '.' && c != '-') c = '-';
  if (const std::string own = variable("RINGGRAD_CACHE_DIR"); !own.empty()) return own + "/" + file;
  if (const std::string cache = variable("XDG_CACHE_HOME"); !cache.empty())
    return cache + "/ringgrad/" + file;
  return variable("HOME", ".") + "/.cache/ringgrad/" + file;
}

}  // namespace ringgrad
