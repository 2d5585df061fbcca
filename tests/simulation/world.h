// A simulated network, clock and scheduler: a thousand machines in one process, as FoundationDB
// tests itself (Zhou et al. 2021).
//
// The program under test is ours, unchanged. Its system calls are replaced when the test program is
// linked (system_calls.cpp, --wrap): sockets, poll, eventfd, sleeping, the clock, threads, mutexes
// and condition variables. Each simulated thread is a thread of this process, but only one runs at
// a time. Where it would wait, it gives control to the next event: bytes arrive, a timeout ends, a
// fault happens. Time passes only there. So a run is a function of its seed, takes no longer than
// its computing, and can be repeated.
//
// TCP is modelled as the program sees it. Connecting takes round trips, and is repeated after lost
// packets. A listener has a backlog. Bytes arrive in order, late, in pieces. A receiver that does
// not read stops its sender. A close is an end of stream, or a reset if bytes were left unread. A
// network that swallows packets is silence until the connection's timeout.
#pragma once

#include <poll.h>
#include <sched.h>
#include <semaphore.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <queue>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace ringgrad::simulation {

using Time = std::chrono::nanoseconds;  // since the world began
inline constexpr Time kNever = Time::max();
using namespace std::chrono_literals;

// Thrown where a thread of a killed machine waits, so that the thread ends. No std::exception, so
// only the simulation catches it.
struct Killed {};

struct Delays {
  Time latency = 200us;  // of a packet, one way
  Time jitter = 100us;   // added to it, evenly distributed
  double loss = 0;       // the share of packets that are lost
};

class World;

// The system's semaphore, which is not simulated. (libstdc++ 12's own may sleep for ever: its bug
// 104928.)
class Signal {
 public:
  Signal() { sem_init(&semaphore_, 0, 0); }
  ~Signal() { sem_destroy(&semaphore_); }
  Signal(const Signal&) = delete;
  void give() { sem_post(&semaphore_); }
  void await() {
    while (sem_wait(&semaphore_) != 0) {
    }
  }

 private:
  sem_t semaphore_;
};

// A thread of the program under test.
struct Thread {
  int machine = 0;
  std::thread::id id{};
  Signal may_run;
  bool parked = true;
  bool ended = false;
  bool woken = false;             // by wake(), not by the time
  const void* awaited = nullptr;  // a mutex, a condition variable, a thread
  uint64_t waits = 0;             // counts them, so that an old event ends no later wait
  uint64_t due = UINT64_MAX;      // the wait that is about to end
  int busy = 0;                   // times that it asked for sockets since its last wait
};

// A socket as the kernel has it. It outlives the descriptor: what was sent before a close arrives.
struct Socket {
  enum class Kind { Fresh, Listener, Stream, Event };
  Kind kind = Kind::Fresh;
  bool open = true;  // the program has the descriptor, or may still accept it
  int machine = 0;
  uint16_t port = 0;
  bool nonblocking = false;
  // These are a stream's.
  int peer = -1;
  int peer_machine = -1;
  uint16_t peer_port = 0;
  bool connecting = false;
  bool shut = false;    // this end has sent its end of stream
  bool ended = false;   // the other end's end of stream has come
  bool broken = false;  // it was reset, or has timed out
  int error = 0;        // why, to be told once
  std::string received;
  size_t read = 0;  // bytes of `received` that the program has read
  struct Segment {
    Time arrives;
    std::string bytes;  // none: the end of the stream
    bool resets = false;
  };
  std::deque<Segment> on_the_way;  // what the other end has not received, in order
  size_t unconfirmed = 0;          // bytes of them
  bool delivering = false;         // an event for the first one is due
  bool lingers = true;             // a close is an end of stream, not a reset (SO_LINGER)
  Time give_up_after = kNever;     // after so much silence
  // These are a listener's.
  std::deque<int> backlog;
  size_t most_waiting = 0;
  // An event has this.
  uint64_t count = 0;

  size_t unread() const { return received.size() - read; }
};

class World {
 public:
  World(uint64_t seed, int machines, Delays delays = {});
  ~World();
  World(const World&) = delete;

  // Starts a program on a machine. `body` runs on a simulated thread once run() is called.
  void start(int machine, std::function<void()> body);
  // Something that happens to the world at a time, such as a fault.
  void at(Time when, std::function<void()> event);
  // Returns once all threads have ended; false if some have not at the limit, or all that are left
  // wait for ever.
  bool run(Time limit);

