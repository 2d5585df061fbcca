#include "ringgrad/distributed/launcher/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <memory>
#include <tuple>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/environment.h"
#include "ringgrad/core/device.h"
#include "ringgrad/distributed/job/rank_environment.h"
#include "ringgrad/distributed/launcher/first_cause.h"
#include "ringgrad/distributed/launcher/rank_output.h"
#include "ringgrad/distributed/os/child_process.h"
#include "ringgrad/distributed/rendezvous/handshake.h"

namespace ringgrad {
namespace {

using Clock = std::chrono::steady_clock;

// The interval at which the ranks' statuses are read.
constexpr std::chrono::milliseconds kLookAround{1000};
// The interval at which the membership of an elastic job is read.
constexpr std::chrono::milliseconds kLookAtMembers{10};

// After the first failure the others get this time to notice it, and to report what it has kept
// them from.
constexpr std::chrono::milliseconds kReportTime{400};
constexpr std::chrono::milliseconds kUntilKill{800};
constexpr std::chrono::milliseconds kSameOrder{500};

// Sets what a signal does to this process while this object lives.
class Disposition {
 public:
  Disposition(int signal, void (*handler)(int)) : signal_(signal) {
    struct sigaction action {};
    action.sa_handler = handler;
    action.sa_flags = SA_RESTART;
    sigaction(signal_, &action, &before_);
  }
  ~Disposition() { sigaction(signal_, &before_, nullptr); }

