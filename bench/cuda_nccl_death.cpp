// Asks what a rank sees of NCCL when the other one has died, and when. There are two processes on
// one GPU, over loopback. Rank 1 kills itself after 20 all-reduces.
//
//   cuda_nccl_death eager|graph none|sync|pageable AHEAD
//
// One thread of rank 0 issues AHEAD all-reduces more, one by one or as replays, and then waits as
// the second word says. Another thread makes no call of CUDA. It asks ncclCommGetAsyncError, and
// calls ncclCommAbort after an error or 3 s. Prints a time line, in ms since the death. Exit
// status: 0 if everything ended, 3 after 20 s.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include <cuda_runtime.h>
#include <nccl.h>

namespace {

constexpr int kBefore = 20;  // all-reduces of both ranks
constexpr size_t kNumbers = 1 << 18;
constexpr std::chrono::seconds kUntilAbort{3};
constexpr std::chrono::seconds kMost{20};

struct Shared {  // between the processes
  ncclUniqueId id;
  std::atomic<int> ready;
  std::atomic<int64_t> death;  // in microseconds; 0: not yet
};

int rank = 0;

void check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  std::printf("rank %d: %s: %s\n", rank, call, cudaGetErrorString(error));
  _exit(1);
}
void check(ncclResult_t result, const char* call) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  std::printf("rank %d: %s: %s\n", rank, call, ncclGetErrorString(result));
  _exit(1);
}
#define CHECKED(call) check(call, #call)

int64_t now() {
  const auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(time).count();
}

// A communicator of two ranks, its stream, and the all-reduce, recorded or not.
class Rank {
 public:
  Rank(const ncclUniqueId& id, bool graph) {
    CHECKED(cudaSetDevice(0));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    CHECKED(ncclCommInitRankConfig(&comm, 2, id, rank, &config));
    settle();
    CHECKED(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECKED(cudaMalloc(&x, kNumbers * sizeof(float)));
    CHECKED(cudaMemsetAsync(x, 0, kNumbers * sizeof(float), stream));
    for (int i = 0; i < 3; ++i) all_reduce();
    CHECKED(cudaStreamSynchronize(stream));
    if (!graph) return;
    cudaGraph_t recorded = nullptr;
    CHECKED(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    all_reduce();
    CHECKED(cudaStreamEndCapture(stream, &recorded));
    CHECKED(cudaGraphInstantiate(&executable, recorded, 0));
    CHECKED(cudaGraphDestroy(recorded));
  }
  // Returns false if it was not issued.
  bool issue() {
    if (executable) return cudaGraphLaunch(executable, stream) == cudaSuccess;
    return all_reduce() == ncclSuccess;
  }

  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  float* x = nullptr;
  cudaGraphExec_t executable = nullptr;

 private:
  ncclResult_t settle() const {
    ncclResult_t state = ncclInProgress;
    while (state == ncclInProgress) {
      CHECKED(ncclCommGetAsyncError(comm, &state));
      if (state == ncclInProgress) usleep(20);
    }
    return state;
  }
  ncclResult_t all_reduce() {
    ncclAllReduce(x, x, kNumbers, ncclFloat, ncclSum, comm, stream);
    return settle();
  }
};

void survive(Rank& own, Shared& shared, const std::string& wait, int ahead) {
  const auto say = [&](const char* what) {
    const int64_t death = shared.death;
    std::printf("  %9.1f ms  %s\n", death ? static_cast<double>(now() - death) * 1e-3 : -1.0, what);
    std::fflush(stdout);
  };
  std::thread([&] {
    std::this_thread::sleep_for(kMost);
    say("NOT ENDED");
    _exit(3);
  }).detach();
  std::thread issuing([&] {
    CHECKED(cudaSetDevice(0));
    for (int i = 0; i < kBefore + ahead; ++i)
      if (!own.issue()) {
        say("issuing is refused");
        break;
      }
    say("issued");
    char host[8];
    if (wait == "pageable")
      cudaMemcpyAsync(host, own.x, sizeof host, cudaMemcpyDefault, own.stream);
    if (wait != "none") {
      const cudaError_t error = cudaStreamSynchronize(own.stream);
      say(error ? cudaGetErrorString(error) : "the stream is done");
    }
    if (own.executable) cudaGraphExecDestroy(own.executable);
    say("the thread ends");
  });

  while (!shared.death) usleep(500);
  ncclResult_t state = ncclSuccess;
  while (state == ncclSuccess || state == ncclInProgress) {
    CHECKED(ncclCommGetAsyncError(own.comm, &state));
    if (now() - shared.death > std::chrono::microseconds(kUntilAbort).count()) break;
    usleep(500);
  }
  say(ncclGetErrorString(state));
  say("ncclCommAbort");
  ncclCommAbort(own.comm);
  say("ncclCommAbort has returned");
  issuing.join();
  say("END");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "cuda_nccl_death eager|graph none|sync|pageable AHEAD\n");
    return 2;
  }
  for (const char* variable :
       {"NCCL_NET=Socket", "NCCL_SOCKET_IFNAME=lo", "NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1",
        "NCCL_IB_DISABLE=1", "NCCL_MNNVL_ENABLE=0", "NCCL_NVLS_ENABLE=0", "NCCL_MAX_CTAS=2",
        "NCCL_ALGO=Ring", "NCCL_PROTO=Simple", "NCCL_RAS_ENABLE=0", "NCCL_NET_PLUGIN=none",
        "NCCL_MULTI_RANK_GPU_ENABLE=1"})
    putenv(const_cast<char*>(variable));
  void* const memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  auto& shared = *static_cast<Shared*>(memory);
  const pid_t child = fork();
  if (child < 0) return 1;
  rank = child == 0 ? 1 : 0;
  setenv("NCCL_HOSTID", rank == 0 ? "machine0" : "machine1", 1);
  if (rank == 0) {
    CHECKED(ncclGetUniqueId(&shared.id));
    shared.ready = 1;
  }
  while (!shared.ready) usleep(1000);
  Rank own(shared.id, std::string(argv[1]) == "graph");
  if (rank == 1) {
    for (int i = 0; i < kBefore; ++i) own.issue();
    CHECKED(cudaStreamSynchronize(own.stream));
    shared.death = now();
    kill(getpid(), SIGKILL);
  }
  std::printf("%s, %s, %s ahead\n", argv[1], argv[2], argv[3]);
  survive(own, shared, argv[2], std::atoi(argv[3]));
  waitpid(child, nullptr, 0);
  _exit(0);
}
