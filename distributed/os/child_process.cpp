#include "ringgrad/distributed/os/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstring>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/environment.h"

namespace ringgrad {

namespace {

struct Pipe {
  FileDescriptor read;
  FileDescriptor write;
  Pipe() {
    int ends[2];
    check_opened<IoError>(pipe2(ends, O_CLOEXEC) == 0,
                          "launch: a pipe, of which each rank needs three");
    read = FileDescriptor(ends[0]);
    write = FileDescriptor(ends[1]);
  }
};

std::vector<char*> pointers_to(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& s : strings) pointers.push_back(s.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

std::vector<std::string> merged_environment(const std::map<std::string, std::string>& more) {
  std::vector<std::string> merged;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    if (!more.count(text.substr(0, text.find('=')))) merged.push_back(text);
  }
  for (const auto& [name, value] : more) merged.push_back(name + "=" + value);
  return merged;
}

namespace {

// The child's data between fork and exec, prepared before the fork. After it only system calls are
// safe.
struct Plan {
  const char* program;
  char* const* arguments;
  char* const* environment;
  const ChildOptions& options;
  pid_t parent;
  int input;
  int output;
  int error;
  int failure;
};

[[noreturn]] void become(const Plan& plan) {
  setpgid(0, plan.options.process_group);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != plan.parent) _exit(127);  // the parent died before the line above
  dup2(plan.input, STDIN_FILENO);
  dup2(plan.output, STDOUT_FILENO);
  dup2(plan.error, STDERR_FILENO);
  for (const int descriptor : plan.options.inherited) fcntl(descriptor, F_SETFD, 0);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  signal(SIGPIPE, SIG_DFL);
  execvpe(plan.program, plan.arguments, plan.environment);
  const int error = errno;
  (void)!write(plan.failure, &error, sizeof error);
  _exit(127);
}

}  // namespace

ChildProcess start_child(const ChildOptions& options) {
  ASSERT(!options.command.empty());
  std::vector<std::string> command = options.command;
  std::vector<std::string> environment = merged_environment(options.environment);
  const std::vector<char*> arguments = pointers_to(command);
  const std::vector<char*> variables = pointers_to(environment);
  const FileDescriptor nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
  Pipe output;
  Pipe error;
  Pipe failure;
  const std::string& program = options.program.empty() ? command[0] : options.program;
  const Plan plan{program.c_str(),
                  arguments.data(),
                  variables.data(),
                  options,
                  getpid(),
                  options.own_input ? STDIN_FILENO : nothing.get(),
                  options.own_output ? STDOUT_FILENO : output.write.get(),
                  options.own_output ? STDERR_FILENO : error.write.get(),
                  failure.write.get()};
  ChildProcess child;
  child.pid = fork();
  CHECK_AS(LimitError, child.pid >= 0, "launch: no process for '", program,
           "': ", std::strerror(errno),
           "; there may be too many (ulimit -u), or too little memory");
  if (child.pid == 0) become(plan);

  // The child does the same, so it does not matter which one is first.
  setpgid(child.pid, options.process_group);
  failure.write.reset();
  int reason = 0;
  ssize_t told;
  do told = read(failure.read.get(), &reason, sizeof reason);
  while (told < 0 && errno == EINTR);
  if (told == sizeof reason) {  // else exec has closed it
    waitpid(child.pid, nullptr, 0);
    throw ExecuteError(str("launch: cannot execute '", program, "': ", std::strerror(reason),
                           reason == ENOENT ? "; give its path, or the name of one in PATH" : ""));
  }
  child.handle = FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, child.pid, 0)));
  if (!child.handle) {
    reason = errno;
    kill(child.pid, SIGKILL);
    waitpid(child.pid, nullptr, 0);
    errno = reason;
    check_opened<IoError>(false, "launch: a handle of the process");
  }
  if (!options.own_output) {
    child.output = std::move(output.read);
    child.error = std::move(error.read);
  }
  return child;
}

// No process ever writes to this pipe. It ends when its last writing descriptor is closed, which
// the launcher holds.
LauncherPipe::LauncherPipe() {
  int ends[2];
  check_opened<IoError>(pipe2(ends, O_CLOEXEC) == 0, "launch: a pipe");
  held_by_ranks_ = FileDescriptor(ends[0]);
  held_by_launcher_ = FileDescriptor(ends[1]);
  held_by_launcher_.keep_from_forks();
}

void die_with_launcher() {
  const std::string number = variable("RINGGRAD_LIFELINE_FD");
  if (number.empty()) return;
  // Opened again, because the signal goes to one owner of an open file, and all ranks have
  // inherited the same one.
  static const int own =
      open(("/proc/self/fd/" + number).c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  struct stat status {};
  // The descriptor was closed by a process between the launcher and this one.
  if (own < 0 || fstat(own, &status) != 0 || !S_ISFIFO(status.st_mode)) return;
  fcntl(own, F_SETOWN, getpid());
  fcntl(own, F_SETSIG, SIGKILL);
  fcntl(own, F_SETFL, O_ASYNC | O_NONBLOCK);
  pollfd ended{own, POLLIN, 0};
  if (poll(&ended, 1, 0) > 0) raise(SIGKILL);  // before the lines above
}

}  // namespace ringgrad
