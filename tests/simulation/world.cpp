// One file, because each part of the world changes the others: a fault ends threads and breaks
// sockets, and a packet wakes a thread.
#include "ringgrad/tests/simulation/world.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <exception>
#include <memory>
#include <span>

namespace ringgrad::simulation {
namespace {

constexpr Time kTick = 100ns;
constexpr Time kScheduling = 50us;  // at most, until a thread that was woken runs
constexpr int kMostBusy = 100;
constexpr Time kFirstResend = 200ms;
constexpr Time kFirstSynResend = 1s;
constexpr Time kLongestResend = 120s;
constexpr Time kKeepAlive = 5s;  // os/socket.cpp's: an idle connection is probed so often

thread_local Thread* current_thread = nullptr;
thread_local World* current_world = nullptr;

}  // namespace

Thread* World::current() { return current_thread; }
World* World::here() { return current_world; }

World::World(uint64_t seed, int machines, Delays delays)
    : random_(seed), usual_(delays), machines_(machines) {
  sched_getaffinity(0, sizeof cores_before_, &cores_before_);
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  sched_setaffinity(0, sizeof one, &one);
}

World::~World() {
  for (std::thread& thread : starters_) thread.join();
  sched_setaffinity(0, sizeof cores_before_, &cores_before_);
}

std::string World::address_of(int machine) const {
  const uint32_t number = number_of(machine);
  return "10." + std::to_string(number >> 16 & 255) + '.' + std::to_string(number >> 8 & 255) +
         '.' + std::to_string(number & 255);
}

void World::note(uint64_t what) {
  trace_ = (trace_ ^ what ^ static_cast<uint64_t>(now_.count())) * 0x9e3779b97f4a7c15;
  trace_ ^= trace_ >> 29;
}

void World::at(Time when, std::function<void()> event) {
  events_.push({std::max(when, now_), order_++, std::move(event)});
}

// -- threads --------------------------------------------------------------------------------------

void World::start(int machine, std::function<void()> body) {
  Thread& thread = adopt(machine);
  starters_.emplace_back([this, &thread, body = std::move(body)] { run_thread(thread, body); });
}

Thread& World::adopt(int machine) {
  Thread& thread = threads_.emplace_back();
  thread.machine = machine;
  ++living_;
  make_runnable(thread);
  return thread;
}

void World::run_thread(Thread& thread, const std::function<void()>& body) {
  thread.may_run.await();
  current_thread = &thread;
  current_world = this;
  try {
    if (!is_dying(thread)) body();
  } catch (const Killed&) {
  }
  current_thread = nullptr;
  current_world = nullptr;
  thread.ended = true;
  --living_;
  wake(&thread);
  give_control_away(nullptr);
}

bool World::run(Time limit) {
  limit_ = limit;
  give_control_away(nullptr);
  finished_.await();
  return !hung_;
}

void World::make_runnable(Thread& thread) {
  if (!thread.parked || thread.due == thread.waits) return;
  thread.due = thread.waits;
  at(now_ + Time(number_below(static_cast<int>(kScheduling.count()))),
     [this, &thread, wait = thread.waits] {
       if (!thread.parked || thread.waits != wait) return;
       thread.parked = false;
       runnable_.push_back(&thread);
     });
}

// Called by the thread that has control, or by one that has ended, or by run(). Returns when
// control has come back to `from`.
void World::give_control_away(Thread* from) {
  for (;;) {
    if (living_ == 0) return finished_.give();
    if (!runnable_.empty()) {
      Thread* next = runnable_.front();
      runnable_.pop_front();
      Machine& machine = machines_[next->machine];
      if (machine.stopped && !machine.dead) {
        machine.held_up.push_back(next);
        continue;
      }
      note(static_cast<uint64_t>(next->machine));
      if (next == from) return;
      next->may_run.give();
      if (from != nullptr) from->may_run.await();
      return;
    }
    if (events_.empty() || events_.top().when > limit_) {
      hung_ = true;
      limit_ = kNever;
      end_everything();
      continue;
    }
    // top() is const, so that nobody changes the order.
    const std::function<void()> happen = events_.top().happen;
    now_ = std::max(now_, events_.top().when);
    events_.pop();
    ++events_done_;
    happen();
  }
}

void World::end_everything() {
  for (int machine = 0; machine < machines(); ++machine) kill(machine);
}

void World::park(Time until, bool even_if_dead) {
  Thread& thread = *current_thread;
  const auto die = [&] {
    if (!even_if_dead && is_dying(thread) && std::uncaught_exceptions() == 0) throw Killed();
  };
  die();
  if (is_dying(thread)) until = std::min(until, now_ + 1us);
  thread.parked = true;
  ++thread.waits;
  thread.busy = 0;
  if (until != kNever)
    at(until, [this, &thread, wait = thread.waits] {
      if (thread.parked && thread.waits == wait) make_runnable(thread);
    });
  give_control_away(&thread);
  die();
}

void World::sleep_until(Time when) {
  while (now_ < when) {
    park(when, false);
    if (is_dying(*current_thread)) return;
  }
}

Time World::tick() { return now_ += kTick; }

bool World::wait_for(const void* awaited, Time until, bool even_if_dead) {
  Thread& thread = *current_thread;
  thread.awaited = awaited;
  thread.woken = false;
  ++awaiting_;
  try {
    while (!thread.woken && now_ < until) park(until, even_if_dead);
  } catch (const Killed&) {
    thread.awaited = nullptr;
    --awaiting_;
    throw;
  }
  thread.awaited = nullptr;
  --awaiting_;
  return thread.woken;
}

void World::wake(const void* awaited) {
  if (awaiting_ == 0) return;
  for (Thread& thread : threads_) {
    if (thread.awaited != awaited) continue;
    thread.woken = true;
    make_runnable(thread);
  }
}

void World::await_end(std::thread::id id) {
  const auto found = std::find_if(threads_.begin(), threads_.end(),
                                  [&](const Thread& thread) { return thread.id == id; });
  if (found == threads_.end()) return;
  while (!found->ended) wait_for(&*found, kNever, /*even_if_dead=*/true);
  found->id = {};  // the next thread may get the same one
}

// -- faults ---------------------------------------------------------------------------------------

void World::kill(int machine) {
  Machine& victim = machines_[machine];
  if (victim.dead) return;
  note(1000 + static_cast<uint64_t>(machine));
  victim.dead = true;
  for (int socket = 0; socket < static_cast<int>(sockets_.size()); ++socket)
    if (sockets_[socket].machine == machine && sockets_[socket].open) close_in_kernel(socket);
  for (Thread* thread : victim.held_up) runnable_.push_back(thread);
  victim.held_up.clear();
  for (Thread& thread : threads_) {
    if (thread.machine != machine || !thread.parked || thread.ended) continue;
    thread.parked = false;
    runnable_.push_back(&thread);
  }
}

void World::lose_power(int machine) {
  machines_[machine].silent_since = now_;
  for (int other = 0; other < machines(); ++other)
    if (other != machine) watch_silence(machine, other);
  kill(machine);
}

void World::stop(int machine) { machines_[machine].stopped = true; }

void World::resume(int machine) {
  Machine& stopped = machines_[machine];
  stopped.stopped = false;
  for (Thread* thread : stopped.held_up) runnable_.push_back(thread);
  stopped.held_up.clear();
}

void World::cut(int from, int to) {
  if (!cuts_.insert({{from, to}, now_}).second) return;
  watch_silence(from, to);
}

void World::heal(int from, int to) { cuts_.erase({from, to}); }

void World::give_up_after(int descriptor, Time silence) {
  Socket& socket = *find(descriptor);
  socket.give_up_after = silence;
  if (silent_since(socket) != kNever) watch_silence(socket.machine, socket.peer_machine);
}

void World::reset_connections(int a, int b) {
  for (int socket = 0; socket < static_cast<int>(sockets_.size()); ++socket) {
    const Socket& s = sockets_[socket];
    if (s.kind == Socket::Kind::Stream &&
        ((s.machine == a && s.peer_machine == b) || (s.machine == b && s.peer_machine == a)))
      break_off(socket, ECONNRESET);
  }
}

void World::set_delays(int from, int to, Delays delays) { special_[{from, to}] = delays; }

// The kernel probes an idle connection, and waits for what it has sent. It gives a connection up
// that stays silent for as long as the program has said (TCP_USER_TIMEOUT).
void World::watch_silence(int a, int b) {
  for (int socket = 0; socket < static_cast<int>(sockets_.size()); ++socket) {
    const Socket& s = sockets_[socket];
    if (s.kind != Socket::Kind::Stream || s.give_up_after == kNever) continue;
    if (!(s.machine == a && s.peer_machine == b) && !(s.machine == b && s.peer_machine == a))
      continue;
    at(now_ + s.give_up_after + kKeepAlive, [this, socket] {
      const Socket& silent = sockets_[socket];
      const Time since = silent_since(silent);
      if (since != kNever && now_ - since >= silent.give_up_after) break_off(socket, ETIMEDOUT);
    });
  }
}

// -- packets --------------------------------------------------------------------------------------

Time World::cut_since(int from, int to) const {
  const auto cut = cuts_.find({from, to});
  return std::min({cut == cuts_.end() ? kNever : cut->second, machines_[from].silent_since,
                   machines_[to].silent_since});
}

Time World::silent_since(const Socket& socket) const {
  return std::min(cut_since(socket.machine, socket.peer_machine),
                  cut_since(socket.peer_machine, socket.machine));
}

Time World::way(int from, int to) {
  const auto found = special_.find({from, to});
  const Delays& delays = found == special_.end() ? usual_ : found->second;
  Time time = delays.latency +
              Time(static_cast<int64_t>(chance() * static_cast<double>(delays.jitter.count())));
  for (Time resend = kFirstResend; delays.loss > 0 && chance() < delays.loss; resend *= 2)
    time += resend;
  return time;
}

void World::send_packet(int from, int to, Time resend, const std::function<bool()>& wanted,
                        const std::function<bool()>& arrive) {
  at(now_ + way(from, to), [=, this] {
    if (!is_cut(from, to) && arrive()) return;
    at(now_ + resend, [=, this] {
      if (wanted()) send_packet(from, to, std::min(2 * resend, kLongestResend), wanted, arrive);
    });
  });
}

// -- sockets --------------------------------------------------------------------------------------

int World::new_socket(Socket::Kind kind, bool nonblocking) {
  Socket& socket = sockets_.emplace_back();
  socket.kind = kind;
  socket.machine = current_thread->machine;
  socket.nonblocking = nonblocking;
  pollers_.push_back(nullptr);
  return descriptor_of(static_cast<int>(sockets_.size()) - 1);
}

Socket* World::find(int descriptor) {
  const int socket = descriptor - kFirstDescriptor;
  if (socket < 0 || socket >= static_cast<int>(sockets_.size()) || !sockets_[socket].open)
    return nullptr;
  return &sockets_[socket];
}

void World::changed(int socket) {
  if (Thread* poller = pollers_[socket]) make_runnable(*poller);
}

int World::bind(int descriptor, uint16_t port) {
  Socket& socket = *find(descriptor);
  if (port != 0 && machines_[socket.machine].listeners.contains(port)) return -EADDRINUSE;
  socket.port = port != 0 ? port : free_port(socket.machine);
  return 0;
}

uint16_t World::free_port(int machine) {
  do {
    if (++next_port_ == 0) next_port_ = 30'000;
  } while (machines_[machine].listeners.contains(next_port_));
  return next_port_;
}

int World::listen(int descriptor, int backlog) {
  Socket& socket = *find(descriptor);
  Machine& machine = machines_[socket.machine];
  if (!machine.listeners.emplace(socket.port, descriptor - kFirstDescriptor).second)
    return -EADDRINUSE;
  socket.kind = Socket::Kind::Listener;
  socket.most_waiting = static_cast<size_t>(backlog);
  return 0;
}

// Three packets: the listener knows of the connection when the third one has come.
int World::connect(int descriptor, int to, uint16_t port) {
  if (to < 0 || to >= machines()) return -ENETUNREACH;
  const int client = descriptor - kFirstDescriptor;
  Socket& socket = sockets_[client];
  const int from = socket.machine;
  socket.kind = Socket::Kind::Stream;
  if (socket.port == 0) socket.port = free_port(from);
  socket.peer_machine = to;
  socket.peer_port = port;
  socket.connecting = true;
  const auto wanted = [this, client] {
    return sockets_[client].open && sockets_[client].connecting;
  };
  const auto listener_there = [this, to, port] {
    const auto found = machines_[to].listeners.find(port);
    return found == machines_[to].listeners.end() ? -1 : found->second;
  };
  send_packet(from, to, kFirstSynResend, wanted, [=, this] {
    const int listener = listener_there();
    if (listener < 0) {
      at(now_ + way(to, from), [=, this] {
        if (wanted() && !is_cut(to, from)) break_off(client, ECONNREFUSED);
      });
      return !is_cut(to, from);
    }
    if (is_cut(to, from) || sockets_[listener].backlog.size() >= sockets_[listener].most_waiting)
      return false;
    at(now_ + way(to, from), [=, this] {
      if (!wanted()) return;
      Socket& server = sockets_.emplace_back();
      pollers_.push_back(nullptr);
      const int accepted = static_cast<int>(sockets_.size()) - 1;
      server.kind = Socket::Kind::Stream;
      server.machine = to;
      server.port = port;
      server.peer = client;
      server.peer_machine = from;
      server.peer_port = sockets_[client].port;
      sockets_[client].peer = accepted;
      sockets_[client].connecting = false;
      changed(client);
      at(now_ + way(from, to), [=, this] {
        const int there = listener_there();
        if (there < 0) return close_in_kernel(accepted);
        sockets_[there].backlog.push_back(accepted);
        changed(there);
      });
    });
    return true;
  });
  return -EINPROGRESS;
}

int World::accept(int descriptor) {
  Socket& listener = *find(descriptor);
  if (listener.backlog.empty()) return -EAGAIN;
  const int accepted = listener.backlog.front();
  listener.backlog.pop_front();
  return descriptor_of(accepted);
}

// -- streams --------------------------------------------------------------------------------------

ptrdiff_t World::send(int descriptor, const char* bytes, size_t size) {
  const int number = descriptor - kFirstDescriptor;
  Socket& socket = *find(descriptor);
  if (socket.error != 0) return -std::exchange(socket.error, 0);
  if (socket.broken || socket.shut) return -EPIPE;
  if (socket.connecting || socket.peer < 0) return -EAGAIN;
  const size_t waiting = socket.unconfirmed + sockets_[socket.peer].unread();
  const size_t taken = std::min(size, kWindow - std::min(waiting, kWindow));
  if (taken == 0 && size > 0) return -EAGAIN;
  queue(number, std::string(bytes, taken));
  return static_cast<ptrdiff_t>(taken);
}

// Bytes arrive in order, so a segment that is late holds up those behind it. Some are cut in two.
void World::queue(int number, std::string bytes, bool resets) {
  Socket& socket = sockets_[number];
  if (bytes.size() > 1 && chance() < 0.1) {
    const size_t first = 1 + static_cast<size_t>(number_below(static_cast<int>(bytes.size()) - 1));
    queue(number, bytes.substr(0, first));
    bytes.erase(0, first);
  }
  Time arrives = now_ + way(socket.machine, socket.peer_machine);
  if (!socket.on_the_way.empty())
    arrives = std::max(arrives, socket.on_the_way.back().arrives + 1ns);
  socket.unconfirmed += bytes.size();
  socket.on_the_way.push_back({arrives, std::move(bytes), resets});
  if (!std::exchange(socket.delivering, true)) deliver_at(number, arrives, kFirstResend);
}

void World::deliver_at(int number, Time when, Time resend) {
  at(when, [=, this] {
    Socket& socket = sockets_[number];
    socket.delivering = !socket.on_the_way.empty();
    if (!socket.delivering) return;
    if (is_cut(socket.machine, socket.peer_machine))
      return deliver_at(number, now_ + resend, std::min(2 * resend, kLongestResend));
    const Socket::Segment segment = std::move(socket.on_the_way.front());
    socket.on_the_way.pop_front();
    socket.unconfirmed -= segment.bytes.size();
    deliver(number, segment);
    changed(number);  // there is room again
    socket.delivering = !socket.on_the_way.empty();
    if (socket.delivering)
      deliver_at(number, std::max(now_, socket.on_the_way.front().arrives), kFirstResend);
  });
}

void World::deliver(int from, const Socket::Segment& segment) {
  const int to = sockets_[from].peer;
  Socket& receiver = sockets_[to];
  if (segment.resets) return break_off(to, ECONNRESET);
  if (!receiver.open) {
    if (!segment.bytes.empty()) queue(to, "", /*resets=*/true);
    return;
  }
  if (receiver.broken) return;
  if (segment.bytes.empty())
    receiver.ended = true;
  else
    receiver.received += segment.bytes;
  changed(to);
}

void World::break_off(int number, int error) {
  Socket& socket = sockets_[number];
  if (socket.broken) return;
  socket.broken = true;
  socket.connecting = false;
  socket.error = error;
  socket.on_the_way.clear();
  socket.unconfirmed = 0;
  changed(number);
}

ptrdiff_t World::receive(int descriptor, char* bytes, size_t size, bool peek) {
  Socket& socket = *find(descriptor);
  const size_t taken = std::min(size, socket.unread());
  if (taken == 0) {
    if (socket.error != 0) return -std::exchange(socket.error, 0);
    return socket.ended || socket.broken ? 0 : -EAGAIN;
  }
  std::memcpy(bytes, socket.received.data() + socket.read, taken);
  if (peek) return static_cast<ptrdiff_t>(taken);
  socket.read += taken;
  if (socket.read == socket.received.size()) {
    socket.received.clear();
    socket.read = 0;
  }
  if (socket.peer >= 0) changed(socket.peer);  // it has room again
  return static_cast<ptrdiff_t>(taken);
}

void World::shut(int descriptor) {
  if (std::exchange(find(descriptor)->shut, true)) return;
  queue(descriptor - kFirstDescriptor, "");
}

void World::close(int descriptor) { close_in_kernel(descriptor - kFirstDescriptor); }

void World::close_in_kernel(int number) {
  Socket& socket = sockets_[number];
  socket.open = false;
  pollers_[number] = nullptr;
  if (socket.kind == Socket::Kind::Listener) {
    machines_[socket.machine].listeners.erase(socket.port);
    for (const int waiting : std::exchange(socket.backlog, {})) {
      sockets_[waiting].received += '?';  // so that it is reset
      close_in_kernel(waiting);
    }
  } else if (socket.kind == Socket::Kind::Stream && socket.peer >= 0 && !socket.broken) {
    if (socket.unread() > 0 || !socket.lingers)
      queue(number, "", /*resets=*/true);
    else if (!std::exchange(socket.shut, true))
      queue(number, "");
  }
  socket.received.clear();
  socket.read = 0;
}

// -- waiting for sockets --------------------------------------------------------------------------

static short ready(const Socket& s, short wanted, bool has_room) {
  short is = 0;
  if (s.kind == Socket::Kind::Listener) {
    if (!s.backlog.empty()) is |= POLLIN;
  } else if (s.kind == Socket::Kind::Event) {
    if (s.count > 0) is |= POLLIN;
  } else if (s.kind == Socket::Kind::Stream) {
    const bool over = s.ended || s.broken;
    if (s.unread() > 0 || over) is |= POLLIN;
    if (over) is |= POLLRDHUP;
    if (s.error != 0) is |= POLLERR;
    if (s.broken || (s.ended && s.shut)) is |= POLLHUP;
    if (!s.connecting && (s.broken || has_room)) is |= POLLOUT;
  }
  return static_cast<short>(is & (wanted | POLLERR | POLLHUP));
}

int World::poll(pollfd* descriptors, size_t count, Time until) {
  const std::span<pollfd> polled(descriptors, count);
  for (;;) {
    int found = 0;
    for (pollfd& one : polled) {
      one.revents = 0;
      const Socket* socket = find(one.fd);
      if (socket == nullptr) continue;
      const bool has_room =
          socket->peer >= 0 && socket->unconfirmed + sockets_[socket->peer].unread() < kWindow;
      one.revents = ready(*socket, one.events, has_room);
      found += one.revents != 0;
    }
    // The scheduler takes the core away from a thread that never waits.
    if (found > 0 && ++current_thread->busy > kMostBusy) park(now_ + 1us, false);
    if (found > 0 || now_ >= until) return found;
    for (const pollfd& one : polled)
      if (find(one.fd) != nullptr) pollers_[one.fd - kFirstDescriptor] = current_thread;
    park(until, false);
    for (const pollfd& one : polled)
      if (find(one.fd) != nullptr) pollers_[one.fd - kFirstDescriptor] = nullptr;
    if (is_dying(*current_thread)) return 0;
  }
}

void World::ring(int descriptor, uint64_t count) {
  find(descriptor)->count += count;
  changed(descriptor - kFirstDescriptor);
}

int64_t World::take_rings(int descriptor) {
  const uint64_t count = std::exchange(find(descriptor)->count, 0);
  return count == 0 ? -EAGAIN : static_cast<int64_t>(count);
}

}  // namespace ringgrad::simulation
