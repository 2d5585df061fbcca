// The replays of a step with a Reducer in it. See Note [Recorded steps] in reducer.h.
#include "ringgrad/core/base/check.h"
#include "ringgrad/distributed/ddp/reducer.h"

namespace ringgrad {

void Reducer::join_replays() {
  CHECK(replanned_ && usual_weight_ > 0,
        "distributed_data_parallel: the first step cannot be recorded, "
        "because buckets are planned from it, and it tells ",
        "what ranks usually weigh; take one that is not skipped before (CapturedStep takes two)");
  recorded_ = std::make_shared<StepNumbers>();
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
  device_backend(arenas_[0].grads.device().type).on_replay(take_part);
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
  if (totals_.steps % FiniteCheck::kStepsBetweenComparisons != 0) return;
  const Tensor flags = tensor<int64_t>({flag_ ? 1 : 0});
  group_.all_reduce(flags, ReduceOp::Max, options_at_end()).wait();
  any_flag_ = flags.item<int64_t>() > 0;
  if (const auto reason = finite_check_.compare(options_at_end())) fail_all_ranks(*reason);
}

}  // namespace ringgrad
