#include "ringgrad/models/program/run/parallel_options.h"

#include <algorithm>

#include <fmt/format.h>

#include "ringgrad/core/device/device_backend.h"
#include "ringgrad/distributed/process_groups/backend.h"
#include "ringgrad/models/program/console/console.h"
#include "ringgrad/models/program/console/exit_code.h"

namespace ringgrad::program {
namespace {

constexpr int kMaxReplicas = 64;  // as many devices as there can be

}  // namespace

TrainOptions complete(TrainOptions o, const std::optional<DivisionOptions>& before, bool launched) {
  if (o.device.empty()) o.device = before ? before->device : "cpu";
  if (!before) return o;
  const bool silent = o.parallel.empty() && o.ranks == 0;
  if (!launched) {
    if (silent || (o.parallel.empty() && before->parallel == "dp")) o.parallel = before->parallel;
    if (o.ranks == 0 && o.parallel == before->parallel) o.ranks = before->ranks;
  }
  if (!o.sync_bn && (o.parallel.empty() || o.parallel == "ddp")) o.sync_bn = before->sync_bn;
  return o;
}

void check_parallel_options(const TrainOptions& o) {
  const std::vector<std::string> methods = {"none", "dp", "ddp"};
  if (!o.parallel.empty() && std::find(methods.begin(), methods.end(), o.parallel) == methods.end())
    throw UsageError(fmt::format("--parallel is '{}', expected none, dp or ddp", o.parallel) +
                     did_you_mean(o.parallel, methods));
  if (o.parallel == "none" && o.ranks > 1)
    throw UsageError(fmt::format("--parallel none is one rank, and --ranks is {}; leave one of them out", o.ranks));
  const int most = o.parallel == "dp" ? kMaxReplicas : kMaxRanks;
  if (o.ranks < 0 || o.ranks > most)
    throw UsageError(fmt::format("--ranks is {}, expected at most {}{}", o.ranks, most,
                                 o.parallel == "dp" ? " with --parallel dp" : ""));
  if (!o.transport.empty() && o.transport != "auto" && o.transport != "shm" && o.transport != "tcp")
    throw UsageError(fmt::format("--transport is '{}', expected auto, shm or tcp", o.transport));
  check_backend(o.backend, o.device);
  if ((o.parallel == "none" || o.parallel == "dp") && !(o.transport + o.backend).empty())
    throw UsageError(fmt::format("--{} is for ranks, and --parallel {} is one process; leave one of them out",
                                 o.backend.empty() ? "transport" : "backend", o.parallel));
  if (o.sync_bn.value_or(false) && !o.parallel.empty() && o.parallel != "ddp")
    throw UsageError(fmt::format("--sync-bn needs --parallel ddp, not {}", o.parallel));
}

void check_backend(const std::string& backend, const std::string& device) {
  if (backend.empty()) return;
  const std::vector<std::string> backends = {"ring", "mpi", "nccl", "nccl-ring"};
  if (std::find(backends.begin(), backends.end(), backend) == backends.end())
    throw UsageError(fmt::format("--backend is '{}', expected ring, mpi, nccl or nccl-ring", backend) +
                     did_you_mean(backend, backends));
  if (backend.starts_with("nccl") != Device(device).is_cuda())
    throw UsageError(
        fmt::format("--backend {} does not go with --device {}: nccl and nccl-ring connect GPUs, ring and "
                    "mpi CPUs",
                    backend, device));
}

bool connects_ranks_on(Device device) { 
  if (device.is_cpu()) return true;
  const GroupBackend* nccl = find_group_backend("nccl");
  return nccl && nccl->between_processes;
}

void check_ranks(const char* command, int ranks, const std::string& device, const std::string& backend) {
  check_backend(backend, device);
  check_device(command, Device(device));
  if (ranks > 1 && !connects_ranks_on(Device(device)))
    throw NotImplementedError(fmt::format(
        "{}: ranks on {} need NCCL between processes, which this build lacks; use --device cpu", command, device));
}

int ranks_for(const TrainOptions& options, int64_t batch) {
  const bool cpu = Device(options.device).is_cpu();
  if (options.ranks == 0 && options.parallel.empty()) return cpu && cpu_cores() >= 2 && batch % 2 == 0 ? 2 : 1;
  if (options.parallel == "none" || options.parallel == "dp") return 1;
  if (!connects_ranks_on(Device(options.device)))
    throw NotImplementedError(
        fmt::format("--parallel ddp on {} needs NCCL between processes, which this build lacks; use --device "
                    "cpu, or --parallel dp",
                    options.device));
  return options.ranks > 0 ? options.ranks : 2;
}

InitOptions group_options_for(const std::string& device, const std::string& backend) {
  const Device named(device);
  InitOptions options;
  options.backend = backend.empty() ? default_backend(named) : backend;
  if (named.is_cuda() && device != "cuda") options.device = named;
  return options;
}

void check_divisible(int64_t batch, int ranks) {
  if (batch % ranks == 0) return;
  const int64_t below = batch / ranks * ranks, above = below + ranks;
  throw UsageError(fmt::format("--batch is the global batch; {} does not divide by {} ranks. Try {}{}.", batch, ranks,
                               below > 0 ? fmt::format("{} or ", below) : "", above));
}

DivisionOptions division_of(const TrainOptions& options, int ranks) {
  const int replicas = replicas_for(options);
  if (ranks == 1 && replicas > 1) return {"dp", replicas, false, options.device};
  return {ranks > 1 ? "ddp" : "none", ranks, ranks > 1 && options.sync_bn.value_or(false), options.device};
}

std::string as_words(const DivisionOptions& d) {
  return fmt::format("--parallel {} --ranks {}{} --device {}", d.parallel, d.ranks, d.sync_bn ? " --sync-bn" : "",
                     d.device);
}

void check_sync_bn(const TrainOptions& options, int64_t images, int64_t batch, int ranks) {
  const int64_t last = images % batch;
  if (options.sync_bn.value_or(false) && last > 0 && last < ranks)
    throw UsageError(fmt::format(
        "--sync-bn needs an image on every rank, and of {} images in batches of {} the last batch has {} for "
        "{} ranks; choose another --batch, or leave --sync-bn out",
        images, batch, last, ranks));
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
