// What `--parallel` and `--ranks` ask for, and what happens without them.
#pragma once

#include <memory>
#include <string>

#include "distributed/process_group.h"
#include "models/program/options.h"

namespace ringgrad::program {

// Throws UsageError for what cannot be, or contradicts itself.
void check_parallel_options(const TrainOptions& options);

// How many ranks train. Without a word about it: two, where there are two cores and the batch can be halved.
int ranks_for(const TrainOptions& options, int64_t batch);
// Throws UsageError, with the nearest values that do, unless the batch divides by the ranks.
void check_divisible(int64_t batch, int ranks);

// The device of a rank: the one that was asked for, or for "cuda" one GPU after the other, as far as they go.
Device device_of_rank(const TrainOptions& options, int local_rank);
// The group that reaches that device: nullptr where `host`, which must outlive it, does. Collective.
std::unique_ptr<ProcessGroup> group_on_device(ProcessGroup& host, Device device);

// How many devices DataParallel uses; 1: there is no DataParallel.
int replicas_for(const TrainOptions& options);

// "DDP, 2 ranks (ring over shm) · cpu, 1 thread per rank"
std::string describe_division(const TrainOptions& options, const ProcessGroup* group);

}  // namespace ringgrad::program
