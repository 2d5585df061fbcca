#include "ringgrad/program/console/document.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <string_view>

#include <nlohmann/json.hpp>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/environment.h"
#include "ringgrad/core/base/file.h"
#include "ringgrad/distributed/job/rank_environment.h"
#include "ringgrad/distributed/os/file_descriptor.h"
#include "ringgrad/program/console/exit_code.h"
#include "ringgrad/program/console/json_text.h"

namespace ringgrad::program {
namespace {

// This variable tells ranks the path of the document that they hand over.
constexpr const char* kVariable = "RINGGRAD_DOCUMENT";

FileDescriptor out;          // what stdout was
FileDescriptor handed_over;  // a file in memory
std::string kept;

// Returns the file to which a rank hands its document, if this program started the rank; otherwise
// "".
std::string launchers_file() {
  const std::string file = variable(kVariable);
  return file.starts_with(fmt::format("/proc/{}/", getppid())) ? file : "";
}

std::string text_of(int file) {
  std::string text;
  char block[4096];
  for (ssize_t got; (got = pread(file, block, sizeof block, static_cast<off_t>(text.size()))) > 0;)
    text.append(block, static_cast<size_t>(got));
  return text;
}

void write_document(int file, std::string_view text) {
  CHECK_AS(IoError, write_all(file, text),
           "standard output cannot be written: ", std::strerror(errno));
}

bool is_first_rank() {
  try {
    return rank_environment().rank == 0;
  } catch (const Error&) {  // the environment itself is wrong
    return true;
  }
}

std::string end_as_json(int code, const std::string& error) {
  return json_text(
      code == kOk ? nlohmann::json{{"exit_code", code}} : failure_document(code, error), 2);
}

// A document takes precedence over an error of another rank.
void hand_over(const std::string& file, int code, const std::string& error) {
  if (kept.empty() && error.empty()) return;
  const FileDescriptor launchers(open(file.c_str(), O_RDWR | O_CLOEXEC));
  if (!launchers || (kept.empty() && !text_of(launchers.get()).empty())) return;
  if (ftruncate(launchers.get(), 0) == 0)
    write_document(launchers.get(), error.empty() ? kept : end_as_json(code, error));
}

// Signals that end the program at once unless its command catches them, with the message for that
// case.
struct Ending {
  int signal;
  std::string document;
};
std::array<Ending, 3> endings{{{SIGINT, ""}, {SIGTERM, ""}, {SIGHUP, ""}}};
pid_t owner = 0;  // processes that are forked from it keep the handler, and print nothing

void print_and_end(int signal) {
  std::signal(signal, SIG_DFL);
  if (getpid() != owner) {
    raise(signal);
    return;
  }
  for (const Ending& ending : endings)
    if (ending.signal == signal)
      (void)!write(out.get(), ending.document.data(), ending.document.size());
  _exit(128 + signal);
}

void print_at_signals() {
  owner = getpid();
  for (Ending& ending : endings) {
    ending.document = end_as_json(128 + ending.signal, "") + '\n';
    struct sigaction before {};
    sigaction(ending.signal, nullptr, &before);
    if (before.sa_handler == SIG_DFL) std::signal(ending.signal, print_and_end);
  }
}

void keep_from_printing_at_signals() {
  for (const Ending& ending : endings) {
    struct sigaction now {};
    sigaction(ending.signal, nullptr, &now);
    if (now.sa_handler == print_and_end) std::signal(ending.signal, SIG_IGN);
  }
}

}  // namespace

nlohmann::json failure_document(int code, const std::string& message) {
  const std::string said = message.substr(0, message.find_last_not_of('\n') + 1);
  return {{"error", {{"message", said.empty() ? describe(code) : said}, {"exit_code", code}}}};
}

bool asks_for_document(int argc, char** argv) {
  char** const end = std::find(argv, argv + argc, std::string_view("--"));
  return std::find(argv, end, std::string_view("--json")) != end;
}

void open_document() {
  out = FileDescriptor(fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  CHECK_AS(IoError, out && dup2(STDERR_FILENO, STDOUT_FILENO) >= 0,
           "standard output: ", std::strerror(errno));
  if (!launchers_file().empty()) return;
  handed_over = FileDescriptor(memfd_create("document", MFD_CLOEXEC));
  if (is_first_rank()) print_at_signals();
}

bool document_is_open() { return static_cast<bool>(out); }

void keep_document(const nlohmann::json& document) { kept = json_text(document, 2); }

std::map<std::string, std::string> document_for_ranks() {
  if (!handed_over) return {};
  return {{kVariable, fmt::format("/proc/{}/fd/{}", getpid(), handed_over.get())}};
}

void close_document(int code, const std::string& error) {
  if (!document_is_open()) return;
  if (const std::string file = launchers_file(); !file.empty()) return hand_over(file, code, error);
  if (!is_first_rank()) return;
  if (kept.empty() && handed_over) kept = text_of(handed_over.get());
  if (kept.empty() || !error.empty()) kept = end_as_json(code, error);
  keep_from_printing_at_signals();  // one document is enough
  write_document(out.get(), kept + '\n');
  out = FileDescriptor();
}

}  // namespace ringgrad::program
