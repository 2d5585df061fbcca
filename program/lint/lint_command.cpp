// `ringgrad lint`: runs a program, watches it, and prints its mistakes.
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/file.h"
#include "ringgrad/data/datasets/program_command.h"
#include "ringgrad/distributed/launcher/supervisor.h"
#include "ringgrad/distributed/os/child_process.h"
#include "ringgrad/program/command.h"
#include "ringgrad/program/commands/job_judge.h"
#include "ringgrad/program/console/console.h"
#include "ringgrad/program/console/document.h"
#include "ringgrad/program/console/exit_code.h"
#include "ringgrad/program/console/json_text.h"
#include "ringgrad/program/lint/lint.h"
#include "ringgrad/program/run/other_version.h"
#include "ringgrad/program/run/parallel_config.h"
#include "ringgrad/program/run/temporary_directory.h"

namespace ringgrad::program {

namespace fs = std::filesystem;

namespace {

constexpr int kFound = 1;

// As a shell would: the program may start ranks itself. Returns its exit code, above 128 after a
// signal.
int run_as_it_is(const SupervisorOptions& job) {
  const auto pointers_to = [](const std::vector<std::string>& texts) {
    std::vector<char*> pointers;
    for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
    pointers.push_back(nullptr);
    return pointers;
  };
  const std::vector<std::string> variables = merged_environment(job.environment);
  const std::vector<char*> words = pointers_to(job.command);
  const std::vector<char*> environment = pointers_to(variables);
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);  // it does not go on alone
    execvpe(words[0], words.data(), environment.data());
    std::fprintf(stderr, "ringgrad: lint: cannot run %s: %s\n", words[0], std::strerror(errno));
    _exit(kEnvironment);
  }
  CHECK_AS(IoError, child > 0, "lint: cannot start a process: ", std::strerror(errno));
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

int run_watched(SupervisorOptions job, const fs::path& directory) {
  job.environment["RINGGRAD_LINT"] = directory.string();
  if (job.num_processes == 0) return run_as_it_is(job);
  const JobResult done = supervise(job);
  if (!done.report.empty()) complain(done.report);
  return done.exit_code;
}

}  // namespace

std::vector<nlohmann::json> read_observations(const fs::path& directory) {
  std::vector<nlohmann::json> ranks;
  for (const auto& entry : fs::directory_iterator(directory)) {
    if (entry.path().extension() != ".json") continue;
    auto rank = json_if_whole(text_of(entry.path()));
    CHECK_AS(DataError, rank.is_object() && rank.value("rank", nlohmann::json()).is_number(),
             "lint: ", entry.path().string(),
             " is not what a rank has written, or only a part of it");
    ranks.push_back(std::move(rank));
  }
  std::sort(ranks.begin(), ranks.end(),
            [](const auto& a, const auto& b) { return a["rank"] < b["rank"]; });
  return ranks;
}

nlohmann::json to_json(const std::vector<Mistake>& findings) {
  nlohmann::json list = nlohmann::json::array();
  for (const Mistake& f : findings)
    list.push_back({{"name", f.name}, {"where", f.where}, {"why", f.why}, {"fix", f.fix}});
  return list;
}

void tell(const std::vector<Mistake>& findings,
          const std::function<void(const std::string&)>& say) {
  for (const Mistake& finding : findings) {
    say(finding.name);
    for (const auto& [what, words] :
         {std::pair("where", &finding.where), {"why", &finding.why}, {"fix", &finding.fix}})
      say(fmt::format("  {:<6} {}", what, *words));
  }
}

namespace {

struct LintOptions {
  SupervisorOptions job;  // with num_processes 0 the program is started as it is
  std::string from;       // judge the files of this directory instead
};

// Returns 1 if there are findings, 0 if there are none, and the program's exit code if it failed.
// Throws UsageError if there is neither a program nor --from, or both.
int lint(const LintOptions& options) {
  if (options.job.command.empty() == options.from.empty())
    throw UsageError(
        "lint: expected a program, as in `{}`, or --from DIRECTORY with what ranks have written",
        program_command("lint --ranks 2 -- ./train --epochs 1"));
  std::error_code error;
  CHECK_AS(DataError, options.from.empty() || fs::is_directory(options.from, error),
           "lint: there is no directory ", options.from);
  const TemporaryDirectory written("lint");
  const int code = options.from.empty() ? run_watched(options.job, written.path()) : kOk;
  const auto ranks =
      read_observations(options.from.empty() ? written.path() : fs::path(options.from));
  if (code != kOk) {
    const std::string said = fmt::format(
        "lint: the program ended with exit code {}, so nothing can be said of it", code);
    result(said);
    print_json(failure_document(code, said));
    return code;
  }
  std::vector<Mistake> findings;
  try {
    findings = find_mistakes(ranks);
  } catch (const nlohmann::json::exception& lacking) {
    throw DataError(fmt::format("lint: {} lacks what a rank writes: {}", options.from,
                                without_number(lacking)));
  }
  tell(findings, [](const std::string& line) { result(line); });
  result("lint: {} in {} that trained", counted(static_cast<int64_t>(findings.size()), "finding"),
         counted(static_cast<int64_t>(ranks.size()), "process"));
  if (ranks.empty())
    message(
        "Nothing was seen: the program does not use ringgrad, "
        "has trained nothing, or ended by _exit()");
  print_json({{"processes", ranks.size()}, {"findings", to_json(findings)}});
  return findings.empty() ? kOk : kFound;
}

void add_options(CLI::App* app, LintOptions& o) {
  o.job.num_processes = 0;
  app->add_option("-n,--ranks", o.job.num_processes,
                  "start so many ranks of it (default: it starts its own)")
      ->check(CLI::Range(1, kMaxRanks));
  app->add_option("--from", o.from,
                  "run nothing: judge what ranks wrote to this directory, their RINGGRAD_LINT");
  app->add_option("command", o.job.command, "-- PROGRAM ARGUMENTS");
  app->footer("Example\n  " + program_command("lint -n 2 -- ./train --epochs 1"));
}

const Command kLint(150, "lint",
                    "Usual mistakes of training on several ranks, in a program of yours", lint,
                    add_options);

// The usual mistakes are errors here. `launch` only warns of them, if the program uses ringgrad.
nlohmann::json warn_of_mistakes(const fs::path& written) {
  std::vector<Mistake> findings;
  try {
    findings = find_mistakes(read_observations(written));
  } catch (const std::exception&) {
    // The program has another version of the library: it has done its work all the same.
  }
  if (!findings.empty())
    message("launch: the program did its work, and something in it looks like a mistake:");
  tell(findings, [](const std::string& line) { message(line); });
  return to_json(findings);
}

const JobJudge kJudge = job_judge() = warn_of_mistakes;

}  // namespace
}  // namespace ringgrad::program