 private:
  int signal_;
  struct sigaction before_;
};

pthread_t reader;  // the thread that has the queue below
void pass_to_reader(int signal) {
  if (reader != pthread_self()) pthread_kill(reader, signal);
}

// Signals come as something to read, next to everything else that may happen. This thread blocks
// them, so the system gives them to any other one of the process, where a handler passes them on.
// (If SIGCHLD were ignored, the kernel would forget how children have ended.)
class SignalQueue {
 public:
  explicit SignalQueue(bool elastic) {
    reader = pthread_self();
    std::vector<int> taken{SIGCHLD, SIGINT, SIGTERM, SIGTSTP};
    if (elastic) taken.push_back(SIGUSR1);
    struct sigaction hangup {};
    sigaction(SIGHUP, nullptr, &hangup);
    if (hangup.sa_handler != SIG_IGN) taken.push_back(SIGHUP);  // nohup ignores it
    sigset_t signals;
    sigemptyset(&signals);
    for (const int signal : taken) sigaddset(&signals, signal);
    queue_ = FileDescriptor(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
    check_opened<IoError>(queue_, "launch: signalfd");
    pthread_sigmask(SIG_BLOCK, &signals, &before_);
    for (const int signal : taken) handlers_.emplace_back(signal, pass_to_reader);
  }
  // A signal that comes too late for the queue does what it did before.
  ~SignalQueue() {
    handlers_.clear();
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

  int descriptor() const { return queue_.get(); }
  int next() {  // 0: no more
    signalfd_siginfo signal;
    return read(queue_.get(), &signal, sizeof signal) == sizeof signal
               ? static_cast<int>(signal.ssi_signo)
               : 0;
  }

 private:
  std::deque<Disposition> handlers_;
  // Output without a reader is dropped: rank_output.h.
  const Disposition readers_{SIGPIPE, SIG_IGN};
  sigset_t before_;
  FileDescriptor queue_;
};

class Supervisor {
 public:
  explicit Supervisor(const SupervisorOptions& options)
      : options_(options), signals_(static_cast<bool>(options.elastic)), status_(slots()) {
    if (options.elastic)
      members_ = make_job_members(options.elastic, options.num_processes, timeout_);
  }
  ~Supervisor() {
    if (running_ > 0) kill_all(SIGKILL);
    for (const Rank& rank : ranks_)
      if (!rank.ended) waitpid(rank.child.pid, nullptr, 0);
  }

  JobResult run() {
    std::tie(reserved_, port_) = reserve_port();
    secret_ = secret_for_ranks();
    for (int i = 0; i < options_.num_processes; ++i) start(i);
    while (running_ > 0) step();
    const JobResult result = this->result();
    pass_on_the_rest(options_.final_message ? options_.final_message(result) : "");
    return result;
  }

 private:
  struct Rank {
    ChildProcess child;
    std::unique_ptr<RankOutput> output;
    std::unique_ptr<RankOutput> error;
    FileDescriptor log;
    RankEnd end;
    uint32_t waits_noted = 0;
    bool stopped = false;
    bool ended = false;
    bool forgotten = false;  // its end was no failure of the job, which went on without it
  };

  int slots() const { return options_.elastic ? options_.elastic.max : options_.num_processes; }

  JobResult result() const {
    if (stood_still_ >= timeout_)
      return {kOutOfStep,
              str("all ranks were stopped for ", std::chrono::duration<double>(timeout_).count(),
                  " s, and then killed; kill -CONT lets them go on, "
                  "and RINGGRAD_TIMEOUT gives more time\n")};
    if (members_ && !members_->verdict().empty() && interrupted_by_ == 0)
      return {kRankDied, members_->verdict()};
    std::vector<RankEnd> ends;
    for (const Rank& rank : ranks_)
      if (!rank.forgotten) ends.push_back(rank.end);
    return first_cause(ends, status_, interrupted_by_, Clock::now());
  }

  // The socket keeps the port from others until rank 0 listens: bound sockets that do not listen
  // may share it.
  std::pair<FileDescriptor, int> reserve_port() const {
    if (options_.machine_rank > 0) return {FileDescriptor(), options_.port};
    FileDescriptor socket =
        bind_tcp({options_.host, static_cast<uint16_t>(options_.port)},
                 options_.num_machines > 1 ? IfForeign::ListenOnAll : IfForeign::Fail);
    const int port = local_address(socket).port;
    return {std::move(socket), port};
  }

  std::string secret_for_ranks() const {
    const bool given =
        !variable("RINGGRAD_SECRET").empty() || !variable("RINGGRAD_SECRET_FILE").empty();
    if (!options_.secret.empty()) return options_.secret;
    return given || options_.num_machines > 1 ? "" : new_secret();
  }

  void start(int local_rank) {
    const int n = options_.num_processes;
    const int number = options_.machine_rank * n + local_rank;
    ChildOptions child;
    child.command = options_.command;
    child.program = options_.program;
    child.environment = {{kRankProcess, ""},
                         {kMembersDescriptor, ""},
                         {kEarlierLaunches, options_.earlier_launches},
                         {"RANK", std::to_string(number)},
                         {"WORLD_SIZE", std::to_string(slots() * options_.num_machines)},
                         {"LOCAL_RANK", std::to_string(local_rank)},
                         {"LOCAL_WORLD_SIZE", std::to_string(slots())},
                         {"MASTER_ADDR", options_.host},
                         {"MASTER_PORT", std::to_string(port_)},
                         {"RINGGRAD_LIFELINE_FD", std::to_string(launcher_pipe_.descriptor())},
                         {"RINGGRAD_LAUNCHER_PID", std::to_string(getpid())},
                         {"RINGGRAD_STATUS_FD", std::to_string(status_.descriptor())}};
    if (!secret_.empty()) child.environment["RINGGRAD_SECRET"] = secret_;
    child.environment.insert(options_.environment.begin(), options_.environment.end());
    for (const char* threads : {"RINGGRAD_THREADS", "OMP_NUM_THREADS"})
      if (variable(threads).empty())
        child.environment.emplace(threads, std::to_string(std::max(1, cpu_cores() / n)));
    child.inherited = {status_.descriptor(), launcher_pipe_.descriptor()};
    if (members_) {
      child.inherited.push_back(members_->descriptor());
      child.environment[kMembersDescriptor] = std::to_string(members_->descriptor());
      status_.clear(local_rank);
      members_->starting(local_rank);
    }
    child.process_group = ranks_.empty() ? 0 : ranks_[0].child.pid;
    const bool logged = !options_.log_directory.empty();
    child.own_output = number == 0 && !logged && !members_;
    child.own_input = number == 0 && !isatty(STDIN_FILENO);

    Rank rank;
    rank.end.rank = number;
    rank.end.local_rank = local_rank;
    rank.end.started = Clock::now();
    if (logged) {
      const std::string path = str(options_.log_directory, "/rank", number, ".log");
      // In an elastic job a rank may take the slot of an earlier one, and appends to its log.
      const auto same = [&](const Rank& before) { return before.end.rank == number; };
      const int fresh = std::ranges::any_of(ranks_, same) ? O_APPEND : O_TRUNC;
      rank.log = FileDescriptor(open(path.c_str(), O_WRONLY | O_CREAT | fresh | O_CLOEXEC, 0666));
      check_opened<IoError>(rank.log, "launch: ", path);
    }
    rank.child = start_child(child);
    rank.end.pid = rank.child.pid;
    const std::string prefix = number == 0 ? "" : str("[rank ", number, "] ");
    // In an elastic job another rank may become the one that speaks.
    rank.output = std::make_unique<RankOutput>(std::move(rank.child.output), output_,
                                               members_ ? "" : prefix, rank.log.get());
    rank.error =
        std::make_unique<RankOutput>(std::move(rank.child.error), error_, prefix, rank.log.get());
    if (members_) members_->started(local_rank, rank.child.pid);
    ranks_.push_back(std::move(rank));
    ++running_;
  }

  // Waits for whatever happens next, and deals with it.
  void step() {
    std::vector<pollfd> ready;
    for (const Rank& rank : ranks_)
      if (!rank.ended) ready.push_back({rank.child.handle.get(), POLLIN, 0});
    const auto longest = members_ ? kLookAtMembers : kLookAround;
    pass_on(std::move(ready),
            ending_ ? next_kill_.poll_timeout() : static_cast<int>(longest.count()));
    while (const int signal = signals_.next()) handle(signal);
    for (Rank& rank : ranks_) look_at(rank);
    if (members_) keep_membership();
    note_waits();
    end_standstill();
    if (interrupted_by_ && deadline_.passed()) kill_all(SIGKILL);
    if (ending_ && running_ > 0 && next_kill_.passed()) {
      kill_all(kill_signals_sent_++ == 0 ? SIGTERM : SIGKILL);
      next_kill_ = Deadline::after(kUntilKill - kReportTime);
    }
  }

  // Waits until one of `ready` is ready, a signal or output comes, or a reader takes some. Then
  // each stream gets one turn, so that none of them can keep the launcher from everything else.
  // Returns false if nothing has happened.
  bool pass_on(std::vector<pollfd> ready, int timeout) {
    ready.push_back({signals_.descriptor(), POLLIN, 0});
    const size_t first = ready.size();
    std::vector<OutputSink*> sinks;
    for (OutputSink* sink : {&output_, &error_}) {
      if (sink->empty()) continue;
      sinks.push_back(sink);
      ready.push_back({sink->descriptor(), POLLOUT, 0});
    }
    std::vector<RankOutput*> streams;
    for (const Rank& rank : ranks_)
      for (RankOutput* stream : {rank.output.get(), rank.error.get()}) {
        if (!stream->wanted()) continue;
        streams.push_back(stream);
        ready.push_back({stream->descriptor(), POLLIN, 0});
      }
    if (const int count = poll(ready.data(), ready.size(), timeout); count <= 0)
      return count < 0 && errno == EINTR;
    for (size_t i = 0; i < sinks.size(); ++i)
      if (ready[first + i].revents != 0)
        (sinks[i] == &error_ ? output_ : error_).add(sinks[i]->write_some());
    for (size_t i = 0; i < streams.size(); ++i)
      if (ready[first + sinks.size() + i].revents != 0) streams[i]->forward();
    return true;
  }

  // Called when all ranks have ended. Waits for a slow reader as long as it takes something now and
  // then, but not after a signal.
  void pass_on_the_rest(const std::string& final_message) {
    for (const Rank& rank : ranks_)
      for (RankOutput* stream : {rank.output.get(), rank.error.get()}) stream->finish();
    error_.add(final_message);
    while (!output_.empty() || !error_.empty()) {
      const auto longest = interrupted_by_ ? kReportTime : timeout_;
      if (!pass_on({}, static_cast<int>(longest.count()))) return;
      while (const int signal = signals_.next())
        if (signal == SIGINT || signal == SIGTERM || signal == SIGHUP) interrupted_by_ = signal;
    }
  }

  void handle(int signal) {
    if (signal == SIGCHLD) return;  // every rank is looked at anyway
    if (signal == SIGUSR1) return members_->ask_for_one_more();
    if (signal == SIGTSTP) {  // Ctrl-Z reaches this process alone: ranks have a group of their own
      kill_all(SIGSTOP);
      raise(SIGSTOP);
      return kill_all(SIGCONT);
    }
    // timeout and systemd signal a process and its group, and we hear of it twice then: that is one
    // order.
    const auto now = Clock::now();
    if (interrupted_by_ && now - interrupted_at_ < kSameOrder) return;
    if (interrupted_by_ == 0) {
      interrupted_at_ = now;
      deadline_ = Deadline::after(timeout_);
    }
    const int passed_on = members_ && signal == SIGTERM
                              ? SIGINT
                              : signal;  // SIGTERM asks one rank to leave the others
    kill_all(interrupted_by_ == 0 ? passed_on : SIGKILL);
    kill_all(SIGCONT);  // a rank that is stopped hears of it only then
    interrupted_by_ = signal;
  }

  // Updates the members of an elastic job. A rank that has not come in time must not delay the end.
  void keep_membership() {
    if (ending_) return;
    error_.add(members_->look());
    if (interrupted_by_ != 0) return;
    if (next_start_.passed()) start_due();
    if (members_->over() && running_ > 0) kill_all(SIGKILL);
  }

  // Starts the processes that are due. If the system gives no process now, the job goes on with the
  // ranks that it has.
  void start_due() {
    while (const auto slot = members_->due()) {
      try {
        start(*slot);
      } catch (const Error& error) {
        error_.add(str("[rank ", *slot, "] cannot be started: ", error.what(), '\n'));
        members_->not_started(*slot);
        next_start_ = Deadline::after(kLookAround);
        return;
      }
    }
  }

  void look_at(Rank& rank) {
    int status = 0;
    while (!rank.ended) {
      const pid_t changed = waitpid(rank.child.pid, &status, WNOHANG | WUNTRACED | WCONTINUED);
      if (changed == 0) return;
      if (changed < 0)  // another part of this process has waited for it, and knows its status
        ended(rank, W_EXITCODE(1, 0));
      else if ((rank.stopped = WIFSTOPPED(status)))
        note(rank, str("is stopped (", strsignal(WSTOPSIG(status)), "); the others wait for it"));
      else if (WIFCONTINUED(status))
        note(rank, "goes on");
      else
        ended(rank, status);
    }
  }

  // Ends the job if all ranks have been stopped for the timeout; if some run, they miss the stopped
  // ones themselves. Only time in which this process could run counts: a user who suspends a whole
  // job wants it to go on later.
  void end_standstill() {
    if (running_ == 0 || interrupted_by_ != 0 || ending_) return;
    const Clock::duration passed = Clock::now() - looked_;
    looked_ += passed;
    const bool stopped =
        std::ranges::all_of(ranks_, [](const Rank& r) { return r.stopped || r.ended; });
    stood_still_ =
        stopped ? stood_still_ + std::min<Clock::duration>(passed, kLookAround) : Clock::duration{};
    if (stood_still_ >= timeout_) kill_all(SIGKILL);
  }

  // If one rank keeps others waiting, only one of them says so.
  void note_waits() {
    bool noted = ending_;
    for (Rank& rank : ranks_) {
      const RankStatus& status = status_.rank(rank.end.local_rank);
      if (rank.waits_noted == status.waits) continue;
      if (!noted) note(rank, status.waiting);
      noted = true;
      rank.waits_noted = status.waits;
    }
  }

  void note(const Rank& rank, const std::string& what) {
    error_.add(str("[rank ", rank.end.rank, "] ", what, '\n'));
  }

  void ended(Rank& rank, int status) {
    rank.ended = true;
    rank.end.ended = Clock::now();
    rank.end.wait_status = status;
    rank.end.by_us = kill_signals_sent_ > 0 || interrupted_by_ != 0;
    --running_;
    std::string what;
    if (members_ && members_->ended(rank.end.local_rank, status,
                                    words(status_.rank(rank.end.local_rank)), what)) {
      rank.forgotten = true;
      if (!what.empty()) note(rank, what);
      return;
    }
    if (status == 0) return;
    // A rank that was asked to end may be ready before the others have saved.
    const auto time = ended_as_asked(rank.end) ? timeout_ : kReportTime;
    next_kill_ = ending_ ? next_kill_.but_at_most(time) : Deadline::after(time);
    ending_ = true;
  }

  // The ranks' process group has their own children, too; a rank that came late may not be in it.
  void kill_all(int signal) const {
    kill(-ranks_[0].child.pid, signal);
    for (const Rank& rank : ranks_)
      if (!rank.ended && getpgid(rank.child.pid) != ranks_[0].child.pid)
        kill(rank.child.pid, signal);
  }

  const SupervisorOptions& options_;
  SignalQueue signals_;
  JobStatus status_;
  LauncherPipe launcher_pipe_;
  std::unique_ptr<JobMembers> members_;  // only in an elastic job
  FileDescriptor reserved_;
  int port_ = 0;  // the port of the rendezvous
  std::string secret_;
  OutputSink output_{STDOUT_FILENO};
  OutputSink error_{STDERR_FILENO};
  std::vector<Rank> ranks_;
  int running_ = 0;
  int interrupted_by_ = 0;
  Clock::time_point interrupted_at_;
  const std::chrono::milliseconds timeout_ = options_.timeout;
  Clock::time_point looked_ = Clock::now();
  Clock::duration stood_still_{};  // how long all ranks have been stopped
  Deadline deadline_;              // with ranks that were asked to end
  bool ending_ = false;            // a rank has failed
  int kill_signals_sent_ = 0;      // signals sent since then
  Deadline next_kill_;
  Deadline next_start_;
};

}  // namespace

JobResult supervise(const SupervisorOptions& options) {
  CHECK(options.num_processes >= 1, "launch: ", options.num_processes,
        " processes, expected at least 1");
  CHECK(options.machine_rank >= 0 && options.machine_rank < options.num_machines,
        "launch: machine ", options.machine_rank, " of ", options.num_machines, " does not exist");
  CHECK(!options.command.empty(), "launch: no program to run");
  CHECK(!options.elastic || options.num_machines == 1,
        "launch: an elastic job is on one machine, and this one on ", options.num_machines);
  CHECK(options.num_machines == 1 || options.port != 0, "launch: a job on ", options.num_machines,
        " machines needs a place where they meet: dist_url tcp://HOST:PORT of machine 0");
  if (networks && options.num_machines > 1) networks->check_reachable(options.host);
  open_standard_streams();
  raise_descriptor_limit();
  return Supervisor(options).run();
}

}  // namespace ringgrad
