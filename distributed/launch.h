// launch: one function on several processes, as Detectron2's launch() does it.
#pragma once

#include <functional>
#include <string>

#include "ringgrad/distributed/elastic/registrar.h"
#include "ringgrad/distributed/init_process_group.h"

namespace ringgrad {

struct LaunchOptions {
  int num_processes = 1;  // on each machine
  int num_machines = 1;
  int machine_rank = 0;
  std::string dist_url = "auto";  // where the ranks meet: "tcp://host:port"; auto: here, on a free port
  InitOptions group = {};         // of the ranks
  ElasticRange elastic = {};      // num_processes are to begin with; see elastic_job.h, which connects the ranks then
};

// Runs main_function on num_machines · num_processes ranks, each with a process group (process_group()), and returns
// the exit code for main() to return:
//
//   int main() { return launch(train, {.num_processes = 4}); }
//
// The ranks are new processes of the same program with the same arguments, so what stands before launch() is done by
// each of them, too; other calls of launch() before it are not, and return there what they returned here. A rank ends
// when main_function has returned, as by exit(): what stands behind launch() is the starting process's alone, and what
// is local to main() is not destroyed in a rank, so main_function flushes the files that it has written to.
//
// In a program that torchrun, mpirun, srun or `ringgrad launch` has started, launch() calls main_function, and returns.
// Their number of ranks counts; but where it is 1, and another was asked for here, that is an error. One process on one
// machine starts nothing: it just calls main_function.
//
// What main_function throws is told to the other ranks. The starting process prints which rank failed first and why; a
// rank that was started otherwise prints it itself. launch() throws nothing, and returns the exit code (ExitCode in
// failure.h).
[[nodiscard]] int launch(const std::function<void()>& main_function, const LaunchOptions& options = {});

// The same for who says errors in his own way: throws on what main_function throws, in that rank. He need not print it
// where launcher_knows_failure() (job_status.h). In a rank it returns after main_function, and the rank ends with the
// next call.
int launch_or_throw(const std::function<void()>& main_function, const LaunchOptions& options = {});

}  // namespace ringgrad