  Time now() const { return now_; }
  std::string address_of(int machine) const;
  // IPv4 addresses as numbers.
  uint32_t number_of(int machine) const { return kFirstAddress + static_cast<uint32_t>(machine); }
  int machine_of(uint32_t number) const { return static_cast<int>(number - kFirstAddress); }
  // Equal for two runs only if the same happened in both, at the same times.
  uint64_t trace() const { return trace_; }
  uint64_t events() const { return events_done_; }
  double chance() { return std::uniform_real_distribution<double>()(random_); }
  int number_below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }

  // -- faults -------------------------------------------------------------------------------------
  void kill(int machine);        // its processes die, and its kernel closes what they had
  void lose_power(int machine);  // it falls silent for ever
  void stop(int machine);        // SIGSTOP: its kernel goes on
  void resume(int machine);      // SIGCONT
  void cut(int from, int to);    // packets in this direction vanish, until heal()
  void heal(int from, int to);
  void reset_connections(int a, int b);  // as a firewall does that has forgotten them
  void set_delays(int from, int to, Delays delays);

  // -- system calls, by simulated threads (system_calls.cpp). They return minus an error number. --
  int new_socket(Socket::Kind kind, bool nonblocking);
  Socket* find(int descriptor);  // nullptr: it is none of ours, or closed
  int bind(int descriptor, uint16_t port);
  int listen(int descriptor, int backlog);
  int connect(int descriptor, int machine, uint16_t port);
  int accept(int descriptor);
  ptrdiff_t send(int descriptor, const char* bytes, size_t size);
  ptrdiff_t receive(int descriptor, char* bytes, size_t size, bool peek);
  void shut(int descriptor);
  void close(int descriptor);
  void give_up_after(int descriptor, Time silence);  // TCP_USER_TIMEOUT
  int poll(pollfd* descriptors, size_t count, Time until);
  void ring(int descriptor, uint64_t count);
  int64_t take_rings(int descriptor);
  void sleep_until(Time when);
  Time tick();  // the time; to ask takes a moment
  // Waits until wake() names the same thing; false: the time came first.
  bool wait_for(const void* awaited, Time until, bool even_if_dead);
  void wake(const void* awaited);
  Thread& adopt(int machine);  // the record of a thread that is about to start
  void run_thread(Thread& thread, const std::function<void()>& body);
  void await_end(std::thread::id id);
  int machine_here() const { return current()->machine; }
  int machines() const { return static_cast<int>(machines_.size()); }

  // The calling thread and its world; nullptr outside.
  static Thread* current();
  static World* here();

 private:
  static constexpr uint32_t kFirstAddress = 0x0a000001;  // 10.0.0.1
  static constexpr int kFirstDescriptor = 1 << 20;       // processes have fewer
  static constexpr size_t kWindow = 128 << 10;           // bytes that a receiver holds
  struct Machine {
    bool dead = false;           // its process was killed
    Time silent_since = kNever;  // it has lost its power
    bool stopped = false;
    std::map<uint16_t, int> listeners;
    std::vector<Thread*> held_up;  // threads that would run, were it not stopped
  };
  struct Event {
    Time when;
    uint64_t order;
    std::function<void()> happen;
    bool operator<(const Event& other) const {
      return std::pair(when, order) > std::pair(other.when, other.order);
    }
  };

  void note(uint64_t what);
  // -- threads
  void make_runnable(Thread& thread);
  void park(Time until, bool even_if_dead);
  void give_control_away(Thread* from);
  void end_everything();
  bool is_dying(const Thread& thread) const { return machines_[thread.machine].dead; }
  // -- packets
  Time cut_since(int from, int to) const;
  Time silent_since(const Socket& socket) const;
  bool is_cut(int from, int to) const { return cut_since(from, to) != kNever; }
  uint16_t free_port(int machine);
  Time way(int from, int to);
  // Sends one until it arrives, later each time: `arrive` returns false where nothing answers.
  void send_packet(int from, int to, Time resend, const std::function<bool()>& wanted,
                   const std::function<bool()>& arrive);
  // -- streams, by number
  void queue(int socket, std::string bytes, bool resets = false);
  void deliver_at(int socket, Time when, Time resend);
  void deliver(int from, const Socket::Segment& segment);
  void break_off(int socket, int error);
  void close_in_kernel(int socket);
  void changed(int socket);
  void watch_silence(int a, int b);
  int descriptor_of(int socket) const { return kFirstDescriptor + socket; }

  cpu_set_t cores_before_;  // only one thread runs at a time, and one core wakes it soonest
  std::mt19937_64 random_;
  const Delays usual_;
  std::map<std::pair<int, int>, Delays> special_;
  std::map<std::pair<int, int>, Time> cuts_;  // since when
  std::vector<Machine> machines_;
  std::deque<Socket> sockets_;
  std::vector<Thread*> pollers_;  // by socket: the thread that polls it
  std::priority_queue<Event> events_;
  std::deque<Thread*> runnable_;
  std::deque<Thread> threads_;
  std::vector<std::thread> starters_;
  Signal finished_;
  Time now_{};
  Time limit_ = kNever;
  uint64_t order_ = 0;
  uint64_t events_done_ = 0;
  uint64_t trace_ = 0;
  uint16_t next_port_ = 30'000;
  int living_ = 0;
  int awaiting_ = 0;  // threads in wait_for()
  bool hung_ = false;
};

}  // namespace ringgrad::simulation
