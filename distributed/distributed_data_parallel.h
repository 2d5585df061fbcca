// DistributedDataParallel: every rank has the whole module and a part of the batch; gradients are
// averaged over the ranks while backward still runs.
//
//   DistributedDataParallel ddp(model, process_group());
//   optim::SGD optimizer(ddp.named_parameters(), {.lr = 0.1});
//   for (const Batch& batch : loader) {            // this rank's part of the data
//     optimizer.zero_grad();
//     cross_entropy(ddp(batch.data), batch.target).backward();
//     optimizer.step();
//   }
//
// After backward() every rank holds the same gradients, bit for bit: those of the mean loss over
// all ranks' samples, even if ranks have different numbers of samples. So all ranks' parameters
// stay the same.
//
// A loss may be a mean over something else: labelled rows, tokens, the class weights of its
// targets. Then give the weight (Weighting::Given), and the gradients are again those of one
// process:
//   ddp.set_weight(loss_divisor(target, options));  // the divisor of this rank's loss
//   cross_entropy(y, target, options).backward();
// A loss that is a sum needs Weighting::Ranks. The gradients, times the number of ranks, are then
// those of the sum over all ranks.
//
// Names and behaviour are PyTorch's, with four differences. Parameters that take no part in a loss
// need no flag. Running statistics are averaged over the ranks at the end of every step, instead of
// being replaced by rank 0's. Gradients are averaged in overlapping buckets from the first step on.
// Mistakes are errors in the step in which they happen.
//
// Over NCCL a step may be recorded and replayed, on all ranks alike (core/device/captured_step.h).
// Communication and computation overlap in the graph as they do in the step. A rank's number of
// samples and its weight are fixed by the recording. So all ranks must run a step of another size
// without the recording, and also a step with SyncBatchNorm, which needs the host. log() has the
// recording's times.
//
// Several wrappers may share a group. They may take turns, or be parts of one loss; in that case
// only the first one that backward reaches communicates during backward. A wrapper must live until
// the backward of its outputs is done. Not thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <set>

#include "ringgrad/core/for_each_tensor.h"
#include "ringgrad/distributed/ddp/module_watch.h"
#include "ringgrad/distributed/ddp/reducer_options.h"
#include "ringgrad/nn/module.h"

namespace ringgrad {

class StepShare;
class Reducer;
using DistributedDataParallelOptions = ReducerOptions;

class DistributedDataParallel : public nn::Module {
 public:
  // Collective. Rank 0's parameters and buffers replace those of all other ranks, except the
  // ignored ones. The module's gradients move to memory that ranks share if they can. The optimizer
  // may be constructed before or after. Module and group must outlive the wrapper, which lists the
  // module's parameters under their own names: a state_dict has no "module." prefix.
  //
  // Throws OutOfStepError, naming rank and parameter, if the modules differ. Throws DeviceError
  // unless all parameters that require grad are on one device. Throws Error if no parameter
  // requires grad, if another living wrapper has one of them, or if the module lacks an ignored
  // name. Throws Error if the elements of a buffer share memory.
  DistributedDataParallel(nn::Module& module, ProcessGroup& group,
                          DistributedDataParallelOptions options = {});

  // x [N, …] is this rank's part of the batch, N samples. An error on one rank reaches all of them.
  // If backward throws on some ranks after it has come to an output of the wrapper, it throws on
  // all of them in that step, with the reason and gradients of zeros. The ranks may go on after
  // that, unless sync_batch_norm() is in the module. If it throws before, or in a communication
  // hook, the others wait until the timeout. These are errors: a NaN in a gradient; a backward of
  // the module itself instead of the wrapper; an optimizer's step in a hook. A step that a rank has
  // left out is one, too, as is a layer that is frozen or in evaluation mode on some ranks only.
  // The module must not change after it was wrapped: no tensor may be added, removed, replaced or
  // converted, and no frozen one may begin to require a gradient.
  Tensor forward(const Tensor& x) override;

  // Does the same for modules with several inputs and outputs, or that compute the loss themselves.
  // Returns function(module, input, …). Tensors in its result, also in tuples, vectors and structs
  // (core/for_each_tensor.h), may all be part of the loss. The first input that is not a scalar
  // gives the number of samples.
  //   auto [logits, loss] = ddp.apply(
  //       [](nn::Module& m, const Tensor& x, const Tensor& y) {
  //         return static_cast<Net&>(m).forward(x, y);
  //       },
  //       x, y);  // or DDP below
  template <class Function, class... Inputs>
  auto apply(const Function& function, const Inputs&... inputs) {
    Tensor batch;
    const auto look = [&](const Tensor& x) {
      if (!batch && x && x.dim() > 0) batch = x;
    };
    (for_each_tensor(inputs, look), ...);
    begin_forward(batch);
    auto outputs = function(module_, inputs...);
    std::vector<Tensor> tensors;
    for_each_tensor(outputs, [&](const Tensor& y) { tensors.push_back(y); });
    tensors = end_forward(batch, std::move(tensors));
    auto next = tensors.begin();
    for_each_tensor(outputs, [&](Tensor& y) { y = *next++; });
    return outputs;
  }

