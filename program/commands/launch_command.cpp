// `ringgrad launch`: any program on several ranks.
#include <filesystem>

#include <nlohmann/json.hpp>

#include "ringgrad/core/base/environment.h"
#include "ringgrad/data/datasets/program_command.h"
#include "ringgrad/distributed/agreement/transport_names.h"
#include "ringgrad/distributed/launcher/supervisor.h"
#include "ringgrad/program/command.h"
#include "ringgrad/program/commands/job_judge.h"
#include "ringgrad/program/console/console.h"
#include "ringgrad/program/console/document.h"
#include "ringgrad/program/console/exit_code.h"
#include "ringgrad/program/run/temporary_directory.h"

namespace ringgrad::program {

namespace {

struct LaunchCommandOptions {
  SupervisorOptions job;
  std::string master_address;  // "" : loopback, on one machine
  double timeout_seconds = 0;  // 0: as RINGGRAD_TIMEOUT says
  std::string transport;       // shm, tcp; "" : as RINGGRAD_TRANSPORT says
};

std::string final_message(const JobResult& result) {
  const int code = result.exit_code;
  if (code == kOk) return result.report;
  // Other exit codes mean whatever the program that was started means by them.
  const bool ours = code == kRankDied || code == kOutOfStep || code > 128;
  return result.report +
         (ours ? failure_line(code) : fmt::format("ringgrad: failed (exit {})", code)) + '\n';
}

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
  if (job_judge() && variable("RINGGRAD_LINT").empty())
    job.environment["RINGGRAD_LINT"] = written.path().string();
  const JobResult done = supervise(job);
  if (done.exit_code == kOk)
    print_json({{"exit_code", kOk},
                {"mistakes", job_judge() ? job_judge()(written.path()) : nlohmann::json::array()}});
  else
    print_json(failure_document(done.exit_code, done.report));
  return done.exit_code;
}

void add_options(CLI::App* app, LaunchCommandOptions& o) {
  app->add_option("-n,--nproc-per-node", o.job.num_processes, "ranks on this machine")
      ->required()
      ->check(CLI::Range(1, 4096));
  app->add_option("--nnodes", o.job.num_machines, "machines; run the same command on each")
      ->check(CLI::Range(1, 4096));
  app->add_option("--node-rank", o.job.machine_rank, "which of them this one is, from 0 on")
      ->check(CLI::Range(0, 4095));
  app->add_option("--master-addr", o.master_address, "machine 0's address");
  app->add_option("--master-port", o.job.port, "a free port there (one machine: found by itself)")
      ->check(CLI::Range(1, 65534));
  app->add_option("--timeout", o.timeout_seconds,
                  "seconds a rank may keep the others waiting (default: 60)")
      ->check(CLI::Range(0.001, 1e5));
  app->add_option("--transport", o.transport,
                  "between ranks: " + transport_choices("auto (the fastest for each pair)"))
      ->check(CLI::IsMember(transport_names()));
  app->add_option("--log-dir", o.job.log_directory,
                  "also write every rank's output to rankN.log there");
  app->add_option("command", o.job.command, "-- PROGRAM ARGUMENTS")->required();
  app->footer("Example\n  " + program_command("launch -n 4 -- ./train --epochs 3"));
}

const Command kLaunch(180, "launch",
                      "Start a program on several ranks, with torchrun's environment",
                      launch_program, add_options);

}  // namespace
}  // namespace ringgrad::program
