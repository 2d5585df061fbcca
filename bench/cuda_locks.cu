// Asks which call of CUDA, made by one thread behind a kernel that does not end, holds up which
// calls of another thread. A thread that is held up can neither ask for NCCL's transfers nor abort
// them.
//
//   cuda_locks    one row for each call of the first thread, in about 25 s on one GPU
//
// A cell is the time of the second thread's call, or BLOCKED if it has not returned after 200 ms.
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <thread>
#include <vector>

#include <cuda_runtime.h>

namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kUntilHeld{150};
constexpr std::chrono::milliseconds kLong{200};
constexpr size_t kLarge = 4 << 20;
constexpr size_t kSmall = 8;

void check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  std::printf("%s: %s\n", call, cudaGetErrorString(error));
  std::exit(1);
}
#define CHECKED(call) check(call, #call)

__global__ void spin(const volatile int* go) {
  while (!*go) {
  }
}
__global__ void nothing() {}

struct Call {
  const char* name;
  std::function<void()> make;
};

// Both threads use this: a stream whose kernel spins until `go`, another stream, and memory.
struct Scene {
  int* go = nullptr;
  int* go_on_device = nullptr;
  char* page_locked = nullptr;
  char* device = nullptr;
  std::vector<char> pageable = std::vector<char>(kLarge);
  cudaStream_t stuck = nullptr;
  cudaStream_t other = nullptr;
  cudaEvent_t event = nullptr;
  cudaEvent_t other_event = nullptr;
  cudaGraphExec_t graph = nullptr;

  Scene() {
    CHECKED(cudaHostAlloc(&go, sizeof *go, cudaHostAllocMapped));
    CHECKED(cudaHostGetDevicePointer(&go_on_device, go, 0));
    CHECKED(cudaHostAlloc(&page_locked, kLarge, cudaHostAllocPortable));
    CHECKED(cudaMalloc(&device, kLarge));
    CHECKED(cudaStreamCreateWithFlags(&stuck, cudaStreamNonBlocking));
    CHECKED(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking));
    CHECKED(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    CHECKED(cudaEventCreateWithFlags(&other_event, cudaEventDisableTiming));
    cudaGraph_t recorded = nullptr;
    CHECKED(cudaStreamBeginCapture(stuck, cudaStreamCaptureModeThreadLocal));
    for (int i = 0; i < 20; ++i) nothing<<<1, 1, 0, stuck>>>();
    CHECKED(cudaStreamEndCapture(stuck, &recorded));
    CHECKED(cudaGraphInstantiate(&graph, recorded, 0));
    nothing<<<1, 1, 0, other>>>();
    CHECKED(cudaDeviceSynchronize());
  }
  void copy(void* to, const void* from, size_t bytes) const {
    cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stuck);
    cudaStreamSynchronize(stuck);
  }
};

std::vector<Call> holders(Scene& s) {
  return {
      {"nothing", [] {}},
      {"cudaStreamSynchronize", [&s] { cudaStreamSynchronize(s.stuck); }},
      {"cudaEventSynchronize", [&s] { cudaEventSynchronize(s.event); }},
      {"to the host, 8 B, pageable", [&s] { s.copy(s.pageable.data(), s.device, kSmall); }},
      {"to the host, 4 MB, pageable", [&s] { s.copy(s.pageable.data(), s.device, kLarge); }},
      {"from the host, 4 MB, pageable", [&s] { s.copy(s.device, s.pageable.data(), kLarge); }},
      {"to the host, 8 B, page-locked", [&s] { s.copy(s.page_locked, s.device, kSmall); }},
      {"3000 launches of a graph",
       [&s] {
         for (int i = 0; i < 3000; ++i) cudaGraphLaunch(s.graph, s.stuck);
       }},
      {"5000 launches of a kernel",
       [&s] {
         for (int i = 0; i < 5000; ++i) nothing<<<1, 1, 0, s.stuck>>>();
       }},
      {"cudaMalloc, cudaFree",
       [] {
         void* memory = nullptr;
         cudaMalloc(&memory, kLarge);
         cudaFree(memory);
       }},
      {"cudaHostAlloc",
       [] {
         void* memory = nullptr;
         cudaHostAlloc(&memory, kLarge, cudaHostAllocPortable);
         cudaFreeHost(memory);
       }},
  };
}

std::vector<Call> askers(Scene& s) {
  return {
      {"cudaEventQuery", [&s] { cudaEventQuery(s.event); }},
      {"cudaEventRecord", [&s] { cudaEventRecord(s.other_event, s.other); }},
      {"a kernel", [&s] { nothing<<<1, 1, 0, s.other>>>(); }},
      {"cudaStreamQuery", [&s] { cudaStreamQuery(s.other); }},
      {"page-locked memory", [&s] { *static_cast<volatile char*>(s.page_locked) = 1; }},
  };
}

}  // namespace

int main() {
  Scene scene;
  volatile int* const go = scene.go;
  for (const Call& holder : holders(scene)) {
    std::printf("%-30s", holder.name);
    for (const Call& asker : askers(scene)) {
      *go = 0;
      spin<<<1, 1, 0, scene.stuck>>>(scene.go_on_device);
      CHECKED(cudaEventRecord(scene.event, scene.stuck));
      std::thread first(holder.make);
      std::this_thread::sleep_for(kUntilHeld);
      std::atomic<double> took = -1;
      std::thread second([&] {
        const auto begin = Clock::now();
        asker.make();
        took = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
      });
      std::this_thread::sleep_for(kLong);
      const double before = took;
      *go = 1;
      first.join();
      second.join();
      CHECKED(cudaDeviceSynchronize());
      if (before < 0)
        std::printf("  %s: BLOCKED", asker.name);
      else
        std::printf("  %s: %.3f ms", asker.name, before);
    }
    std::printf("\n");
    std::fflush(stdout);
  }
}
