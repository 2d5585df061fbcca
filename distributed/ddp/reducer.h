// Reducer: the policy that DistributedDataParallel adds to GradientBuckets. It knows which
// wrapper's output began the pass, the weight of a rank's gradients, whether they are finite, and
// what the ranks exchange at the end of a step.
//
// The life of a step, in PyTorch's words (Li et al. 2020, "PyTorch Distributed", sections 3.2
// and 4.2):
//   prepare_for_backward   in forward: gives the output a node by which backward is noticed
//   gradient_complete      in backward: the hook of a parameter whose gradient is complete
//   sum                    all gradients of a bucket are, and the buckets before it are under way:
//                          weighs it, and launches its all-reduce
//   finalize_backward      after the last node: launches what is left, waits for everything, and
//                          exchanges weights and buffers
//
// Evaluation, skipped outputs and several forwards before one backward need no special cases. Steps
// are backward passes that average, counted at the beginning of the pass. contribution.h decides
// the weight of a rank's gradients.
//
// Note [A backward that throws]
// The other ranks wait for this one's buckets, and it cannot know whether their backward has thrown
// as well. So it takes part in the rest of the step like a rank that skips it, and says at the end
// why. Then backward throws on all ranks, gradients are zeros, and the group lives on: the ranks
// have made the same collectives, wherever in their passes they have failed. A pass that has not
// come to an output of the wrapper, or has failed in a collective or a hook that makes them, ends
// without that. If the module has batch norm over all ranks, the others may wait in the middle of
// their backward for sums that this rank will not bring. So the group ends, with the reason.
//
// Note [Recorded steps]
// A step that is captured in a CUDA graph (core/device/captured_step.h) takes the same way, over a
// group that can be captured (nccl_process_group.h). Its work on the host, such as agreeing on
// weights, is done once, when it is recorded. So all ranks must bring the same to each replay as
// they did then. A replay only advances the step's number. About once a second, and after 50
// replays at the latest, the ranks compare what the host must know: records of values that are not
// finite, and the flag. They agree on the replay at which they do so next.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "ringgrad/core/device/device_backend.h"
#include "ringgrad/distributed/buckets/gradient_buckets.h"
#include "ringgrad/distributed/ddp/finite_check.h"
#include "ringgrad/distributed/ddp/module_watch.h"
#include "ringgrad/distributed/ddp/reducer_options.h"
#include "ringgrad/distributed/ddp/step_exchange.h"
#include "ringgrad/distributed/zero/gradient_slices.h"

namespace ringgrad {

class Reducer : public GradientBuckets {
 public:
  // Collective; see GradientBuckets. `buffers` are synchronised after every step (step_exchange.h).
  Reducer(ProcessGroup& group, NamedTensors parameters, std::vector<Tensor> buffers,
          ModuleState module, ReducerOptions options);
  ~Reducer() override;

  // Compares the module before a forward with the module that was wrapped. Throws Error on all
  // ranks if it has changed.
  void look_at(ModuleState module);

  // Returns the module's outputs for a batch of so many samples: the same tensors, with a node. The
  // node tells the reducer when a backward pass begins that has one of them in its graph; without
  // it the hooks would run, but average nothing. `training` says that a backward is expected to
  // follow, on all ranks or on none.
  std::vector<Tensor> prepare_for_backward(std::vector<Tensor> outputs, int64_t samples,
                                           bool training);

  // The next step has the number after this one.
  void set_step(int64_t step) {
    finite_check_.expect(step + 1);
    GradientBuckets::set_step(step);
  }

  // See DistributedDataParallel.
  bool shadow();
  void set_weight(double weight) { contribution_.set_weight(weight); }
  void skip() { contribution_.skip(); }
  void register_comm_hook(CommHook hook);
  NamedTensors comm_hook_state() const;
  void load_comm_hook_state(const NamedTensors& state);
  bool skipped() const { return skipped_; }

  bool synchronizing() const { return synchronizing_; }
  void set_synchronizing(bool on) { synchronizing_ = on; }

  // Before backward: a flag to tell the others. After it: whether any rank had set it. For stopping
  // at the same step.
  void set_flag(bool flag) { flag_ = flag; }
  bool flag() const { return any_flag_; }

