// GradientBuckets: waits for the parameters' gradients, and averages them over the ranks in
// buckets.
//
// Gradients lie in flat arenas, and a bucket is a range of one (bucket_plan.h). The hook of a
// parameter runs when backward has completed its gradient. When all gradients of a bucket are
// complete and the buckets before it have been launched, its average is launched, and backward goes
// on. After the last node the rest is launched, and all averages are waited for. So it communicates
// during backward and at its end, never in forward. A parameter that takes no part in the loss
// needs no flag: its gradient stays as it is, and its bucket is launched after the last node.
//
//   const auto buckets = std::make_shared<GradientBuckets>("net", group, net.named_parameters());
//   loss.backward();  // now every gradient is the average over the ranks
//
// A derived class sets the policy of a step: its virtual functions decide what begins a step, what
// a sum is and what follows. Reducer (DistributedDataParallel) and ShardGradients (VirtualRanks)
// are such classes.
//
// Note [Several wrappers in one loss]
// All ranks must issue the same collectives, but a rank's loss decides which wrapper's buckets
// become complete first. So if several wrappers of a group are parts of one loss, only the first
// one that backward reaches communicates while backward runs. The others follow after it, in the
// order in which they were reached.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ringgrad/autograd/accumulate_grad.h"
#include "ringgrad/distributed/buckets/bucket_plan.h"
#include "ringgrad/distributed/process_group.h"

namespace ringgrad {

// Reserves the averaging of these parameters' gradients for one wrapper while it lives. Throws
// Error, naming the parameter, if it is reserved already: a module was wrapped twice, or two
// wrapped modules share a parameter. Thread-safe.
class SoleAverager {
 public:
  SoleAverager(const char* who, const NamedTensors& parameters);
  ~SoleAverager();
  SoleAverager(const SoleAverager&) = delete;

 private:
  std::vector<std::shared_ptr<AutogradMeta>> parameters_;
};
// Returns true while some SoleAverager has this parameter. Thread-safe.
bool is_averaged(const Tensor& parameter);

struct GradientBucket {
  // Buckets are launched in the order of their indices.
  int index;
  BucketRange range;
  // [n]: that range of the gradients.
  Tensor flat;
  std::shared_ptr<const std::string> names;
  Work work;
};

// Not thread-safe.
class GradientBuckets : public std::enable_shared_from_this<GradientBuckets> {
 public:
  // Collective. `parameters` are leaves that require grad, the same on all ranks. Moves values and
  // gradients into arenas, where they stay; gradients become zeros. `name` begins messages. The
  // group must outlive this object. Throws Error if another wrapper has one of the parameters.
  GradientBuckets(const char* name, ProcessGroup& group, NamedTensors parameters,
                  BucketCaps caps = {});
  virtual ~GradientBuckets() = default;
  GradientBuckets(const GradientBuckets&) = delete;

  const NamedTensors& parameters() const { return parameters_; }
  // The number of the step under way or, between steps, of the last one: messages name it, and
  // ranks compare it.
  int64_t step() const { return step_; }
  void set_step(int64_t step) { step_ = step; }

  // Throws Error with this reason, and ends the step on all ranks: the others wait for this one's
  // buckets, and learn the reason at once.
  [[noreturn]] void fail_all_ranks(const std::string& reason);

 protected:
  // -- what a step is: its policy ----------------------------------------------------------------

  // The hook: backward has completed this parameter's gradient. By default the pass averages it.
  virtual void gradient_complete(int parameter, const Tensor& leaf);
  // A backward pass with such a gradient begins. By default each pass is a step.
  virtual void begin_pass() { begin_step(); }
  // All gradients of this bucket are complete.
  virtual void bucket_complete(int /*bucket*/) {}
  // Returns true if complete buckets may be launched while backward runs.
  virtual bool may_launch() const { return true; }
  // Launches the sum of a bucket. It is called in the order of buckets, on the thread of backward.
  // When the returned Work is done, bucket.flat is the average over the ranks.
  virtual Work sum(const GradientBucket& bucket, const CollectiveOptions& options);
  // A bucket's Work has been waited for.
  virtual void bucket_done(int /*bucket*/) {}
  // The pass's last node has run. By default: launch_rest() and wait().
  virtual void finalize_backward();
  // The pass has ended, on any path. By default a failed pass waits for what it has launched.
  virtual void end_pass(bool failed);

  // -- what policies use -------------------------------------------------------------------------

  // Begins a pass, which ends with this thread's backward, unless one is under way. REQUIRES: a
  // std::shared_ptr has this object, which the pass keeps alive.
  void join_pass();
  // Begins a step, in which no gradient is ready yet, and counts it.
  void begin_step();
  // Makes sure that the gradient lies in the arena. If the user has dropped or replaced it,
  // backward has made a new one, or none. Fails if the gradient came before in this step.
  void take(int parameter);
  bool taken(int parameter) const { return taken_[parameter]; }
  // Counts a gradient that was taken, and launches the buckets that may be launched now.
  void ready(int parameter);
  void launch_ready();
  // Takes the gradients that were not, and launches the buckets that were not.
  void launch_rest();
  // Waits for all buckets.
  void wait();
  // Waits for the collectives under way, which still use the arenas that the next step's gradients
  // need. Drops their errors.
  void abandon();

  // Makes these the buckets, over the same arenas. No tensor moves, because the user may hold it.
  void use(std::vector<BucketRange> ranges);
  // The place of a parameter's gradient in its arena.
  const Tensor& view(int parameter) const { return views_[parameter]; }
  // The parameters that are ready, in the order in which they became so.
  const std::vector<int>& arrived() const { return arrived_; }
  // Returns the number of leading buckets that have been launched.
  size_t launched() const { return next_; }
  // See Note [Several wrappers in one loss].
  bool leads() const { return leads_; }

  // A hash of the plan and of `identity`, compared between ranks with every collective of a step.
  uint64_t layout() const { return layout_ ^ identity_; }
  void set_identity(uint64_t identity) { identity_ = identity; }
  CollectiveOptions options_for(int bucket, const std::shared_ptr<const std::string>& about) const;

  ProcessGroup& group_;
  const NamedTensors parameters_;
  // Without `values`, which the user may move away.
  std::vector<ArenaRange> arenas_;
  std::vector<GradientBucket> buckets_;
  int64_t step_ = -1;

 private:
  // One backward pass. It lives in the pass's final callback, and so ends with the pass, however
  // that ends.
  struct Pass {
    ~Pass() { buckets->end_pass(!finished); }
    const std::shared_ptr<GradientBuckets> buckets;
    bool finished = false;
  };
  void launch(bool async);

  const std::string name_;
  const SoleAverager sole_averager_;
  // By parameter.
  std::vector<Tensor> views_;

  // By parameter: the buckets that it reaches into.
  std::vector<std::vector<int>> buckets_of_;
  uint64_t layout_ = 0;
  uint64_t identity_ = 0;

  // The pass under way.
  std::weak_ptr<Pass> pass_;
  bool leads_ = false;
  // By parameter.
  std::vector<bool> taken_;
  // By bucket: the number of parameters that are not ready yet.
  std::vector<int> pending_;
  // The bucket to launch next.
  size_t next_ = 0;
  std::vector<int> arrived_;
  std::vector<ScopedHook> hooks_;
};

}  // namespace ringgrad
