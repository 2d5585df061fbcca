// Watches over the ranks of this machine: starts them, passes on their output and the signals that
// are meant for them, and when one of them fails, ends all of them within a second and says which
// one was the first, and why.
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
  // 0; the exit code of the rank that failed first, where that is not a consequence; 5: a rank was
  // killed, or missed by others; 6: timeout or out of step; 128 + signal: SIGINT, SIGTERM or SIGHUP
  // asked for the end, and no rank failed.
  int exit_code = 0;
  std::string report;  // a few lines on what happened, empty if nothing did
};

inline constexpr const char* kEarlierLaunches = "RINGGRAD_EARLIER_LAUNCHES";

struct SupervisorOptions {
  // The command that every rank runs.
  std::vector<std::string> command;
  // The program that is executed under that name; empty: the command's first word.
  std::string program;
  // The text that launch() tells its ranks in kEarlierLaunches.
  std::string earlier_launches;
  // On this machine.
  int num_processes = 1;
  int num_machines = 1;
  int machine_rank = 0;
  // MASTER_ADDR.
  std::string host = "127.0.0.1";
  // MASTER_PORT, below 65535; 0: a free one (one machine only).
  int port = 0;
  // Empty: RINGGRAD_SECRET(_FILE) where it is set, else a new one.
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

// Runs the job and returns when every rank of this machine has ended. Rank 0 writes to this
// process's output directly (through a pipe where there are logs); other ranks' lines begin with
// "[rank 1] ". SIGINT, SIGTERM and SIGHUP (unless it is ignored, as by nohup) are passed on to the
// ranks, which go on for it where they are stopped; a second one kills them, as does
// the timeout after the first. Output that nobody reads holds up the ranks, not the
// supervisor: after a signal its reader is not waited for, so what is to be said at the end is left
// to final_message. A rank that is stopped, or has waited for others for 5 s, is noted on stderr;
// where all are stopped for the timeout, nobody misses them but the supervisor, which kills
// them (exit code 6).
//
// Ranks get torchrun's environment (rank_environment.h), and one share of the cores each
// (RINGGRAD_THREADS, OMP_NUM_THREADS) unless that is set. Throws AddressInUseError when the port is
// taken, IoError when the program cannot be executed, and Error for options that make no sense.
JobResult supervise(const SupervisorOptions& options);

}  // namespace ringgrad
