#include "models/program/parallel_options.h"

#include <algorithm>

#include <fmt/format.h>

#include "core/device_backend.h"
#ifdef RINGGRAD_NCCL
#include "distributed/nccl_process_group.h"
#endif
#include "models/program/exit_code.h"
#include "models/program/suggest.h"

namespace ringgrad::program {
namespace {

#if defined(RINGGRAD_NCCL) && !defined(RINGGRAD_CUDA_EMULATED)  // emulated, it connects threads only
constexpr bool kHasNccl = true;
#else
constexpr bool kHasNccl = false;
#endif

}  // namespace

void check_parallel_options(const TrainOptions& o) {
  const std::vector<std::string> methods = {"none", "dp", "ddp"};
  if (!o.parallel.empty() && std::find(methods.begin(), methods.end(), o.parallel) == methods.end())
    throw UsageError(fmt::format("--parallel is '{}', expected none, dp or ddp", o.parallel) +
                     did_you_mean(o.parallel, methods));
  if (o.parallel == "none" && o.ranks > 1)
    throw UsageError(fmt::format("--parallel none is one rank, and --ranks is {}; leave one of them out", o.ranks));
  if (!o.transport.empty() && o.transport != "shm" && o.transport != "tcp")
    throw UsageError(fmt::format("--transport is '{}', expected shm or tcp", o.transport));
  if (o.sync_bn && !o.parallel.empty() && o.parallel != "ddp")
    throw UsageError(fmt::format("--sync-bn needs --parallel ddp, not {}", o.parallel));
}

int ranks_for(const TrainOptions& options, int64_t batch) {
  const bool cpu = Device(options.device).is_cpu();
  if (options.ranks == 0 && options.parallel.empty()) return cpu && cpu_cores() >= 2 && batch % 2 == 0 ? 2 : 1;
  if (options.parallel == "none" || options.parallel == "dp") return 1;
  if (!cpu && !kHasNccl)
    throw UsageError(
        fmt::format("--parallel ddp on {} needs NCCL between processes, which this build lacks; use --device "
                    "cpu, or --parallel dp",
                    options.device));
  return options.ranks > 0 ? options.ranks : 2;
}

Device device_of_rank(const TrainOptions& options, int local_rank) {
  const Device wanted(options.device);
  return options.device == "cuda" ? Device(wanted.type, local_rank % std::max(1, device_count(wanted.type))) : wanted;
}

std::unique_ptr<ProcessGroup> group_on_device([[maybe_unused]] ProcessGroup& host, Device device) {
  if (host.reaches(device)) return nullptr;
#ifdef RINGGRAD_NCCL
  return std::make_unique<NcclProcessGroup>(std::shared_ptr<ProcessGroup>(&host, [](ProcessGroup*) {}), device);
#else
  return nullptr;
#endif
}

void check_divisible(int64_t batch, int ranks) {
  if (batch % ranks == 0) return;
  const int64_t below = batch / ranks * ranks, above = below + ranks;
  throw UsageError(fmt::format("--batch is the global batch; {} does not divide by {} ranks. Try {}{}.", batch, ranks,
                               below > 0 ? fmt::format("{} or ", below) : "", above));
}

int replicas_for(const TrainOptions& options) {
  if (options.parallel != "dp") return 1;
  return options.ranks > 0 ? options.ranks : 2;
}

std::string describe_division(const TrainOptions& options, const ProcessGroup* group) {
  const Device wanted(options.device);
  const std::string device =
      wanted.is_cpu() ? options.device
                      : fmt::format("{} ({})", options.device, device_backend(wanted.type).describe(wanted.index));
  if (options.parallel == "dp")
    return fmt::format("DataParallel, {} replicas · {}, {} threads", replicas_for(options), device, cpu_cores());
  if (!group) return fmt::format("{}, {} threads", device, cpu_cores());
  return fmt::format("DDP, {} ranks ({}) · {}, {} thread{} per rank", group->size(), group->backend(), device,
                     cpu_cores(), cpu_cores() == 1 ? "" : "s");
}

}  // namespace ringgrad::program