  // While the returned object lives, backward only accumulates. The first backward after it
  // averages the accumulated gradients. Ranks weigh by their mean batch in all these passes, also
  // those whose gradients zero_grad() has thrown away. That is exact if the passes' batches are
  // divided among the ranks alike. Else divide each pass's loss by the rank's weight in all of
  // them, and give that weight.
  class NoSync;
  [[nodiscard]] NoSync no_sync();

  // For uneven inputs (PyTorch: the Join context manager): some ranks run out of data first.
  //   for (batch : loader) { …; optimizer.step(); }
  //   while (ddp.shadow_step()) optimizer.step();
  // Takes part in one step of the other ranks, whose average becomes this rank's gradients. It
  // contributes the gradients of passes under no_sync(), or nothing. Returns false, on all ranks at
  // the same time, when no rank has data left. Throws Error inside no_sync().
  bool shadow_step();

  // For Weighting::Given: sets the weight of this rank's gradients of the next step, with passes
  // under no_sync(). It is the number by which the loss was divided. Call it before the first
  // backward of every step. If it is 0, the loss has no effect, and may be NaN. Throws Error with
  // another weighting, and if the weight is negative or not finite.
  void set_weight(Real weight);

  // For a bad batch on this rank. All ranks skip the step under way: after its backward, or
  // shadow_step() in its place, gradients are zeros, and skipped() is true on every rank. skipped()
  // is also true if all ranks have weight 0.
  //   if (ddp.skipped()) continue;  // instead of optimizer.step()
  void skip_step();
  bool skipped() const;

  // Collective. Returns a hash of all parameters and buffers that ranks have in common. Throws
  // OutOfStepError, which names the first one that differs and the rank, unless they are the same
  // bit for bit on all ranks.
  uint64_t check_identical() const;

  // From the next step on this hook averages the gradients (comm_hook.h); an empty hook averages
  // plainly. All ranks must call it between the same two steps. Ranks compare the hook's type, and
  // a difference is an error.
  void register_comm_hook(CommHook hook);
  // Returns the hook's state from step to step (PowerSGD: what has not travelled yet), with the
  // order and the caps of the buckets to which it belongs. The state is this rank's own. The
  // tensors are handles; the list is empty if the hook keeps nothing. To go on bit for bit, a run
  // saves every rank's state and loads it on as many ranks, with that hook registered, before its
  // first step.
  nn::NamedTensors comm_hook_state() const;
  // Collective. Also restores the buckets. Throws Error, and changes nothing, if the state belongs
  // to other parameters. If it belongs to another hook, the next step throws.
  void load_comm_hook_state(const nn::NamedTensors& state);

  // Sets this rank's number of the next step in messages. Every rank must use the same number. By
  // default backwards that average count up from 0. A rank that leaves a step out is named at once
  // if the numbers differ. Otherwise it is named when its next backward ends, because it has a
  // forward in training mode that no backward has used. Throws Error for a negative number and
  // beyond 2^62.
  void set_step(Int64 step);
  // Sets a flag that travels with the next backward. Afterwards flag() is true on all ranks if it
  // was set on any rank, so all can stop after the same step. Replays of a recorded step exchange
  // it about once a second, and after 50 steps at the latest.
  void set_flag(Flag flag);
  bool flag() const;

  // Returns the parameters in the order in which the first step's gradients became ready on rank 0;
  // empty before. Buckets are planned in that order from then on. A ring of three or more ranks
  // adds in another order if the buckets differ. So a run that is to go on bit for bit must set
  // this order before its first step, the same on all ranks. An order of other parameters changes
  // nothing. The same holds for the buckets' caps, if a planner chooses them.
  std::vector<std::string> ready_order() const;
  const BucketCaps& bucket_caps() const;
  void set_ready_order(const std::vector<std::string>& names, std::optional<BucketCaps> caps = {});

  // With options.zero: for the optimizer, see sharded_optimizer.h. Throws Error without it.
  std::shared_ptr<const StepShare> step_share() const;

  const ReductionLog& log() const;  // the last step that was averaged
  const ReductionTotals& totals() const;

 private:
  bool is_common(const std::string& name) const;
  nn::NamedTensors common_state() const;
  ModuleState module_state() const;
  void begin_forward(const Tensor& batch);
  std::vector<Tensor> end_forward(const Tensor& batch, std::vector<Tensor> outputs);

  nn::Module& module_;
  ProcessGroup& group_;
  std::shared_ptr<Reducer> reducer_;
  std::set<std::string> own_;  // parameters and buffers that each rank has for itself
};

// DistributedDataParallel with the module's own forward: DDP ddp(net, group); auto [logits, loss] =
// ddp(x, target);
template <class Net>
class DDP : public DistributedDataParallel {
 public:
  DDP(Net& module, ProcessGroup& group, DistributedDataParallelOptions options = {})
      : DistributedDataParallel(module, group, std::move(options)) {}
  template <class... Inputs>
  auto operator()(const Inputs&... inputs) {
    return apply([](nn::Module& m, const auto&... x) { return static_cast<Net&>(m).forward(x...); },
                 inputs...);
  }
};

class DistributedDataParallel::NoSync {
 public:
  explicit NoSync(DistributedDataParallel& ddp);
  ~NoSync();
  NoSync(const NoSync&) = delete;

 private:
  std::shared_ptr<Reducer> reducer_;
  bool previous_;
};

}  // namespace ringgrad
