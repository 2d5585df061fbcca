// Reducer: from "this parameter's gradient is complete" to "all gradients are the average over the
// ranks".
//
// The life of a step, in PyTorch's words (Li et al. 2020, "PyTorch Distributed", sections 3.2
// and 4.2):
//   prepare_for_backward   in forward: gives the output a node by which backward is noticed
//   mark_variable_ready    in backward: the hook of a parameter whose gradient is complete
//   all_reduce_bucket      all gradients of a bucket are, and the buckets before it are under way:
//                          its all-reduce runs while backward goes on
//   finalize_backward      after the last node: launches what is left, and waits for everything
//
// It communicates during backward and at its end, never in forward. So evaluation, skipped outputs
// and several forwards before one backward need no special cases, and a parameter that takes no
// part in the loss needs no flag: its gradient is what it was, on all ranks, and its bucket is
// launched after the last node.
// Steps are backward passes that average, counted where a pass begins; what a rank's gradients
// weigh is decided in contribution.h.
//
// Note [Recorded steps]
// A step that is captured in a CUDA graph (core/device/captured_step.h) takes the same way, over a
// group that can be captured (nccl_process_group.h). What it does on the host, such as agreeing on
// weights, it does once, when it is recorded; so all ranks must bring the same to each replay as
// they did then. At a replay only the step's number goes on, and every 50 replays the ranks compare
// what the host must know: records of what is not finite, and the flag.
//
// Note [Several wrappers in one loss]
// Where several wrappers of a group are parts of one loss, only the first one that backward reaches
// communicates while backward runs, and the others after it, in the order in which they were
// reached. When whose buckets become complete depends on which parameters a rank's loss has, and
// all ranks must issue the same collectives.
#pragma once

#include <memory>
#include <optional>
#include <span>

#include "ringgrad/autograd/accumulate_grad.h"
#include "ringgrad/core/device/device_backend.h"
#include "ringgrad/distributed/ddp/finite_check.h"
#include "ringgrad/distributed/ddp/gradient_arenas.h"
#include "ringgrad/distributed/ddp/module_watch.h"
#include "ringgrad/distributed/ddp/reducer_options.h"
#include "ringgrad/distributed/ddp/step_exchange.h"

namespace ringgrad {

class Reducer : public std::enable_shared_from_this<Reducer> {
 public:
  // Collective. `parameters` are leaves that require grad, the same on all ranks. `buffers` are
  // synchronised after every step (step_exchange.h). Moves values and gradients into arenas, where
  // they stay. The group must outlive this object. Throws Error if another wrapper has one of the
  // parameters.
  Reducer(ProcessGroup& group, NamedTensors parameters, std::vector<Tensor> buffers,
          ModuleState module, ReducerOptions options);

  // Compares the module before a forward with the module that was wrapped. Throws Error on all
  // ranks if it has changed.
  void look_at(ModuleState module);

  // The outputs of the module for a batch of so many samples: the same tensors, with a node that
  // tells the reducer when a backward pass begins that has one in its graph. Without that the hooks
  // would run, and nothing be averaged. `training`: so a backward is expected to have it, on all
  // ranks or on none.
  std::vector<Tensor> prepare_for_backward(std::vector<Tensor> outputs, int64_t samples,
                                           bool training);

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
  void set_step(int64_t step) { step_ = step; }

  // Before backward: a flag to tell the others. After it: whether any rank had set it. For stopping
  // at the same step.
  void set_flag(bool flag) { flag_ = flag; }
  bool flag() const { return any_flag_; }

  // See DistributedDataParallel.
  std::vector<std::string> ready_order() const;
  void set_ready_order(const std::vector<std::string>& names, std::optional<BucketCaps> caps);
  const BucketCaps& caps() const { return options_.caps; }

  const ReductionLog& log() const { return log_; }
  const ReductionTotals& totals() const { return totals_; }

