// `ringgrad launch`: any program on several ranks.
#include <filesystem>

#include <nlohmann/json.hpp>

#include "ringgrad/core/base/environment.h"
#include "ringgrad/program/commands/commands.h"
#include "ringgrad/program/console/console.h"
#include "ringgrad/program/console/document.h"
#include "ringgrad/program/console/exit_code.h"
#include "ringgrad/program/lint/lint.h"
#include "ringgrad/program/run/temporary_directory.h"

namespace ringgrad::program {

namespace {

std::string final_message(const JobResult& result) {
  const int code = result.exit_code;
  if (code == kOk) return result.report;
  // Other exit codes mean whatever the program that was started means by them.
  const bool ours = code == kRankDied || code == kOutOfStep || code > 128;
  return result.report +
         (ours ? failure_line(code) : fmt::format("ringgrad: failed (exit {})", code)) + '\n';
}

// The usual ones, where the program uses ringgrad; `ringgrad lint` makes them errors.
nlohmann::json warn_of_mistakes(const std::filesystem::path& written) {
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

}  // namespace

int launch_program(const LaunchCommandOptions& options) {
  SupervisorOptions job = options.job;
  if (job.machine_rank >= job.num_machines)
    throw UsageError("launch: --node-rank {} does not exist with --nnodes {}; the first is 0",
                     job.machine_rank, job.num_machines);
  if (job.num_machines > 1 && (options.master_address.empty() || job.port == 0))
    throw UsageError(
        "launch: several machines need --master-addr and --master-port, the same on all of them");
  const bool secret =
      !variable("RINGGRAD_SECRET").empty() || !variable("RINGGRAD_SECRET_FILE").empty();
  if (job.num_machines > 1 && !secret)
    throw UsageError(
        "launch: several machines need a secret, the same on all of them, "
        "so that no stranger can join:\n"
        "  openssl rand -hex 32 > job.secret && chmod 600 job.secret && "
        "export RINGGRAD_SECRET_FILE=job.secret");
  if (options.timeout_seconds > 0) {
    job.timeout =
        std::chrono::milliseconds(static_cast<int64_t>(options.timeout_seconds * 1e3) + 1);
    job.environment["RINGGRAD_TIMEOUT"] = fmt::format("{}", options.timeout_seconds);
  }
  if (!options.transport.empty()) job.environment["RINGGRAD_TRANSPORT"] = options.transport;
  std::error_code error;
  if (!job.log_directory.empty()) std::filesystem::create_directories(job.log_directory, error);
  if (error)
    throw IoError(fmt::format("launch: --log-dir {}: {}", job.log_directory, error.message()));

  if (!options.master_address.empty()) job.host = options.master_address;
  job.final_message = final_message;
  const TemporaryDirectory written("launch");
  if (variable("RINGGRAD_LINT").empty()) job.environment["RINGGRAD_LINT"] = written.path().string();
  const JobResult done = supervise(job);
  if (done.exit_code == kOk)
    print_json({{"exit_code", kOk}, {"mistakes", warn_of_mistakes(written.path())}});
  else
    print_json(failure_document(done.exit_code, done.report));
  return done.exit_code;
}

}  // namespace ringgrad::program
