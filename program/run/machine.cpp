#include "ringgrad/program/run/machine.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "ringgrad/core/base/environment.h"
#include "ringgrad/core/device/device_backend.h"
#include "ringgrad/core/kernels/isa.h"
#include "ringgrad/program/console/console.h"

namespace ringgrad::program {

namespace {

// Opens a file of this process's control group: in the one hierarchy of version 2, or in a
// controller's own of version 1.
std::ifstream group_file(const std::string& controller, const std::string& name_1,
                         const std::string& name_2) {
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {  // "4:cpu,cpuacct:/path", "0::/path"
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const std::string path = line.substr(second + 1);
    if (controllers == ",,") {
      if (std::ifstream file("/sys/fs/cgroup" + path + "/" + name_2); file) return file;
    } else if (controllers.find("," + controller + ",") != std::string::npos) {
      if (std::ifstream file("/sys/fs/cgroup/" + controller + path + "/" + name_1); file)
        return file;
    }
  }
  return std::ifstream();
}

}  // namespace

std::string machine_name() {
  return fmt::format("{}, {}, kernels for {}", device_backend(DeviceType::CPU).describe(0),
                     counted(sysconf(_SC_NPROCESSORS_ONLN), "core"), isa());
}

std::string command_line() {
  std::ifstream in("/proc/self/cmdline");
  std::string line;
  for (std::string word; std::getline(in, word, '\0');) {
    const bool plain =
        !word.empty() && word.find_first_of(" \t\n\"'\\$&|;<>()*?#~`") == std::string::npos;
    if (line.empty())
      line = variable("RINGGRAD_CALLED_AS", word.c_str());
    else
      line += plain ? " " + word : " '" + word + "'";
  }
  return line;
}

int64_t memory_limit() {
  const int64_t all = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE);
  int64_t allowed = 0;  // "max" is no number
  group_file("memory", "memory.limit_in_bytes", "memory.max") >> allowed;
  return allowed > 0 ? std::min(all, allowed) : all;
}

int64_t resident_bytes() {
  rusage used{};
  return getrusage(RUSAGE_SELF, &used) == 0 ? int64_t{used.ru_maxrss} << 10 : 0;
}

ProcessorQuota processor_quota() {
  ProcessorQuota quota;
  std::ifstream file = group_file("cpu", "cpu.stat", "cpu.stat");
  int64_t value = 0;
  for (std::string name; file >> name >> value;) {
    if (name == "nr_periods") quota.periods = value;
    if (name == "nr_throttled") quota.throttled = value;
  }
  return quota;
}

}  // namespace ringgrad::program
