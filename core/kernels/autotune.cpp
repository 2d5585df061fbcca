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
#include "ringgrad/core/base/letters.h"
#include "ringgrad/core/device/device_backend.h"
#include "ringgrad/core/device/parallel.h"
#include "ringgrad/core/device/timer.h"
#include "ringgrad/core/kernels/call_signature.h"
#include "ringgrad/core/kernels/float32_precision.h"
#include "ringgrad/core/kernels/kernel.h"

namespace ringgrad {
namespace {

constexpr double kForever = std::numeric_limits<double>::infinity();

// The microseconds of each way to run a call. The ways are the native kernel and the vendor's, or
// the vendor's plans.
using Times = std::vector<double>;
using Ways = std::vector<std::function<bool(Stream)>>;
constexpr const char* kPlansOf = "plans of ";  // the prefix of entries for a vendor's plans

// Several runs that are measured together. On CUDA they form a graph, like a captured training
// step, so the host's time for queueing a kernel does not count.
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
  // Returns the microseconds of one run.
  double microseconds() const {
    const auto timer = start_timer(stream_);
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

// Measures each way to run a call. The result is the least of three alternating samples, after a
// warm-up, because disturbances only ever add time. It is infinity for a way that reports that it
// has no kernel, or that fails.
Times measure(Stream stream, const Ways& ways) {
  // In microseconds: long enough that the time to start and to wait does not matter.
  constexpr double kSample = 300;
  // Kernels that a way calls in turn are not to be measured here.
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
      synchronize(stream);  // throws if the device itself has failed
    }
  }
  Times least(ways.size(), kForever);
  for (int sample = 0; sample < 3; ++sample)
    for (size_t i = 0; i < ways.size(); ++i)
      if (runs[i]) least[i] = std::min(least[i], runs[i]->microseconds());
  return least;
}

// The measurements of one file. "The vendor has no kernel" is remembered by this process but not
// written to the file, because the vendor's library may change. For plans it is written, because
// their key contains the library's version.
class Table {
 public:
  explicit Table(const std::filesystem::path& file) : file_(file) { read(); }

  const Times* find(const std::string& call) const {
    const auto found = calls_.find(call);
    return found == calls_.end() ? nullptr : &found->second;
  }
  const std::map<std::string, Times>& calls() const { return calls_; }

  void add(const std::string& call, Times times) {
    read();  // adds what other processes have measured meanwhile
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
    } catch (const IoError&) {  // the next process has to measure again
    }
  }

 private:
  static constexpr const char* kHeader =
      "# ringgrad autotune 5: call, native us, vendor us; or us of the vendor's plans";

  static bool is_kept(const std::string& call, const Times& times) {
    return call.starts_with(kPlansOf) ||
           std::find(times.begin(), times.end(), kForever) == times.end();
  }

  // Adds the measurements of the file that this process lacks. Stops at a line that does not parse;
  // those calls are measured again.
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

std::recursive_mutex mutex;  // recursive: a vendor kernel that is timed may call fastest_plan()

// Devices with the same name share a table. REQUIRES: the mutex is held.
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

// Adds the settings on which a call's speed depends besides its arguments.
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
// vary by a percent or two, and the ways differ in the last bits of their results. So noise should
// not choose between them.
constexpr double kNotWorthIt = 1.03;

// Returns the first of the ways that are as good as the fastest, or nullopt if no way runs.
std::optional<size_t> fastest(Stream stream, const std::string& key, const Ways& ways) {
  // The lock is held while measuring, because two measurements at once would disturb each other.
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
BEFORE_MAIN(autotune, vendor_choice = choose);

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
