// VirtualRanks: data parallelism whose result does not depend on how many ranks there are.
//
// The global batch is cut into V shards. Each of n real ranks, any n up to V, computes some of
// them, one after the other. Weights, buffers and losses are bit for bit those of V ranks with one
// shard each. They depend neither on n, nor on the transport, nor on the number of threads;
// shards/shard_tree.h says why.
//
//   VirtualRanks ranks(model, process_group(), {.shards = 8});
//   optim::SGD optimizer(model.named_parameters(), {.lr = 0.1});
//   // A batch is the rows that ranks.own_rows(global batch) says: see BatchPartSampler.
//   for (const Batch& batch : loader) {
//     const double loss = ranks.step(global_batch, [&](const VirtualRanks::Shard& shard) {
//       const Tensor y = model(slice(batch.data, 0, shard.begin, shard.end));
//       const Tensor sum = cross_entropy(y, slice(batch.target, 0, shard.begin, shard.end),
//                                        {.reduction = Reduction::Sum});
//       sum.backward();
//       return sum;
//     });
//     optimizer.step();
//   }
//
// A shard's loss is the sum over its samples. The total of the gradients is divided once, by the
// size of the global batch. So a batch that V does not divide, or a smaller last one, is exact.
//
// Each shard sees what a rank of V would see:
//   * its own samples in batch norm, or with .sync_batch_norm those of all shards;
//   * the buffers as they were before the step; afterwards they become the mean of the shards'
//     running statistics, weighted by samples, as with DistributedDataParallel;
//   * random numbers (dropout) of its own, which follow from seed, step and shard.
//
// A rank may have several devices, as with DataParallel. Then replicas of the module compute its
// shards at once, each on a thread of its own, and the sums are the same.
//
// Gradients of a backward outside step() are this rank's own. Not thread-safe.
#pragma once

#include <functional>
#include <memory>

#include "ringgrad/distributed/data_parallel.h"
#include "ringgrad/distributed/ddp/module_watch.h"
#include "ringgrad/distributed/shards/shard_gradients.h"
#include "ringgrad/nn/module.h"

namespace ringgrad {

class ShardMeeting;

struct VirtualRanksOptions {
  // V, the same on all ranks, and at least the number of ranks.
  int shards = 1;
  // The seed of the shards' random numbers, the same on all ranks.
  uint64_t seed = 0;
  // Batch norm over all shards; this rank's then run in lockstep (shards/lockstep.h).
  bool sync_batch_norm = false;
  BucketCaps caps = {};
  // ZeRO, for ShardedOptimizer: see ReducerOptions. zero_grad() need not be called.
  int zero = 0;
  // Throw if a shard's gradient on the CPU is NaN or infinite, and name rank and parameter.
  bool check_finite = true;
  // This rank's devices, of which the first is the module's; {} : only the module's.
  std::vector<Device> devices = {};
  // Makes a module of the same structure for each other device.
  DataParallel::MakeReplica make_replica = {};
};

class VirtualRanks {
 public:
  // Collective. Rank 0's parameters and buffers replace those of all other ranks. Gradients move to
  // memory that ranks share if they can. Module and group must outlive this object. A group of one
  // rank has all shards, on any device. Throws Error if there are fewer shards than ranks, or
  // nothing to train. Throws OutOfStepError, which names the difference, if ranks have different
  // modules or numbers of shards. Throws DeviceError as DistributedDataParallel does.
  VirtualRanks(nn::Module& module, ProcessGroup& group, VirtualRanksOptions options);

  struct Shard {
    int index;  // the index among all shards
    // its rows among own_rows()
    int64_t begin;
    int64_t end;
    nn::Module* module;  // that computes it: the module or, with several devices, a replica
    Device device;       // the device of `module`
  };

  using ComputeLoss = std::function<Tensor(const Shard& shard)>;
  // Collective: one step on a global batch of so many samples. Calls compute_loss for each of this
  // rank's shards that has samples. compute_loss computes the sum of its samples' losses ([],
  // scaled if there is a GradScaler), calls backward once, and returns the sum.
  //
  // Afterwards each param.grad is the gradient of the mean over the global batch, whatever it was
  // before (zeros if no shard has reached the parameter). During the step its memory holds sums of
  // some of the shards. Returns the mean loss, with the same bits on all ranks.
  //
  // Throws Error inside a NoGradGuard, if a gradient is not finite, and with sync_batch_norm if a
  // shard has no sample. An exception of compute_loss ends the step on all ranks, which throw
  // the reason. Buffers are then what they were before the step, gradients are of no use, and the
  // ranks may go on. With sync_batch_norm the group ends, unless it is one rank. With several
  // devices compute_loss is called on several threads at once, and must use shard.module.
  double step(Int64 batch, const ComputeLoss& compute_loss);

  ShardRange own_shards() const { return tree_.own_shards(); }
  // Those of a global batch's rows that this rank needs.
  RowRange own_rows(Int64 batch) const { return rows_of(own_shards(), options_.shards, batch); }

  // The number of the next step, the same on all ranks: it names the shards' random numbers. They
  // count up from 0 on. Throws Error for a negative number and beyond 2^62.
  void set_step(Int64 step);
  // Sets a flag that travels with the next step. Afterwards flag() is true on all ranks if it was
  // set on any.
  void set_flag(Flag flag) { flag_ = flag; }
  bool flag() const { return any_flag_; }

  // Collective; see DistributedDataParallel.
  uint64_t check_identical() const;
  // With options.zero: see DistributedDataParallel.
  std::shared_ptr<const StepShare> step_share() const;
  // Returns the seconds of waiting for other ranks' gradients, in all steps.
  double waited_seconds() const { return gradients_->waited_seconds(); }

 private:
  struct ShardState;
  struct Replica {
    std::shared_ptr<nn::Module> own;  // none: the first one is the module itself
    nn::Module* module;
    Device device;
    std::vector<Tensor> buffers;
  };
  void add_replica(Device device);
  void replicate();
  void give_buffers(size_t replica, const std::vector<Tensor>& buffers);
  // Returns in `error` why this rank's shards have failed, if the step goes on without them.
  std::vector<ShardState> compute_shards(int64_t batch, const ComputeLoss& compute_loss,
                                         std::exception_ptr& error);
  void fail_shards(std::vector<ShardState>& states, const std::vector<Tensor>& before,
                   const std::exception_ptr& error);
  void compute_shard(ShardState& state, const Replica& replica, int64_t batch,
                     const ComputeLoss& compute_loss, ShardMeeting& meeting);
  ModuleState module_state() const;
  void check_module();
  std::vector<Tensor> bases_of(const std::vector<ShardState>& states);
  Tensor summary_of(const ShardState& state, const std::vector<Tensor>& bases) const;
  double take_in(const Tensor& total, const std::vector<Tensor>& bases,
                 const std::exception_ptr& error);

  nn::Module& module_;
  ProcessGroup& group_;
  const VirtualRanksOptions options_;
  const TreeAllReduce tree_;
  Device device_;
  std::unique_ptr<ModuleWatch> watch_;
  std::vector<Replica> replicas_;
  std::unique_ptr<ShardGradients> gradients_;
  bool flag_ = false;
  bool any_flag_ = false;
  const std::shared_ptr<const std::string> summary_ =
      std::make_shared<const std::string>("losses and buffers");
};

}  // namespace ringgrad
