// The system calls that the program under test makes, on simulated threads. The linker puts these
// in the place of the real ones (--wrap, tests/CMakeLists.txt); any other thread gets the real one.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstdarg>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>

#include "ringgrad/tests/simulation/world.h"

// A name `f` that was wrapped is __real_f; __wrap_f takes its place. Some names are C++'s.
#define STEADY_NOW _ZNSt6chrono3_V212steady_clock3nowEv
#define START_THREAD \
  _ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE
#define JOIN_THREAD _ZNSt6thread4joinEv
#define WAIT_CONDITION _ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE
#define NOTIFY_ALL _ZNSt18condition_variable10notify_allEv
#define NOTIFY_ONE _ZNSt18condition_variable10notify_oneEv
#define JOINED(a, b) a##b
#define REAL(f) JOINED(__real_, f)
#define WRAP(f) JOINED(__wrap_, f)

using namespace ringgrad::simulation;
using Steady = std::chrono::steady_clock;

// The state of a std::thread, which newer versions of libstdc++ keep private. An explicit
// instantiation may name it.
auto revealed_state();
template <class State>
struct Reveal {
  friend auto revealed_state() { return std::type_identity<State>(); }
};
template struct Reveal<std::thread::_State>;
using State = decltype(revealed_state())::type;
using ThreadState = std::unique_ptr<State>;

extern "C" {

int REAL(socket)(int, int, int);
int REAL(bind)(int, const sockaddr*, socklen_t);
int REAL(listen)(int, int);
int REAL(accept4)(int, sockaddr*, socklen_t*, int);
int REAL(connect)(int, const sockaddr*, socklen_t);
int REAL(getsockname)(int, sockaddr*, socklen_t*);
int REAL(getpeername)(int, sockaddr*, socklen_t*);
int REAL(getsockopt)(int, int, int, void*, socklen_t*);
int REAL(setsockopt)(int, int, int, const void*, socklen_t);
ssize_t REAL(send)(int, const void*, size_t, int);
ssize_t REAL(sendmsg)(int, const msghdr*, int);
ssize_t REAL(recv)(int, void*, size_t, int);
int REAL(shutdown)(int, int);
int REAL(close)(int);
int REAL(fcntl)(int, int, ...);
int REAL(poll)(pollfd*, nfds_t, int);
int REAL(eventfd)(unsigned, int);
int REAL(eventfd_read)(int, eventfd_t*);
int REAL(eventfd_write)(int, eventfd_t);
int REAL(nanosleep)(const timespec*, timespec*);
int REAL(sched_yield)();
int REAL(sched_getaffinity)(pid_t, size_t, cpu_set_t*);
int REAL(pthread_mutex_lock)(pthread_mutex_t*);
int REAL(pthread_mutex_unlock)(pthread_mutex_t*);
int REAL(RAND_bytes)(unsigned char*, int);
Steady::time_point REAL(STEADY_NOW)();
void REAL(START_THREAD)(std::thread*, ThreadState, void (*)());
void REAL(JOIN_THREAD)(std::thread*);
void REAL(WAIT_CONDITION)(std::condition_variable*, std::unique_lock<std::mutex>&);
void REAL(NOTIFY_ALL)(std::condition_variable*);
void REAL(NOTIFY_ONE)(std::condition_variable*);

}  // extern "C"

namespace {

// As a system call returns it.
template <class T>
T with_errno(T result) {
  if (result >= 0) return result;
  errno = static_cast<int>(-result);
  return -1;
}

bool is_ours(int descriptor) {
  return World::here() != nullptr && World::here()->find(descriptor) != nullptr;
}

int fill_address(int machine, uint16_t port, sockaddr* address, socklen_t* length) {
  sockaddr_in filled{};
  filled.sin_family = AF_INET;
  filled.sin_port = htons(port);
  filled.sin_addr.s_addr = htonl(World::here()->number_of(machine));
  std::memcpy(address, &filled, std::min<size_t>(*length, sizeof filled));
  *length = sizeof filled;
  return 0;
}

sockaddr_in read_address(const sockaddr* address) {
  sockaddr_in read;
  std::memcpy(&read, address, sizeof read);
  return read;
}

Time until(int milliseconds) {
  return milliseconds < 0 ? kNever : World::here()->now() + std::chrono::milliseconds(milliseconds);
}

struct SimulatedState final : State {
  SimulatedState(World& world, Thread& record, ThreadState body)
      : world(world), record(record), body(std::move(body)) {}
  void _M_run() override {
    world.run_thread(record, [this] { body->_M_run(); });
  }
  World& world;
  Thread& record;
  ThreadState body;
};

}  // namespace

