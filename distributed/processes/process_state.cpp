#include "ringgrad/distributed/os/process_state.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "ringgrad/core/base/before_main.h"
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

ProcessState state_of(pid_t pid) {
  ProcessState process;
  size_t importance = kByImportance.size();
  std::error_code error;
  const std::filesystem::path tasks = "/proc/" + std::to_string(pid) + "/task";
  for (std::filesystem::directory_iterator task(tasks, error), end; !error && task != end;
       task.increment(error)) {
    importance = std::min(importance, kByImportance.find(state_in(task->path())));
    int64_t with_core = 0;
    int64_t without_core = 0;
    Classic<std::ifstream>(task->path() / "schedstat") >> with_core >> without_core;
    process.without_core = std::max(process.without_core, std::chrono::nanoseconds(without_core));
  }
  constexpr const char* kWords[] = {"it is starved: it waits for a core",
                                    "it waits for a disk, or for memory that is swapped out",
                                    "it is stopped", "a debugger holds it", "it sleeps"};
  if (importance < std::size(kWords)) process.words = kWords[importance];
  return process;
}

BEFORE_MAIN(process_state, process_state = state_of);

}  // namespace
}  // namespace ringgrad