  // See DistributedDataParallel.
  std::vector<std::string> ready_order() const;
  void set_ready_order(const std::vector<std::string>& names, std::optional<BucketCaps> caps);

  // None without ZeRO.
  std::shared_ptr<GradientSlices> slices() const { return slices_; }

  const BucketCaps& caps() const { return caps_; }
  const ReductionLog& log() const { return log_; }
  const ReductionTotals& totals() const { return totals_; }

 private:
  using Clock = Work::Clock;

  void gradient_complete(int parameter, const Tensor& leaf) override;
  void begin_pass() override;
  void bucket_complete(int bucket) override { log_.buckets[bucket].ready = now(); }
  bool may_launch() const override { return reached_ && options_.overlap; }
  Work sum(const GradientBucket& bucket, const CollectiveOptions& options) override;
  void bucket_done(int bucket) override;
  void finalize_backward() override;
  void end_pass(bool failed) override;

  void plan_anew(const std::vector<int>& ready_order, const BucketCaps& caps);
  void plan_as_observed();
  std::vector<Tensor> averages() const;
  void identify();
  void check_no_hook(const CommHook& hook) const;

  void begin_averaging();
  Work sum_of(const GradientBucket& bucket, const CollectiveOptions& options);
  void take_part_in_rest(const std::exception_ptr& error);
  std::vector<Tensor> outputs_reached(int64_t forward, int64_t samples, std::span<const Tensor> dy);
  void must_be_finite(const BucketRange& range, const Tensor& sent);
  std::function<void(const Tensor&)> check_of(const BucketRange& range);
  void check_finite(int parameter);
  void check_not_written(int parameter, const std::string& until);
  void check_alike(const StepNumbers& sum);
  void check_no_backward_left_out(const StepNumbers& sum);

  bool travels_in_few_bits() const;
  void agree_on_scale();
  void join_replays();
  void replay(Replay& replay, const std::function<void()>& launch, int64_t number);
  double now() const;
  double end_of(const Work& work) const;
  CollectiveOptions options_at_end() const { return options_for(-1, weights_); }
  std::weak_ptr<Reducer> weak() { return std::static_pointer_cast<Reducer>(shared_from_this()); }

  ModuleWatch module_;
  ReducerOptions options_;
  StepExchange exchange_;
  FiniteCheck finite_check_{group_, parameters_, arenas_};
  const std::shared_ptr<const std::string> weights_ =
      std::make_shared<const std::string>("what the ranks weigh");
  // A random number that distinguishes this reducer from others of the group.
  int64_t number_;
  // The communication hook's memory, by bucket.
  std::vector<Tensor> scratch_;
  bool replanned_ = false;
  // The order of parameters by which buckets are planned; at first backward's, last layers first.
  std::vector<int> order_;
  BucketCaps caps_;
  // ZeRO's.
  std::shared_ptr<GradientSlices> slices_;
  int released_ = 0;  // leading buckets, in this step

  // The pass under way.
  // The contribution when it began, which comes back if the pass fails.
  Contribution before_;
  // An output of the module is in the graph.
  bool reached_ = false;
  Clock::time_point begun_;
  // sum() has begun and not returned: it may have thrown between two collectives.
  bool launching_ = false;
  // In backward ranks wait for each other's sums: the module has batch norm over all of them.
  bool ranks_meet_ = false;
  // The error that this rank's backward has thrown; empty if it has not.
  std::string failure_;
  std::vector<uint32_t> versions_;  // by parameter: of its values, when the pass began
  // The gradients in the order in which they are ready, until a planner has planned with them.
  std::vector<ReadyGradient> ready_times_;

  bool synchronizing_ = true;
  // This rank's numbers for each replay, while the step is recorded.
  std::shared_ptr<StepNumbers> recorded_;
  Contribution contribution_;
  double usual_weight_;  // 0: not known yet
  // c in Note [Weights], for the step under way; 0: not agreed on yet.
  double scale_ = 0;
  // in the last step
  bool any_data_ = false;
  bool skipped_ = false;
  bool flag_ = false;
  bool any_flag_ = false;
  // The last comparison of replays, and the step of the next.
  struct Comparison {
    int64_t step = 0;
    Clock::time_point time;
  } compared_;
  int64_t compares_at_ = 0;

  ReductionLog log_;
  ReductionTotals totals_;
};

}  // namespace ringgrad