extern "C" {

int WRAP(socket)(int family, int type, int protocol) {
  if (World::here() == nullptr) return REAL(socket)(family, type, protocol);
  if (family != AF_INET || (type & SOCK_STREAM) == 0) return with_errno(-EAFNOSUPPORT);
  return World::here()->new_socket(Socket::Kind::Fresh, (type & SOCK_NONBLOCK) != 0);
}

int WRAP(bind)(int descriptor, const sockaddr* address, socklen_t length) {
  if (!is_ours(descriptor)) return REAL(bind)(descriptor, address, length);
  const sockaddr_in wanted = read_address(address);
  const uint32_t host = ntohl(wanted.sin_addr.s_addr);
  if (host != 0 && World::here()->machine_of(host) != World::here()->machine_here())
    return with_errno(-EADDRNOTAVAIL);
  return with_errno(World::here()->bind(descriptor, ntohs(wanted.sin_port)));
}

int WRAP(listen)(int descriptor, int backlog) {
  if (!is_ours(descriptor)) return REAL(listen)(descriptor, backlog);
  return with_errno(World::here()->listen(descriptor, backlog));
}

int WRAP(accept4)(int descriptor, sockaddr* address, socklen_t* length, int flags) {
  if (!is_ours(descriptor)) return REAL(accept4)(descriptor, address, length, flags);
  return with_errno(World::here()->accept(descriptor));
}

int WRAP(connect)(int descriptor, const sockaddr* address, socklen_t length) {
  if (!is_ours(descriptor)) return REAL(connect)(descriptor, address, length);
  const sockaddr_in to = read_address(address);
  return with_errno(World::here()->connect(
      descriptor, World::here()->machine_of(ntohl(to.sin_addr.s_addr)), ntohs(to.sin_port)));
}

int WRAP(getsockname)(int descriptor, sockaddr* address, socklen_t* length) {
  if (!is_ours(descriptor)) return REAL(getsockname)(descriptor, address, length);
  const Socket& socket = *World::here()->find(descriptor);
  return fill_address(socket.machine, socket.port, address, length);
}

int WRAP(getpeername)(int descriptor, sockaddr* address, socklen_t* length) {
  if (!is_ours(descriptor)) return REAL(getpeername)(descriptor, address, length);
  const Socket& socket = *World::here()->find(descriptor);
  if (socket.peer < 0) return with_errno(-ENOTCONN);
  return fill_address(socket.peer_machine, socket.peer_port, address, length);
}

int WRAP(getsockopt)(int descriptor, int level, int option, void* value, socklen_t* size) {
  if (!is_ours(descriptor)) return REAL(getsockopt)(descriptor, level, option, value, size);
  if (level != SOL_SOCKET || option != SO_ERROR) return with_errno(-ENOPROTOOPT);
  const int error = std::exchange(World::here()->find(descriptor)->error, 0);
  std::memcpy(value, &error, sizeof error);
  return 0;
}

int WRAP(setsockopt)(int descriptor, int level, int option, const void* value, socklen_t size) {
  if (!is_ours(descriptor)) return REAL(setsockopt)(descriptor, level, option, value, size);
  if (level == IPPROTO_TCP && option == TCP_USER_TIMEOUT) {
    unsigned milliseconds;
    std::memcpy(&milliseconds, value, sizeof milliseconds);
    World::here()->give_up_after(descriptor, std::chrono::milliseconds(milliseconds));
  }
  if (level == SOL_SOCKET && option == SO_LINGER) {
    linger wanted;
    std::memcpy(&wanted, value, sizeof wanted);
    World::here()->find(descriptor)->lingers = wanted.l_onoff == 0 || wanted.l_linger != 0;
  }
  return 0;
}

ssize_t WRAP(send)(int descriptor, const void* bytes, size_t size, int flags) {
  if (!is_ours(descriptor)) return REAL(send)(descriptor, bytes, size, flags);
  return with_errno(World::here()->send(descriptor, static_cast<const char*>(bytes), size));
}

ssize_t WRAP(sendmsg)(int descriptor, const msghdr* message, int flags) {
  if (!is_ours(descriptor)) return REAL(sendmsg)(descriptor, message, flags);
  ssize_t sent = 0;
  for (size_t i = 0; i < message->msg_iovlen; ++i) {
    const iovec& piece = message->msg_iov[i];
    const ssize_t n =
        World::here()->send(descriptor, static_cast<const char*>(piece.iov_base), piece.iov_len);
    if (n < 0) return sent > 0 ? sent : with_errno(n);
    sent += n;
    if (static_cast<size_t>(n) < piece.iov_len) break;
  }
  return sent;
}

ssize_t WRAP(recv)(int descriptor, void* bytes, size_t size, int flags) {
  if (!is_ours(descriptor)) return REAL(recv)(descriptor, bytes, size, flags);
  return with_errno(
      World::here()->receive(descriptor, static_cast<char*>(bytes), size, (flags & MSG_PEEK) != 0));
}

int WRAP(shutdown)(int descriptor, int how) {
  if (!is_ours(descriptor)) return REAL(shutdown)(descriptor, how);
  World::here()->shut(descriptor);
  return 0;
}

int WRAP(close)(int descriptor) {
  if (!is_ours(descriptor)) return REAL(close)(descriptor);
  World::here()->close(descriptor);
  return 0;
}

int WRAP(fcntl)(int descriptor, int command, ...) {
  va_list arguments;
  va_start(arguments, command);
  const long argument = va_arg(arguments, long);
  va_end(arguments);
  if (!is_ours(descriptor)) return REAL(fcntl)(descriptor, command, argument);
  Socket& socket = *World::here()->find(descriptor);
  if (command == F_GETFL) return socket.nonblocking ? O_NONBLOCK : 0;
  if (command == F_SETFL) socket.nonblocking = (argument & O_NONBLOCK) != 0;
  return 0;
}

int WRAP(poll)(pollfd* descriptors, nfds_t count, int milliseconds) {
  if (World::here() == nullptr) return REAL(poll)(descriptors, count, milliseconds);
  return World::here()->poll(descriptors, count, until(milliseconds));
}

int WRAP(eventfd)(unsigned count, int flags) {
  if (World::here() == nullptr) return REAL(eventfd)(count, flags);
  return World::here()->new_socket(Socket::Kind::Event, true);
}

int WRAP(eventfd_read)(int descriptor, eventfd_t* count) {
  if (!is_ours(descriptor)) return REAL(eventfd_read)(descriptor, count);
  const int64_t rings = World::here()->take_rings(descriptor);
  if (rings < 0) return static_cast<int>(with_errno(rings));
  *count = static_cast<eventfd_t>(rings);
  return 0;
}

int WRAP(eventfd_write)(int descriptor, eventfd_t count) {
  if (!is_ours(descriptor)) return REAL(eventfd_write)(descriptor, count);
  World::here()->ring(descriptor, count);
  return 0;
}

int WRAP(nanosleep)(const timespec* time, timespec* left) {
  if (World::here() == nullptr) return REAL(nanosleep)(time, left);
  World::here()->sleep_until(World::here()->now() + std::chrono::seconds(time->tv_sec) +
                             std::chrono::nanoseconds(time->tv_nsec));
  return 0;
}

int WRAP(sched_yield)() {
  if (World::here() == nullptr) return REAL(sched_yield)();
  World::here()->sleep_until(World::here()->now() + std::chrono::microseconds(1));
  return 0;
}

// Two ranks share a core, so none spins.
int WRAP(sched_getaffinity)(pid_t process, size_t size, cpu_set_t* cores) {
  if (World::here() == nullptr) return REAL(sched_getaffinity)(process, size, cores);
  CPU_ZERO_S(size, cores);
  for (int core = 0; core < (World::here()->machines() + 1) / 2; ++core)
    CPU_SET_S(core, size, cores);
  return 0;
}

// OpenSSL's: secrets follow from the seed, too, since their digits are sent.
int WRAP(RAND_bytes)(unsigned char* bytes, int count) {
  if (World::here() == nullptr) return REAL(RAND_bytes)(bytes, count);
  for (int i = 0; i < count; ++i)
    bytes[i] = static_cast<unsigned char>(World::here()->number_below(256));
  return 1;
}

// -- threads --------------------------------------------------------------------------------------

int WRAP(pthread_mutex_lock)(pthread_mutex_t* mutex) {
  if (World::here() == nullptr) return REAL(pthread_mutex_lock)(mutex);
  while (pthread_mutex_trylock(mutex) != 0)
    World::here()->wait_for(mutex, kNever, /*even_if_dead=*/true);
  return 0;
}

int WRAP(pthread_mutex_unlock)(pthread_mutex_t* mutex) {
  const int result = REAL(pthread_mutex_unlock)(mutex);
  if (World::here() != nullptr) World::here()->wake(mutex);
  return result;
}

Steady::time_point WRAP(STEADY_NOW)() {
  if (World::here() == nullptr) return REAL(STEADY_NOW)();
  return Steady::time_point(std::chrono::hours(1) + World::here()->tick());
}

void WRAP(START_THREAD)(std::thread* thread, ThreadState body, void (*depend)()) {
  World* world = World::here();
  if (world == nullptr) return REAL(START_THREAD)(thread, std::move(body), depend);
  Thread& record = world->adopt(world->machine_here());
  REAL(START_THREAD)
  (thread, std::make_unique<SimulatedState>(*world, record, std::move(body)), depend);
  record.id = thread->get_id();
}

void WRAP(JOIN_THREAD)(std::thread* thread) {
  if (World::here() != nullptr) World::here()->await_end(thread->get_id());
  REAL(JOIN_THREAD)(thread);
}

void WRAP(WAIT_CONDITION)(std::condition_variable* condition, std::unique_lock<std::mutex>& lock) {
  if (World::here() == nullptr) return REAL(WAIT_CONDITION)(condition, lock);
  lock.unlock();
  World::here()->wait_for(condition, kNever, /*even_if_dead=*/false);
  lock.lock();
}

void WRAP(NOTIFY_ALL)(std::condition_variable* condition) {
  if (World::here() == nullptr) return REAL(NOTIFY_ALL)(condition);
  World::here()->wake(condition);
}

void WRAP(NOTIFY_ONE)(std::condition_variable* condition) {
  if (World::here() == nullptr) return REAL(NOTIFY_ONE)(condition);
  World::here()->wake(condition);
}

}  // extern "C"
