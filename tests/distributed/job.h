// For tests with real processes: a test program starts itself again as the ranks of a job, or as
// its launcher.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "ringgrad/core/base/environment.h"
#include "ringgrad/distributed/launcher/supervisor.h"
#include "ringgrad/distributed/os/child_process.h"
#include "ringgrad/tests/catch.h"

namespace ringgrad {

inline void must(bool condition, const char* what) {
  if (!condition) throw Error(what);
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

class Directory {
 public:
  Directory() : path((std::filesystem::temp_directory_path() / "ringgrad-XXXXXX").string()) {
    REQUIRE(mkdtemp(path.data()) != nullptr);
  }
  ~Directory() { std::filesystem::remove_all(path); }
  std::string path;
};

// A job of `ranks` processes that run the test case "a rank of a job". TEST_SCENARIO tells them
// what to do. Their output goes to directory/rankN.log.
inline SupervisorOptions job(const std::string& scenario, int ranks, const Directory& directory) {
  setenv("TEST_SCENARIO", scenario.c_str(), 1);
  setenv("TEST_DIRECTORY", directory.path.c_str(), 1);
  SupervisorOptions options;
  options.command = {"/proc/self/exe", "a rank of a job"};
  options.num_processes = ranks;
  options.log_directory = directory.path;
  return options;
}

// Ranks write their process ids to files in the directory.
inline std::filesystem::path pid_file(int rank) {
  return variable("TEST_DIRECTORY") + "/pid" + std::to_string(rank);
}

inline void leave_pid(int rank) {
  std::ofstream(pid_file(rank).string() + ".new") << getpid();
  std::filesystem::rename(pid_file(rank).string() + ".new", pid_file(rank));
}

inline pid_t await_pid(int rank, const Directory& directory) {
  setenv("TEST_DIRECTORY", directory.path.c_str(), 1);
  while (!std::filesystem::exists(pid_file(rank)))
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return std::stoi(read_file(pid_file(rank)));
}

inline int exit_code_of(const ChildProcess& child) {
  int status = 0;
  REQUIRE(waitpid(child.pid, &status, 0) == child.pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

inline bool is_gone(pid_t pid) {  // a zombie counts as gone
  const std::string status = read_file("/proc/" + std::to_string(pid) + "/stat");
  return status.empty() || contains(status, ") Z ");
}

[[noreturn]] inline void sleep_for_ever() {
  for (;;) pause();
}

}  // namespace ringgrad
