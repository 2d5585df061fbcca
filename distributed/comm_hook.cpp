#include "ringgrad/distributed/comm_hook.h"

#include <utility>

#include "ringgrad/core/base/check.h"

namespace ringgrad {

bool GradBucket::begin_scratch(int64_t items, DType dtype) const {
  CHECK(!scratch || (scratch.numel() == items && scratch.dtype() == dtype),
        "communication hook: with bucket ", index, " there are ", scratch.numel(), " ",
        scratch.dtype(), " from before, expected ", items, " ", dtype,
        "; load_comm_hook_state() wants what the same hook, with the same options, has kept");
  if (scratch) return false;
  const auto bytes = static_cast<size_t>(items) * itemsize(dtype);
  scratch = Tensor(group.allocate_shared(bytes, flat.device()), {items}, {1}, 0, dtype);
  fill_(scratch, 0);
  return true;
}

namespace {

class Continuation final : public Work::State {
 public:
  Continuation(Work work, std::function<void()> after)
      : work_(std::move(work)), after_(std::move(after)) {}
  void wait() override {
    work_.wait();
    if (const auto after = std::exchange(after_, nullptr)) after();
  }
  bool done() const override { return work_.done(); }
  Work::Clock::time_point ended() const override { return work_.ended(); }

 private:
  Work work_;
  std::function<void()> after_;
};

CommHook compress_hook(DType dtype) {
  return [dtype](const GradBucket& bucket) {
    if (itemsize(bucket.flat.dtype()) == 2) return bucket.average(bucket.flat);
    bucket.begin_scratch(bucket.flat.numel(), dtype);
    const Tensor small = bucket.scratch;
    copy_(small, bucket.flat);
    return then(bucket.average(small), [small, flat = bucket.flat] { copy_(flat, small); });
  };
}

}  // namespace

CommHook bf16_compress_hook() { return compress_hook(DType::BFloat16); }
CommHook fp16_compress_hook() { return compress_hook(DType::Float16); }

Work then(Work work, std::function<void()> after) {
  return Work(std::make_shared<Continuation>(std::move(work), std::move(after)));
}

}  // namespace ringgrad
