#include "ringgrad/distributed/launch.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <vector>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/environment.h"
#include "ringgrad/core/base/text.h"
#include "ringgrad/distributed/failure.h"
#include "ringgrad/distributed/job/job_members.h"
#include "ringgrad/distributed/job/job_status.h"
#include "ringgrad/distributed/job/rank_environment.h"
#include "ringgrad/distributed/launcher/supervisor.h"

namespace ringgrad {
namespace {

void run_rank(const std::function<void()>& main_function, const RankEnvironment& here,
              const InitOptions& group) {
  try {
    if (!in_elastic_job()) init_process_group(here, group);
    main_function();
    set_phase(Phase::Finished);
  } catch (...) {
    const Failure failure = failure_of(std::current_exception());
    report_failure(failure, is_noticed(std::current_exception()));
    if (is_process_group_initialized())
      process_group().abort(str("rank ", here.rank, " failed: ", failure.text));
    destroy_process_group();
    throw;
  }
  destroy_process_group();
}

// Returns the command that started this process.
std::vector<std::string> own_command() {
  std::vector<std::string> command;
  Classic<std::ifstream> arguments("/proc/self/cmdline");
  for (std::string argument; std::getline(arguments, argument, '\0');) command.push_back(argument);
  CHECK_AS(IoError, !command.empty(), "launch: cannot read /proc/self/cmdline");
  return command;
}

// Returns the program's file: its own path, so that `ps` and `top` show its name, unless another
// file has that path by now.
std::string own_program() {
  const std::string own = "/proc/self/exe";
  std::error_code error;
  const std::filesystem::path path = std::filesystem::read_symlink(own, error);
  return !error && std::filesystem::equivalent(path, own, error) ? path.string() : own;
}

// Note [Which launch() a rank belongs to]
// A rank that launch() starts is this program again, from main() on. So it first reaches the calls
// of launch() that its starter has already made. It does not run them again: they return what they
// returned in the starter. Then comes the call that the rank was started for. The rank ends when
// the function of that call has returned; what follows belongs to the starter.
std::vector<int> exit_codes;  // of this process's calls, in order

// Returns the exit codes of the calls that the starter made before it started this rank. Returns
// nothing if launch() has not started this process.
std::optional<std::vector<int>> earlier_launches() {
  const std::string text = launchers_variable(kEarlierLaunches);
  if (text.empty()) return {};
  std::vector<int> codes;
  TextInput words(text.substr(1));
  for (int code; words >> code;) codes.push_back(code);
  return codes;
}

// Returns ": 0 5". The colon keeps the text from being empty if there were no calls.
std::string as_earlier_launches(const std::vector<int>& codes) {
  std::string text = ":";
  for (const int code : codes) text += ' ' + std::to_string(code);
  return text;
}

int run_job(const std::function<void()>& main_function, const LaunchOptions& options) {
  const RankEnvironment here = rank_environment();
  const bool alone = options.num_processes * options.num_machines == 1 && !options.elastic;
  const bool is_only_rank = !here.source.empty() && here.size == 1 && !in_elastic_job();
  CHECK_AS(EnvironmentError, alone || !is_only_rank, "launch: num_processes is ",
           options.num_processes, ", num_machines ", options.num_machines, ", but ", here.source,
           " is set, so this is the only rank of a job that was started already; start as many "
           "(srun --ntasks, torchrun --nproc-per-node), or unset ",
           here.source, " to have launch() start them");
  if (!here.source.empty() || alone) {
    run_rank(main_function, here, options.group);
    return 0;
  }
  SupervisorOptions job;
  job.command = own_command();
  job.program = own_program();
  job.earlier_launches = as_earlier_launches(exit_codes);
  job.num_processes = options.num_processes;
  job.num_machines = options.num_machines;
  job.elastic = options.elastic;
  job.environment = options.environment;
  job.machine_rank = options.machine_rank;
  if (options.dist_url != "auto") {
    CHECK(networks, "launch: dist_url needs more than the book; link all of ringgrad::ringgrad");
    const Address address = networks->parse_url(options.dist_url);
    job.host = address.host;
    job.port = address.port;
  }
  job.final_message = [](const JobResult& result) { return result.report; };
  return supervise(job).exit_code;
}

}  // namespace

int launch(const std::function<void()>& main_function, const LaunchOptions& options) {
  try {
    launch_or_throw(main_function, options);
  } catch (...) {
    const Failure failure = failure_of(std::current_exception());
    report_failure(failure, is_noticed(std::current_exception()));
    if (!launcher_knows_failure()) std::cerr << failure.text << std::endl;
  }
  if (const auto earlier = earlier_launches(); earlier && exit_codes.size() > earlier->size())
    std::exit(exit_codes.back());
  return exit_codes.back();
}

int launch_or_throw(const std::function<void()>& main_function, const LaunchOptions& options) {
  const auto earlier = earlier_launches();
  if (earlier && exit_codes.size() > earlier->size()) std::exit(exit_codes.back());
  if (earlier && exit_codes.size() < earlier->size()) {
    exit_codes.push_back((*earlier)[exit_codes.size()]);
    return exit_codes.back();
  }
  try {
    exit_codes.push_back(run_job(main_function, options));
  } catch (...) {
    exit_codes.push_back(exit_code_of(std::current_exception()));
    throw;
  }
  return exit_codes.back();
}

}  // namespace ringgrad
