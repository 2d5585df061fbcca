// How a step's work is divided: what options such as --parallel, --ranks and --device ask for, and
// what happens without them.
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

// --bucket-mb: megabytes, or these. Words for people and files: "4", "auto"; of them again: throws
// UsageError.
// As DistributedDataParallel has them.
inline constexpr double kUsualBuckets = 0;
// "auto": as its planner chooses after the first step.
inline constexpr double kPlannedBuckets = -1;
std::string bucket_words(double mb);
double bucket_mb_from(const std::string& words);
// What DistributedDataParallel is told for it. Collective where it measures.
void choose_buckets(double mb, ProcessGroup& group, ReducerOptions& options);

// As a command line asks for it, with the values that leave a question open; settled, every one
// says what is done.
struct ParallelConfig {
  std::string parallel = "";         // none, dp or ddp; "" : ddp where there are two cores
  int ranks = 0;                     // 0: two where there are two cores; dp: replicas
  std::optional<bool> sync_bn = {};  // ddp: batch norm over the whole global batch
  std::string device = "";           // "" : cpu
  // Between ranks, each of which adds up in an order of its own.
  std::string transport = "";        // "" : RINGGRAD_TRANSPORT
  std::string backend = "";          // "" : RINGGRAD_BACKEND, else as the device is
  double bucket_mb = kUsualBuckets;  // ddp: the buckets' cap

  // Virtual ranks, which decide the bits (virtual_ranks.h); 0: the ranks do.
  int shards = 0;
  // "MIN:MAX": as many ranks as there are, beginning with `ranks`; "": always so many.
  std::string elastic = "";
  // ZeRO: the stage, and so what of the training's state the ranks divide; 0: nothing.
  int zero = 0;
  // What backward computes again to save memory (nn/recompute.h): "blocks"; "auto:MB"; "": nothing.
  std::string recompute = "";

  bool one_process() const { return parallel == "none" || parallel == "dp"; }
  // Devices of this process; 1: no DataParallel.
  int replicas() const { return parallel == "dp" ? ranks : 1; }
  bool operator==(const ParallelConfig&) const = default;
};

// An option is declared in two places: in ParallelConfig, and as a row of this table. The command
// line and its help, config.json, what a run that goes on keeps, as_words() and the comparison of
// launched ranks go by the table.
struct ParallelConfigField {
  // An optional is a flag, and the number with a point the buckets' cap.
  using Member = std::variant<int ParallelConfig::*, double ParallelConfig::*,
                              std::optional<bool> ParallelConfig::*, std::string ParallelConfig::*>;
  enum Trait : unsigned {
    kForRanks = 1,  // one process may not be told it
    kSame = 2,      // of all ranks, whoever has launched them
    kKept = 4,      // by a run that goes on, where it is not given
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

// Fills in what is left open from `before`: how the run that is continued was divided when it
// began, if it is one and has said so. A launcher that has started this process (`launched`)
// decides about ranks instead.
ParallelConfig complete(ParallelConfig asked, const std::optional<ParallelConfig>& before,
                        bool launched);
// Throws UsageError for what cannot be, or contradicts itself.
void check_parallel_config(const ParallelConfig& complete);
// How many ranks train. Without a word about it: two, where there are two cores and the batch can
// be halved.
int ranks_for(const ParallelConfig& complete, int64_t batch);
// Throws UsageError unless it is MIN:MAX, or "" for a job that is not elastic, and the ranks are so
// many.
ElasticRange elastic_range(const ParallelConfig& parallel_config, int ranks);
// Bytes for the tensors of a process, where blocks are recomputed only as far as that needs; 0: all
// are, or none. Throws UsageError unless it is one of these words.
int64_t recompute_budget(const ParallelConfig& parallel_config);
// What it comes to on so many ranks.
ParallelConfig settle(const ParallelConfig& complete, int ranks);

// "--parallel ddp --ranks 2 … --device cpu --backend ring".
std::string as_words(const ParallelConfig& settled);
// "DDP, 2 ranks (shared memory) · cpu, 1 thread per rank"
std::string describe(const ParallelConfig& settled, const ProcessGroup* group);

// Throws UsageError, with the nearest values that do, unless the batch divides by the ranks.
void check_divisible(int64_t batch, int ranks);
// Throws UsageError unless each of so many ranks gets an image of every batch, all of them equally
// many; with --shards, each rank a shard, and each shard an image.
void check_parts(const ParallelConfig& settled, const Recipe& recipe, int ranks);
// Throws UsageError where --sync-bn would leave a rank or shard without an image in the last batch
// of an epoch: it cannot take part in the layers' sums.
void check_sync_bn(const ParallelConfig& settled, int64_t images, int64_t batch);

// Throws UsageError on a --backend that there is not, or that does not go with --device.
void check_backend(const std::string& backend, const std::string& device);
// Whether this build connects processes that compute there: those with GPUs meet by NCCL.
bool connects_ranks_on(Device device);
// Throws, in the command's name, unless so many ranks on --device can meet by --backend:
// UsageError, DeviceError where there is no such device, NotImplementedError where this build does
// not connect them.
void check_ranks(const char* command, int ranks, const std::string& device,
                 const std::string& backend);
// How ranks meet: by --backend, and on the GPU that --device names, if it names one.
InitOptions group_options_for(const std::string& device, const std::string& backend);

// Says how a job of ranks has ended, where it failed by itself, and returns its exit code.
int report_end(int code);

}  // namespace ringgrad::program
