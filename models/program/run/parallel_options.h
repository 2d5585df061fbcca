// What `--parallel` and `--ranks` ask for, and what happens without them.
#pragma once

#include <optional>
#include <string>

#include "ringgrad/distributed/init_process_group.h"
#include "ringgrad/models/program/run/options.h"

namespace ringgrad::program {

constexpr int kMaxRanks = 4096;  // as the launcher has it

// How a run divides its work, in the options' terms; ranks: replicas with dp.
struct DivisionOptions {
  std::string parallel;
  int ranks;
  bool sync_bn;
  std::string device;
  bool operator==(const DivisionOptions&) const = default;
};

// The options with what they leave open filled in from `before`: how the run that they continue was divided when it
// began. A launcher that has started this process (`launched`) decides about ranks instead.
TrainOptions complete(TrainOptions options, const std::optional<DivisionOptions>& before, bool launched);

// Of complete options. Throws UsageError for what cannot be, or contradicts itself.
void check_parallel_options(const TrainOptions& options);

// What complete options come to on so many ranks.
DivisionOptions division_of(const TrainOptions& options, int ranks);
std::string as_words(const DivisionOptions& division);  // "--parallel ddp --ranks 2 --device cpu"

// How many ranks train. Without a word about it: two, where there are two cores and the batch can be halved.
int ranks_for(const TrainOptions& options, int64_t batch);
// Throws UsageError, with the nearest values that do, unless the batch divides by the ranks.
void check_divisible(int64_t batch, int ranks);
// Throws UsageError where --sync-bn would leave a rank without an image in the last batch of an epoch: it cannot take
// part in the layers' sums.
void check_sync_bn(const TrainOptions& options, int64_t images, int64_t batch, int ranks);

// Throws UsageError on a --backend that there is not, or that does not go with --device.
void check_backend(const std::string& backend, const std::string& device);
// Whether this build connects processes that compute there: those with GPUs meet by NCCL.
bool connects_ranks_on(Device device);
// Throws, in the command's name, unless so many ranks on --device can meet by --backend: UsageError, DeviceError
// where there is no such device, NotImplementedError where this build does not connect them.
void check_ranks(const char* command, int ranks, const std::string& device, const std::string& backend);
// How ranks meet: by --backend, and on the GPU that --device names, if it names one.
InitOptions group_options_for(const std::string& device, const std::string& backend);

// How many devices DataParallel uses; 1: there is no DataParallel.
int replicas_for(const TrainOptions& options);

// "DDP, 2 ranks (shared memory) · cpu, 1 thread per rank"
std::string describe_division(const TrainOptions& options, const ProcessGroup* group);

}  // namespace ringgrad::program
