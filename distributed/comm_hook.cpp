#include "ringgrad/distributed/comm_hook.h"

#include <utility>

namespace ringgrad {
namespace {

class Continuation final : public Work::State {
 public:
  Continuation(Work work, std::function<void()> after) : work_(std::move(work)), after_(std::move(after)) {}
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
    Tensor& small = bucket.scratch;  // in memory that the ranks share
    if (!small) {
      const auto bytes = static_cast<size_t>(bucket.flat.numel()) * itemsize(dtype);
      small = Tensor(bucket.group.allocate_shared(bytes, bucket.flat.device()), bucket.flat.shape(), {1}, 0, dtype);
    }
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
