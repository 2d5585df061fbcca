// launch: one function on several processes, as Detectron2's launch() does it.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "ringgrad/distributed/init_process_group.h"
#include "ringgrad/distributed/job/job_members.h"

namespace ringgrad {

struct LaunchOptions {
  // The number of ranks on each machine.
  int num_processes = 1;
  int num_machines = 1;
  int machine_rank = 0;
  // The place where the ranks meet: "tcp://host:port"; auto: here, on a free port. A program of the
  // book alone takes no other.
  std::string dist_url = "auto";
  // The options of the ranks' group.
  InitOptions group = {};
  // Elastic jobs begin with num_processes; see elastic_job.h, which connects the ranks then.
  ElasticRange elastic = {};
  // Variables that the ranks have besides those of this process.
  std::map<std::string, std::string> environment = {};
};

// Runs main_function on num_machines · num_processes ranks, each with a process group
// (process_group()), and returns the exit code for main() to return:
//
//   int main() { return launch(train, {.num_processes = 4}); }
//
// The ranks are new processes of the same program with the same arguments, so each of them also
// runs the code before launch(). Earlier calls of launch() are not run again; in a rank they return
// what they returned here. A rank ends as by exit() when main_function has returned: only the
// starting process runs the code after launch(). Local variables of main() are not destroyed in a
// rank, so main_function must flush the files that it has written to.
//
// In a program that torchrun, mpirun, srun or `ringgrad launch` has started, launch() calls
// main_function, and returns. Their number of ranks counts, but if it is 1 and `options` ask for
// another number, that is an error. With one process on one machine launch() starts nothing: it
// just calls main_function.
//
// While the ranks run, launch() reads SIGINT, SIGTERM, SIGHUP, SIGTSTP and SIGCHLD, whichever
// thread of this process they reach. One caller at a time.
//
// An exception of main_function is reported to the other ranks. The starting process prints which
// rank failed first and why; a rank that was started otherwise prints it itself. launch() throws
// nothing, and returns the exit code (ExitCode in failure.h).
[[nodiscard]] int launch(const std::function<void()>& main_function,
                         const LaunchOptions& options = {});

// Does the same for a program that prints its errors itself: it throws what main_function throws in
// that rank. The program need not print it if launcher_knows_failure() (job_status.h). In a rank
// the function returns after main_function, and the rank ends with the next call.
int launch_or_throw(const std::function<void()>& main_function, const LaunchOptions& options = {});

}  // namespace ringgrad