 private:
  using Clock = Work::Clock;
  struct Bucket {
    BucketRange range;
    Tensor flat;
    std::shared_ptr<const std::string> names;
    Work work;
    Tensor scratch;  // of the communication hook
  };
  // One backward pass. It lives in the pass's final callback, and so ends with the pass, however
  // that ends.
  struct Pass {
    ~Pass() {
      contribution_of_this_pass = nullptr;
      if (!finished) reducer->abandon(*this);
    }
    const std::shared_ptr<Reducer> reducer;
    const Contribution before;  // restored if the pass fails
    bool leads = false;         // see Note [Several wrappers in one loss]
    bool reached = false;       // an output of the module is in the graph
    bool finished = false;
  };

  void plan(const std::vector<int>& ready_order, BucketCaps caps);
  void update_layout();
  void plan_as_observed();

  std::shared_ptr<Pass> current_pass();
  void begin_step();
  std::vector<Tensor> outputs_reached(int64_t forward, int64_t samples, std::span<const Tensor> dy);
  void mark_variable_ready(int parameter);
  void all_reduce_ready_buckets(const Pass& pass);
  void all_reduce_bucket(bool async);
  void must_be_finite(const BucketRange& range, const Tensor& sent);
  std::function<void(const Tensor&)> check_of(const BucketRange& range);
  void finalize_backward(bool reached);
  void check_not_written(int parameter, const std::string& until);
  void check_alike(const StepNumbers& sum);
  void check_no_backward_left_out(const StepNumbers& sum);
  void abandon(const Pass& pass);
  [[noreturn]] void fail_all_ranks(const std::string& reason);

  void take_gradient(int parameter);
  bool travels_in_few_bits() const;
  void agree_on_scale();
  void join_replays();
  void replay(Replay& replay, const std::function<void()>& launch, int64_t number);
  double now() const;
  double end_of(const Work& work) const;
  void scale(const Tensor& x, double factor) const;
  CollectiveOptions options_for(int bucket, const std::shared_ptr<const std::string>& about) const;

  ProcessGroup& group_;
  const NamedTensors parameters_;
  const SoleAverager sole_averager_{"distributed_data_parallel", parameters_};
  ModuleWatch module_;
  ReducerOptions options_;
  StepExchange exchange_;
  std::vector<ScopedHook> hooks_;
  const std::shared_ptr<const std::string> weights_ =
      std::make_shared<const std::string>("what the ranks weigh");

  std::vector<ArenaRange> arenas_;
  std::vector<Tensor> views_;  // by parameter: its gradient's place in the arena

  // The plan: who travels with whom.
  std::vector<int> order_;
  std::vector<Bucket> buckets_;               // in the order in which they are launched
  std::vector<std::vector<int>> buckets_of_;  // by parameter
  uint64_t identity_ = 0;                     // random: tells this reducer from others of the group
  uint64_t layout_ = 0;                       // hash of the plan, compared between ranks
  bool replanned_ = false;

  FiniteCheck finite_check_{group_, parameters_, arenas_};

  // The pass under way.
  std::weak_ptr<Pass> pass_;
  Clock::time_point begun_;
  // By bucket: parameters that are not ready yet.
  std::vector<int> pending_;
  // The bucket to launch next.
  size_t next_ = 0;
  std::vector<int> ready_order_;
  // By parameter.
  std::vector<bool> ready_;
  // By parameter, the version of its values when the pass began.
  std::vector<uint32_t> versions_;
  // Times in the order of ready_order_, where a planner wants to know, until it has planned.
  std::vector<ReadyGradient> ready_times_;

  bool synchronizing_ = true;
  // The step under way, or the last one.
  int64_t step_ = -1;
  // This rank's part in each replay, while the step is recorded.
  std::shared_ptr<StepNumbers> recorded_;
  Contribution contribution_;
  // As far as it is known; 0: not yet.
  double usual_weight_;
  // The step's c in Note [Weights]; 0: not agreed on yet.
  double scale_ = 0;
  // In the last step.
  bool any_data_ = false, skipped_ = false;
  bool flag_ = false, any_flag_ = false;

  ReductionLog log_;
  ReductionTotals totals_;
};

}  // namespace ringgrad
