// ParallelConfig: how the work of a step is divided over ranks or devices. It holds the options
// --parallel, --ranks, --device and others, and fills in the defaults.
#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "ringgrad/distributed/init_process_group.h"
#include "ringgrad/distributed/job/job_members.h"
#include "ringgrad/program/run/recipe.h"

namespace ringgrad {
struct ReducerOptions;
}

namespace ringgrad::program {

constexpr int kMaxRanks = 4096;  // as the launcher has it
constexpr int kMaxShards = kMaxRanks;

// --bucket-mb is a number of megabytes, or one of these two.
// The default buckets of DistributedDataParallel.
inline constexpr double kUsualBuckets = 0;
// "auto": the planner chooses after the first step.
inline constexpr double kPlannedBuckets = -1;
// Writes it for people and files: "4", "auto".
std::string bucket_words(double mb);
// Reads it; throws UsageError.
double bucket_mb_from(const std::string& words);
// Sets the options of DistributedDataParallel for --bucket-mb. Collective if it measures.
void choose_buckets(double mb, ProcessGroup& group, ReducerOptions& options);

// The values may leave a question open, as on a command line. After settle() every value says what
// is done.
struct ParallelConfig {
  std::string parallel = "";         // none, dp or ddp; "": ddp if there are two cores
  int ranks = 0;                     // 0: two if there are two cores; dp: replicas
  std::optional<bool> sync_bn = {};  // ddp: batch norm over the whole global batch
  std::string device = "";           // "" : cpu
  // What connects ranks. Each choice adds in an order of its own, so the bits differ.
  std::string transport = "";        // "" : RINGGRAD_TRANSPORT
  std::string backend = "";          // "" : RINGGRAD_BACKEND, else as the device is
  double bucket_mb = kUsualBuckets;  // ddp: the buckets' cap

  // Virtual ranks, which decide the bits (virtual_ranks.h); 0: the ranks do.
  int shards = 0;
  // "MIN:MAX": the number of ranks may change, beginning with `ranks`. "": it may not.
  std::string elastic = "";
  // The stage of ZeRO, which says what part of the state the ranks divide; 0: none.
  int zero = 0;
  // The blocks that backward computes again to save memory (nn/recompute.h): "blocks" for all;
  // "auto:MB" for as many as needed; "" for none.
  std::string recompute = "";

  bool one_process() const { return parallel == "none" || parallel == "dp"; }
  // Returns the number of this process's devices; 1: no DataParallel.
  int replicas() const { return parallel == "dp" ? ranks : 1; }
  bool operator==(const ParallelConfig&) const = default;
};

// An option is declared in two places: in ParallelConfig, and as a row of the table that
// parallel_config_fields() returns. The command line and its help, config.json, the options that a
// resumed run keeps, as_words() and the comparison of launched ranks use the table.
struct ParallelConfigField {
  // An optional is a flag, and the number with a point the buckets' cap.
  using Member = std::variant<int ParallelConfig::*, double ParallelConfig::*,
                              std::optional<bool> ParallelConfig::*, std::string ParallelConfig::*>;
  enum Trait : unsigned {
    kForRanks = 1,  // one process may not be told it
    kSame = 2,      // must be the same on all ranks, whichever program has launched them
    kKept = 4,      // kept by a resumed run, if it is not given
    kLater = 8,     // a run that lacks it in config.json is from before it, which is not reported
    kFromOne = 16,  // a number that cannot be 0, which leaves it open
  };

  std::string name;  // in JSON
  Member member;
  unsigned traits;
  std::string help = {};  // "" : that of other commands (add_device_option)

  std::string option() const;  // "--bucket-mb"
  std::string words(
      const ParallelConfig& parallel_config) const;  // "--bucket-mb auto"; "" : it is left open
  void copy(const ParallelConfig& from, ParallelConfig& to) const;
};
const std::vector<ParallelConfigField>& parallel_config_fields();
const ParallelConfigField& parallel_config_field(
    const std::string& name);  // REQUIRES: there is one

// Fills open values in from `before`, the configuration with which a resumed run began, if it has
// recorded one. If a launcher has started this process (`launched`), the launcher decides about
// ranks instead.
ParallelConfig complete(ParallelConfig asked, const std::optional<ParallelConfig>& before,
                        bool launched);
// Throws UsageError for values that are impossible or contradict each other.
void check_parallel_config(const ParallelConfig& complete);
// Returns the number of ranks that train. By default that is two, if there are two cores and the
// batch can be halved.
int ranks_for(const ParallelConfig& complete, int64_t batch);
// Throws UsageError unless it is MIN:MAX with the ranks in between, or "" for a job that is not
// elastic.
ElasticRange elastic_range(const ParallelConfig& parallel_config, int ranks);
// Returns the bytes for the tensors of a process, if blocks are recomputed only as far as that
// limit needs. Returns 0 if all blocks are recomputed, or none. Throws UsageError for an invalid
// value.
int64_t recompute_budget(const ParallelConfig& parallel_config);
// Returns the settled configuration for so many ranks, with all defaults filled in.
ParallelConfig settle(const ParallelConfig& complete, int ranks);

// Returns "--parallel ddp --ranks 2 … --device cpu --backend ring".
std::string as_words(const ParallelConfig& settled);
// Returns "DDP, 2 ranks (shared memory) · cpu, 1 thread per rank".
std::string describe(const ParallelConfig& settled, const ProcessGroup* group);

// Throws UsageError, with the nearest values that do, unless the batch divides by the ranks.
void check_divisible(int64_t batch, int ranks);
// Throws UsageError unless every batch can be divided equally. Each rank must get an image of it;
// with --shards, each rank a shard, and each shard an image.
void check_parts(const ParallelConfig& settled, const Recipe& recipe, int ranks);
// Throws UsageError if --sync-bn would leave a rank or shard without an image in the last batch of
// an epoch, because it could not take part in the layers' sums.
void check_sync_bn(const ParallelConfig& settled, int64_t images, int64_t batch);

// Throws UsageError on a --backend that there is not, or that does not go with --device.
void check_backend(const std::string& backend, const std::string& device);
// Returns true if this build can connect processes on that device. Those with GPUs use NCCL.
bool connects_ranks_on(Device device);
// Throws if so many ranks on --device cannot be connected by --backend; the error begins with the
// command's name. Throws UsageError, DeviceError if there is no such device, NotImplementedError if
// this build does not connect such ranks.
void check_ranks(const char* command, int ranks, const std::string& device,
                 const std::string& backend);
// Returns the options of the group, with --backend and the GPU that --device names, if it names
// one.
InitOptions group_options_for(const std::string& device, const std::string& backend);

// If a job of ranks failed by itself, prints how it ended. Returns its exit code.
int report_end(int code);

}  // namespace ringgrad::program
