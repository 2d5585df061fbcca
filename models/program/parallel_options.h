// What `--parallel` and `--ranks` ask for, and what happens without them.
#pragma once

#include <string>

#include "distributed/launch.h"
#include "models/program/options.h"

namespace ringgrad::program {

// Throws UsageError for what cannot be, or contradicts itself.
void check_parallel_options(const TrainOptions& options);

// How many ranks train. Without a word about it: two, where there are two cores and the batch can be halved.
int ranks_for(const TrainOptions& options, int64_t batch);
// Throws UsageError, with the nearest values that do, unless the batch divides by the ranks.
void check_divisible(int64_t batch, int ranks);

// How ranks meet that train: by --backend, and on the GPU that --device names, if it names one.
LaunchOptions launch_options_for(const TrainOptions& options);

// How many devices DataParallel uses; 1: there is no DataParallel.
int replicas_for(const TrainOptions& options);

// "DDP, 2 ranks (ring over shm) · cpu, 1 thread per rank"
std::string describe_division(const TrainOptions& options, const ProcessGroup* group);

}  // namespace ringgrad::program
