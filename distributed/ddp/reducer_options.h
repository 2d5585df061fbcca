// The options of the Reducer, and its log: when each bucket of a step was ready, launched and
// complete on this rank.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ringgrad/distributed/buckets/bucket_plan.h"
#include "ringgrad/distributed/comm_hook.h"
#include "ringgrad/distributed/ddp/contribution.h"

namespace ringgrad {

// A gradient, or a bucket of them, and the second since backward began in which it was complete.
struct ReadyGradient {
  int64_t bytes;
  double seconds;
};
// Chooses caps by a step's gradients, in the order in which they were ready; see
// distributed/planner/.
using BucketPlanner = std::function<BucketCaps(const std::vector<ReadyGradient>& gradients)>;

struct ReducerOptions {
  BucketCaps caps = {};
  // Undefined: `caps` stay. Else rank 0's chooses others after the first step, for all ranks.
  BucketPlanner planner = {};
  // Undefined means the plain average. It must be the same on all ranks, which compare its type.
  CommHook comm_hook = {};
  // Throw, naming rank and parameter, if a gradient is NaN or infinite, or becomes so in the form
  // in which it travels. On the CPU this happens at once; finite_check.h says when on a GPU. Turn
  // it off if a loss scale (GradScaler) makes such gradients normal.
  bool check_finite = true;
  // It must be the same on all ranks.
  Weighting weighting = Weighting::Samples;
  // The usual weight of a rank, c in Note [Weights] (contribution.h). 0 stands for the largest
  // weight of the first step that has any. It is the same on all ranks. If gradients travel in 16
  // bits or through a hook, each step's largest weight is used instead.
  double usual_weight = 0;
  // Names of parameters and buffers that are this rank's own: not broadcast, averaged or compared,
  // and of any shape.
  std::vector<std::string> ignore = {};
  // False: all buffers are this rank's own.
  bool broadcast_buffers = true;
  // ZeRO, for ShardedOptimizer (sharded_optimizer.h); 0: every rank has all gradients. 1: after
  // backward a rank has the average of its slices alone, and each param.grad is undefined. The
  // optimizer's zero_grad() must come before every step's first backward. 2: only those slices keep
  // memory, too (on CPUs). Not with a communication hook.
  int zero = 0;
  // Off: all buckets are launched after backward, to measure the gain of overlap.
  bool overlap = true;
  // On a GPU, which works behind the host: wait for it wherever the log notes a time, which else is
  // the host's. Slower.
  bool exact_times = false;
};

// Times are seconds since this rank's backward began. `ready` minus the same of another rank tells
// slow computation; `completed` minus the last rank's `launched` tells a slow network.
struct BucketLog {
  int64_t bytes = 0;
  std::shared_ptr<const std::string> parameters;  // "conv2.weight conv1.weight"
  double ready = 0;                               // its last gradient was complete
  double launched = 0;                            // its all-reduce was issued
  double completed = 0;                           // and done
};

struct ReductionLog {
  int64_t step = -1;
  // In the order of launching.
  std::vector<BucketLog> buckets;
  // The time at which the last gradient of this rank was complete.
  double computed = 0;
  // The time at which the gradients were averaged.
  double finished = 0;
  // The time that overlap did not hide.
  double exposed() const { return finished - computed; }
};

// Over all steps so far.
struct ReductionTotals {
  int64_t steps = 0;
  int64_t bytes = 0;  // the gradients that were averaged
  double exposed_seconds = 0;
  int64_t plans = 0;  // 2 if the observed order differed from the expected one
};

}  // namespace ringgrad
