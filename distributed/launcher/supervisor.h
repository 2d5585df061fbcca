// Supervisor: watches over the ranks of this machine. It starts them, and passes on their output
// and the signals that are meant for them. When one rank fails, it ends all of them within a
// second, and says which one failed first, and why.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "ringgrad/distributed/job/job_members.h"
#include "ringgrad/distributed/job/rank_environment.h"

namespace ringgrad {

struct JobResult {
  // 0 if all is well. Else the exit code of the rank that failed first, unless its failure is a
  // consequence. 5: a rank was killed, or missed by others. 6: a timeout, or ranks out of step. 128
  // + signal: SIGINT, SIGTERM or SIGHUP asked for the end, and no rank failed.
  int exit_code = 0;
  std::string report;  // a few lines that explain a failure; empty if there was none
};

inline constexpr const char* kEarlierLaunches = "RINGGRAD_EARLIER_LAUNCHES";

struct SupervisorOptions {
  // The command that every rank runs.
  std::vector<std::string> command;
  // The program that is executed under that name; empty: the command's first word.
  std::string program;
  // The text that launch() tells its ranks in kEarlierLaunches.
  std::string earlier_launches;
  // The number of ranks on this machine.
  int num_processes = 1;
  int num_machines = 1;
  int machine_rank = 0;
  // MASTER_ADDR.
  std::string host = "127.0.0.1";
  // MASTER_PORT, below 65535; 0: a free one (one machine only).
  int port = 0;
  // Empty: RINGGRAD_SECRET(_FILE) if it is set, else a new one.
  std::string secret;
  // Ranks may go and come (elastic/README.md), and SIGUSR1 asks for one more.
  ElasticRange elastic = {};
  // Variables that the ranks have besides those of this process; those of a rank win.
  std::map<std::string, std::string> environment = {};
  std::chrono::milliseconds timeout = default_timeout();
  // Empty: no logs; else rankN.log of every rank.
  std::string log_directory;
  // The text to write to stderr at the end; empty: nothing.
  std::function<std::string(const JobResult&)> final_message;
};

// Runs the job, and returns when every rank of this machine has ended. Rank 0 writes to this
// process's output directly, or through a pipe if there are logs or the job is elastic. The lines
// of other ranks begin with "[rank 1] ", but not in an elastic job.
//
// SIGINT, SIGTERM and SIGHUP (unless it is ignored, as by nohup) are passed on to the ranks,
// whichever thread of this process they reach. Ranks that are stopped are continued for it. A
// second signal kills them, as does the timeout after the first.
//
// Output without a reader blocks the ranks, but not the supervisor. After a signal it does not wait
// for the reader, so its last words are left to final_message.
//
// A rank that is stopped, or has waited for others for 5 s, is reported on stderr. If all ranks are
// stopped for the timeout, no rank misses them, and the supervisor kills them (exit code 6).
//
// Ranks get torchrun's environment (rank_environment.h), and one share of the cores each
// (RINGGRAD_THREADS, OMP_NUM_THREADS) unless that is set. Throws AddressInUseError when the port is
// taken, IoError when the program cannot be executed, and Error for options that make no sense.
JobResult supervise(const SupervisorOptions& options);

}  // namespace ringgrad
