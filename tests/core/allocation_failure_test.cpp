// Memory may run out anywhere in a training step. The step then throws, nothing leaks, and the next
// step goes well. The same holds for messages between ranks: every waiter learns of the failure.
// This program has its own operator new and CPU memory, and lets the n-th call of either fail, for
// every n.
#include <atomic>
#include <cstdlib>
#include <new>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/device/allocator.h"
#include "ringgrad/core/device/device_backend.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/random.h"
#include "ringgrad/distributed/point_to_point/message_matcher.h"
#include "ringgrad/models/registry.h"
#include "ringgrad/nn/optim/optimizers.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/distributed/run_ranks.h"

using namespace ringgrad;

namespace {

constexpr int64_t kNever = INT64_MAX;
std::atomic<int64_t> calls = 0;
std::atomic<int64_t> first_to_fail = kNever;
std::atomic<int64_t> last_to_fail = kNever;
std::atomic<int64_t> in_use = 0;  // pieces of memory from operator new

bool fails() {
  const int64_t call = calls++;
  return first_to_fail <= call && call <= last_to_fail;
}

void* take_or_null(size_t bytes, size_t alignment) noexcept {
  if (fails()) return nullptr;
  ++in_use;
  return std::aligned_alloc(alignment, (bytes + alignment) / alignment * alignment);
}
void* take(size_t bytes, size_t alignment) {
  if (void* data = take_or_null(bytes, alignment)) return data;
  throw std::bad_alloc();
}
void give(void* data) {
  if (data != nullptr) --in_use;
  std::free(data);
}

// The CPU's memory, which may run out; everything else is the CPU's.
class ScarceMemory : public DeviceBackend {
 public:
  explicit ScarceMemory(DeviceBackend& cpu) : cpu_(cpu) {}
  int count() const override { return cpu_.count(); }
  std::string describe(int index) const override { return cpu_.describe(index); }
  void* allocate(int index, size_t bytes) override {
    return fails() ? nullptr : cpu_.allocate(index, bytes);
  }
  bool deallocate(int index, void* data, size_t bytes) override {
    return cpu_.deallocate(index, data, bytes);
  }
  size_t free_memory(int index) const override { return cpu_.free_memory(index); }
  Stream default_stream(int index) override { return cpu_.default_stream(index); }
  void synchronize(Stream stream) override { cpu_.synchronize(stream); }
  std::unique_ptr<DeviceGraph> capture(int index, const std::function<void()>& body) override {
    return cpu_.capture(index, body);
  }

 private:
  DeviceBackend& cpu_;
};

}  // namespace

void* operator new(size_t bytes) { return take(bytes, alignof(std::max_align_t)); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return take(bytes, static_cast<size_t>(alignment));
}
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  return take_or_null(bytes, alignof(std::max_align_t));
}
void operator delete(void* data) noexcept { give(data); }
void operator delete(void* data, size_t) noexcept { give(data); }
void operator delete(void* data, std::align_val_t) noexcept { give(data); }
void operator delete(void* data, size_t, std::align_val_t) noexcept { give(data); }

TEST_CASE(
    "a training step in which an allocation fails, "
    "any one or any and all that follow, leaks nothing",
    "[quick][memory]") {
  setenv("RINGGRAD_THREADS", "1", 1);  // which call is the n-th must not depend on who is first
  register_backend(DeviceType::CPU, new ScarceMemory(device_backend(DeviceType::CPU)));
  const auto model = models::make_model("cnn", {.in_channels = 1, .image_size = 28});
  optim::SGD optimizer(model->named_parameters(), {.lr = 0.01, .momentum = 0.9});
  const Tensor images = empty({2, 1, 28, 28});
  const Tensor labels = tensor<int64_t>({0, 1});
  normal_(images, 0, 1);
  const auto step = [&] {
    optimizer.zero_grad();
    cross_entropy(model->forward(images), labels).backward();
    optimizer.step();
  };
  const bool only_one = GENERATE(true, false);
  int64_t needed = 1;
  // Returns true if the failing step has thrown. A step without failure follows, after which
  // everything is as before.
  const auto failing_step = [&](int64_t n) {
    empty_cache({});
    calls = 0;
    last_to_fail = only_one ? n : kNever;
    first_to_fail = n;
    bool threw = false;
    try {
      step();
    } catch (const std::exception&) {
      threw = true;
    }
    first_to_fail = kNever;
    empty_cache({});
    calls = 0;
    step();
    needed = calls;
    return threw;
  };
  for (int64_t n = 0; n < needed; ++n) {
    failing_step(n);  // what is made once is there now
    const int64_t pieces = in_use;
    const int64_t bytes = memory_stats({}).live_bytes;
    const bool told = failing_step(n) || only_one;  // one that fails is tried again
    if (in_use == pieces && memory_stats({}).live_bytes == bytes && told) continue;
    CAPTURE(n, needed, told, in_use.load(), pieces, memory_stats({}).live_bytes, bytes);
    FAIL("leaked, or nobody was told");
  }
}

TEST_CASE("messages among which an allocation fails, any one, all hear of their end",
          "[quick][memory]") {
  struct Counted final : PointToPointRequest {
    Counted(bool sent, int& heard) : ended(heard), bytes(100) {
      outgoing = sent;
      peer = 1;
      frame.operation = Operation::SendRecv;
      payload = bytes;
    }
    void arrive(int) noexcept override { ++ended; }
    void fail(std::exception_ptr) noexcept override { ++ended; }
    int& ended;
    std::vector<std::byte> bytes;
  };
  constexpr int kMessages = 40;  // more than a queue holds without a piece of memory of its own
  bool threw = true;
  bool ever = false;
  for (int64_t n = 0; threw; ++n) {
    const auto transports = in_process_transports(2);
    Transport& t = *transports[0];
    int ended = 0;
    for (int i = 0; i < kMessages; ++i) matcher_of(t).post(std::make_shared<Counted>(i > 0, ended));
    calls = 0;
    first_to_fail = last_to_fail = n;
    threw = false;
    try {
      move_messages_until(
          t, [&] { return matcher_of(t).under_way() == 1; });  // no rank sends the first one
    } catch (const std::bad_alloc&) {
      threw = ever = true;
    }
    first_to_fail = kNever;
    matcher_of(t).fail_all(std::make_exception_ptr(Error("no memory")));
    CAPTURE(n);
    REQUIRE(ended == kMessages);
    REQUIRE(matcher_of(t).under_way() == 0);
  }
  REQUIRE(ever);
}
