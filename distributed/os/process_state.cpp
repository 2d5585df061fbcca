#include "ringgrad/distributed/os/process_state.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string_view>

#include "ringgrad/core/base/text.h"

namespace ringgrad {
namespace {

constexpr std::string_view kByImportance = "RDTtS";

char state_in(const std::filesystem::path& task) {
  std::string line;
  Classic<std::ifstream> stat(task / "stat");
  std::getline(stat, line);
  const size_t end_of_name = line.rfind(") ");  // a name may have parentheses of its own
  return end_of_name + 2 < line.size() ? line[end_of_name + 2] : '\0';
}

}  // namespace

ProcessState process_state(pid_t pid) {
  ProcessState process;
  size_t importance = kByImportance.size();
  std::error_code error;
  const std::filesystem::path tasks = "/proc/" + std::to_string(pid) + "/task";
  for (std::filesystem::directory_iterator task(tasks, error), end; !error && task != end;
       task.increment(error)) {
    importance = std::min(importance, kByImportance.find(state_in(task->path())));
    int64_t with_core = 0, without_core = 0;
    Classic<std::ifstream>(task->path() / "schedstat") >> with_core >> without_core;
    process.without_core = std::max(process.without_core, std::chrono::nanoseconds(without_core));
  }
  if (importance < kByImportance.size()) process.state = kByImportance[importance];
  return process;
}

std::string describe(const ProcessState& process) {
  switch (process.state) {
    case 'R': return "it is starved: it waits for a core";
    case 'D': return "it waits for a disk, or for memory that is swapped out";
    case 'T': return "it is stopped";
    case 't': return "a debugger holds it";
    case 'S': return "it sleeps";
    default: return "it is stopped, starved, or cut off";
  }
}

}  // namespace ringgrad
