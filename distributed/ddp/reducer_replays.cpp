// The replays of a step with a Reducer in it. See Note [Recorded steps] in reducer.h.
#include <algorithm>

#include "ringgrad/core/base/check.h"
#include "ringgrad/distributed/ddp/reducer.h"

namespace ringgrad {

void Reducer::join_replays() {
  CHECK(replanned_ && usual_weight_ > 0,
        "distributed_data_parallel: the first step cannot be recorded, "
        "because buckets are planned from it, and it tells ",
        "what ranks usually weigh; take one that is not skipped before (CapturedStep takes two)");
  recorded_ = std::make_shared<StepNumbers>();
  compared_ = {totals_.steps, Clock::now()};
  compares_at_ = 0;
  const auto take_part = [self = weak(), layout = layout(), recorded = recorded_,
                          number = finite_check_.number_of(step_ + 1)](
                             Replay& replay, const std::function<void()>& launch) {
    const auto reducer = self.lock();
    CHECK(reducer && reducer->layout() == layout,
          "distributed_data_parallel: a replay of a step whose wrapper ",
          reducer ? "has planned its buckets anew since" : "was destroyed",
          "; record the step anew");
    reducer->contribution_.replay(*recorded);
    reducer->replay(replay, launch, number);
  };
  // Its step is that of all collectives, of which some may have been recorded before
  // (SyncBatchNorm).
  device_backend(arenas_[0].grads.device().type).on_replay(take_part, true);
}

void Reducer::replay(Replay& replay, const std::function<void()>& launch, int64_t number) {
  replay.step = log_.step = ++step_;
  skipped_ = false;
  {
    const StreamGuard on(replay.stream);
    finite_check_.call(number, step_);
  }
  launch();
  totals_.steps += 1;
  for (const BucketLog& bucket : log_.buckets) totals_.bytes += bucket.bytes;
  if (totals_.steps < compares_at_) return;
  const auto seconds = std::chrono::duration<double>(Clock::now() - compared_.time).count();
  const auto a_second = static_cast<double>(totals_.steps - compared_.step) / seconds;
  const auto until_next =
      static_cast<int64_t>(std::clamp<double>(a_second, 1, FiniteCheck::kStepsBetweenComparisons));
  const Tensor least = tensor<int64_t>({flag_ ? 0 : 1, until_next});
  group_.all_reduce(least, ReduceOp::Min, options_at_end()).wait();
  any_flag_ = least.data<int64_t>()[0] == 0;
  compared_ = {totals_.steps, Clock::now()};
  compares_at_ = totals_.steps + least.data<int64_t>()[1];
  if (const auto reason = finite_check_.compare(options_at_end())) fail_all_ranks(*reason);
}

}  // namespace ringgrad
