// Chooses the mistake for mutants.py, which links this file with the mutated sources and a test
// program: MUTANT is its number. The process and those that it starts write into the file
// MUTANTS_SEEN whose places have been run. The log MUTANTS_LOG has a line for each case that
// starts, and one for each that ends: its result, seconds, and the mistakes whose place it runs.
#define CATCH_CONFIG_EXTERNAL_INTERFACES
#include "ringgrad/tests/mutant_switch.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string>

#include "ringgrad/tests/catch.h"

namespace {

constexpr int kMutants = 4096;
unsigned char seen_here[kMutants];
int log_file = -1;
pid_t owner = 0;

}  // namespace

int mutant_chosen = 0;
unsigned char* mutants_seen = seen_here;

namespace {

// Before all other initialisers, since kernels and options register themselves there.
[[gnu::constructor(101)]] void choose() {
  if (const char* number = std::getenv("MUTANT")) mutant_chosen = std::atoi(number);
  if (const char* path = std::getenv("MUTANTS_SEEN")) {
    const int file = open(path, O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, kMutants) != 0) std::abort();
    void* shared = mmap(nullptr, kMutants, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (shared == MAP_FAILED) std::abort();
    mutants_seen = static_cast<unsigned char*>(shared);
    close(file);
  }
  if (const char* path = std::getenv("MUTANTS_LOG")) {
    log_file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    owner = getpid();
    unsetenv("MUTANTS_LOG");  // the processes that a test starts run no cases of ours
  }
}

#if __has_include(<catch2/catch_all.hpp>)
using Listener = Catch::EventListenerBase;
#else
using Listener = Catch::TestEventListenerBase;
#endif

struct LogCases : Listener {
  using Listener::Listener;

  void testCaseStarting(const Catch::TestCaseInfo& info) override {
    if (!is_owner()) return;
    write_line("start\t" + std::string(info.name));
    if (at_start.empty()) at_start.assign(mutants_seen, mutants_seen + kMutants);
    std::memset(mutants_seen, 0, kMutants);
    start = std::chrono::steady_clock::now();
  }

  void testCaseEnded(const Catch::TestCaseStats& stats) override {
    if (!is_owner()) return;
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    const auto& assertions = stats.totals.assertions;
    std::string line = assertions.failed > 0 ? "failed\t" : "passed\t";
    line += std::to_string(seconds.count()) + "\t";
    for (int i = 0; i < kMutants; ++i)
      if (mutants_seen[i] || at_start[i]) line += std::to_string(i) + " ";
    write_line(line);
  }

 private:
  // A test may start its own program again, as a rank.
  static bool is_owner() { return log_file >= 0 && getpid() == owner; }

  static void write_line(const std::string& line) {
    const std::string whole = line + "\n";
    if (write(log_file, whole.data(), whole.size()) < 0) std::abort();
  }

  std::string at_start;  // by number: run while the program's globals were made
  std::chrono::steady_clock::time_point start;
};
CATCH_REGISTER_LISTENER(LogCases)

}  // namespace
