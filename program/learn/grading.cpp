#include "ringgrad/program/learn/grading.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include <nlohmann/json.hpp>

#include "ringgrad/core/base/clock.h"
#include "ringgrad/core/error.h"
#include "ringgrad/distributed/failure.h"
#include "ringgrad/distributed/os/file_descriptor.h"
#include "ringgrad/program/console/json_text.h"

namespace ringgrad::program {
namespace {

struct Failed {};  // has been said

// Nothing leaves this but by _exit: the code above it is the parent's.
[[noreturn]] void be_graded(const std::function<void(Grading&)>& grade, int pipe, pid_t parent) {
  setpgid(0, 0);  // one group with the ranks that it starts, to be killed together
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);
  dup2(STDERR_FILENO, STDOUT_FILENO);  // the learner's output is no result of the program
  Grading grading(pipe);
  try {
    grade(grading);
  } catch (const Failed&) {
  } catch (const std::exception& error) {
    try {
      grading.check("what is to be written is there", [&] { throw Wrong(error.what()); });
    } catch (const Failed&) {
    }
  }
  std::fflush(nullptr);  // the learner's output
  _exit(0);
}

// Reads lines until the child has ended, or the time is over. Returns them, and whether it ended in
// time.
bool read_until(int pipe, std::chrono::steady_clock::time_point deadline, std::string& text) {
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) return false;
    pollfd ready{pipe, POLLIN, 0};
    if (poll(&ready, 1, static_cast<int>(left.count())) <= 0) continue;
    char piece[4096];
    const ssize_t n = read(pipe, piece, sizeof piece);
    if (n == 0) return true;
    if (n > 0) text.append(piece, static_cast<size_t>(n));
  }
}

}  // namespace

void Grading::say(const char* kind, const std::string& text) const {
  const std::string line = nlohmann::json{{"kind", kind}, {"text", text}}.dump(
                               -1, ' ', false, nlohmann::json::error_handler_t::replace) +
                           "\n";
  (void)!write(pipe_, line.data(), line.size());
}

void Grading::check(const std::string& what, const std::function<void()>& look) {
  say("begins", what);
  try {
    look();
    return say("passed", what);
  } catch (const Wrong& wrong) {
    say("wrong", wrong.what());
  } catch (const std::exception& error) {
    say("wrong", std::string("your code threw an exception: ") + printable(error.what()));
  } catch (...) {
    say("wrong", "your code threw something that is no std::exception");
  }
  throw Failed();
}

Grade grade_in_child(const std::function<void(Grading&)>& grade, int seconds) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    throw LimitError(std::string("learn: no pipe: ") + std::strerror(errno));
  const FileDescriptor from_child(ends[0]);
  FileDescriptor to_parent(ends[1]);
  std::fflush(nullptr);  // or the child would write it again
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) throw LimitError(std::string("learn: no process: ") + std::strerror(errno));
  if (child == 0) be_graded(grade, to_parent.get(), parent);
  setpgid(child, child);
  to_parent.reset();
  std::string said;
  const bool in_time = read_until(
      from_child.get(), std::chrono::steady_clock::now() + std::chrono::seconds(seconds), said);
  kill(-child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);

  Grade outcome;
  size_t at = 0;
  for (size_t end; (end = said.find('\n', at)) != std::string::npos; at = end + 1) {
    const auto line = json_from(said.substr(at, end - at));
    const std::string kind = line["kind"];
    const std::string text = line["text"];
    if (kind == "begins") outcome.failed = text;
    if (kind == "wrong") outcome.why = text;
    if (kind == "passed") {
      outcome.passed.push_back(text);
      outcome.failed.clear();
    }
  }
  const std::string end = in_time ? describe_end(status) : "";
  if (!in_time)
    outcome.why = "it was not done after " + std::to_string(seconds) +
                  " seconds: an endless loop, or a wait for what never comes?";
  else if (outcome.why.empty() && !end.empty())
    outcome.why = "your code " + end;
  if (!outcome.why.empty() && outcome.failed.empty()) outcome.failed = "the end of the checks";
  return outcome;
}

std::string describe_end(int wait_status) {
  if (WIFSIGNALED(wait_status))
    return "was killed by signal " + std::to_string(WTERMSIG(wait_status)) + " (" +
           strsignal(WTERMSIG(wait_status)) + ")";
  return WEXITSTATUS(wait_status) == 0
             ? ""
             : "ended with exit code " + std::to_string(WEXITSTATUS(wait_status));
}

}  // namespace ringgrad::program
