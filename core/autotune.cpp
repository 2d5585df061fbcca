#include "core/autotune.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <map>
#include <mutex>
#include <sstream>

#include "core/atomic_file.h"
#include "core/error.h"

namespace ringgrad {
namespace {

std::atomic<bool> enabled{false};

struct Times {
  double native_us, vendor_us;
};

double microseconds(const std::function<void()>& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
}

// The least of three alternating runs each, after one that warms up: what disturbs the machine only ever adds.
Times measure(const std::function<void()>& native, const std::function<void()>& vendor) {
  constexpr double kForever = std::numeric_limits<double>::infinity();
  Times least{kForever, kForever};
  native();
  vendor();
  for (int i = 0; i < 3; ++i) {
    least.native_us = std::min(least.native_us, microseconds(native));
    least.vendor_us = std::min(least.vendor_us, microseconds(vendor));
  }
  return least;
}

std::string first_line() {
  std::ifstream file("/proc/cpuinfo");
  std::string processor = "unknown processor";
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) {
      processor = line.substr(line.find(':') + 2);
      break;
    }
  return "# ringgrad autotune 1: call, native us, vendor us; " + processor;
}

class Table {
 public:
  Table() : file_(autotune_file()) {
    std::ifstream in(file_);
    std::string line;
    if (!std::getline(in, line) || line != first_line()) return;
    while (std::getline(in, line)) {  // a line that does not parse ends the table: it will be measured anew
      std::istringstream fields(line);
      std::string key;
      Times times;
      if (!std::getline(fields, key, '\t') || !(fields >> times.native_us >> times.vendor_us)) break;
      calls_[key] = times;
    }
  }

  const Times* find(const std::string& key) const {
    const auto found = calls_.find(key);
    return found == calls_.end() ? nullptr : &found->second;
  }
  const std::map<std::string, Times>& calls() const { return calls_; }

  void add(const std::string& key, Times times) {
    calls_[key] = times;
    std::ostringstream text;
    text << first_line() << '\n';
    for (const auto& [name, t] : calls_) text << name << '\t' << t.native_us << '\t' << t.vendor_us << '\n';
    const std::string bytes = text.str();
    try {
      std::error_code ignored;
      std::filesystem::create_directories(file_.parent_path(), ignored);
      AtomicFile out(file_);
      out.write({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
      out.commit();
    } catch (const IoError&) {  // it costs a measurement in the next process
    }
  }

 private:
  std::filesystem::path file_;
  std::map<std::string, Times> calls_;
};

std::mutex mutex;
Table& table() {  // under the mutex
  static Table* const instance = new Table;
  return *instance;
}

}  // namespace

void set_autotune(bool on) { enabled = on; }
bool autotune() { return enabled; }

void run_fastest(const std::string& key, const std::function<void()>& native, const std::function<void()>& vendor) {
  std::unique_lock lock(mutex);
  const Times* known = table().find(key);
  if (!known) {  // under the lock: two measurements at once would disturb each other
    table().add(key, measure(native, vendor));
    known = table().find(key);
  }
  const bool native_wins = known->native_us <= known->vendor_us;
  lock.unlock();
  native_wins ? native() : vendor();
}

std::vector<TunedCall> tuned_calls() {
  std::lock_guard lock(mutex);
  std::vector<TunedCall> all;
  for (const auto& [key, times] : table().calls()) all.push_back({key, times.native_us, times.vendor_us});
  return all;
}

std::filesystem::path autotune_file() {
  if (const char* own = std::getenv("RINGGRAD_CACHE_DIR")) return std::filesystem::path(own) / "autotune.tsv";
  if (const char* cache = std::getenv("XDG_CACHE_HOME"))
    return std::filesystem::path(cache) / "ringgrad" / "autotune.tsv";
  const char* home = std::getenv("HOME");
  return std::filesystem::path(home ? home : ".") / ".cache" / "ringgrad" / "autotune.tsv";
}

}  // namespace ringgrad
