#include "ringgrad/program/run/parallel_config.h"

#include <algorithm>
#include <charconv>

#include "ringgrad/core/base/environment.h"
#include "ringgrad/core/device/device_backend.h"
#include "ringgrad/distributed/agreement/transport_names.h"
#include "ringgrad/distributed/ddp/reducer_options.h"
#include "ringgrad/distributed/planner/bucket_planner.h"
#include "ringgrad/distributed/vendor_groups/backend.h"
#include "ringgrad/program/console/console.h"
#include "ringgrad/program/console/exit_code.h"

namespace ringgrad::program {
namespace {

constexpr int kMaxReplicas = 64;  // as many devices as there can be

void check_name(const char* option, const std::string& name, const std::vector<std::string>& known,
                const char* expected) {
  if (std::find(known.begin(), known.end(), name) == known.end())
    throw UsageError("{} is '{}', expected {}{}", option, name, expected,
                     did_you_mean(name, known));
}

ElasticRange parse_elastic(const std::string& text) {
  ElasticRange range;
  const char* end = text.data() + text.size();
  const auto low = std::from_chars(text.data(), end, range.min);
  const bool split = low.ec == std::errc() && low.ptr != end && *low.ptr == ':';
  const auto high = split ? std::from_chars(low.ptr + 1, end, range.max) : low;
  if (!split || high.ec != std::errc() || high.ptr != end || range.min < 1 || range.max > kMaxRanks)
    throw UsageError("--elastic is '{}', expected MIN:MAX, two numbers from 1 to {} such as 1:4",
                     text, kMaxRanks);
  if (range.min > range.max)
    throw UsageError("--elastic is {}: at least {} ranks are more than at most {}", text, range.min,
                     range.max);
  return range;
}

}  // namespace

std::string bucket_words(double mb) {
  return mb == kPlannedBuckets ? "auto" : fmt::format("{}", mb);
}

double bucket_mb_from(const std::string& words) {
  if (words == "auto") return kPlannedBuckets;
  double mb = 0;
  const char* end = words.data() + words.size();
  const auto [stop, error] = std::from_chars(words.data(), end, mb);
  if (error == std::errc() && stop == end && mb >= 0.001 && mb <= 1e6) return mb;
  throw UsageError("--bucket-mb is '{}', expected megabytes from 0.001 to 1e6, or auto", words);
}

void choose_buckets(double mb, ProcessGroup& group, ReducerOptions& options) {
  if (mb == kPlannedBuckets)
    options.planner = plan_by_measuring(group);
  else if (mb > 0)
    options.caps.bytes = options.caps.first_bytes =
        std::max<int64_t>(1, static_cast<int64_t>(mb * 1e6));
}

const std::vector<ParallelConfigField>& parallel_config_fields() {
  using D = ParallelConfig;
  using enum ParallelConfigField::Trait;
  static const std::vector<ParallelConfigField> fields = {
      {"bucket_mb", &D::bucket_mb, kForRanks | kSame | kKept | kLater,
       "ddp: largest bucket in MB, or auto: measured (default: 25, the first one 1)"},
      {"parallel", &D::parallel, 0, "none, dp or ddp (default: ddp where there are two cores)"},
      {"ranks", &D::ranks, kFromOne,
       "processes that share each batch, or devices with dp (default: 2)"},
      {"shards", &D::shards, kSame | kKept | kLater | kFromOne,
       "parts of each batch; same bits on any number of ranks"},
      {"elastic", &D::elastic, kForRanks | kLater,
       "MIN:MAX: let the number of ranks change; one that dies is replaced, and its step is done "
       "again"},
      {"backend", &D::backend, kForRanks | kLater,
       "between ranks: ring or mpi; on GPUs nccl, "
       "or nccl-ring for our ring over NCCL's send and receive"},
      {"transport", &D::transport, kForRanks | kLater,
       "between ranks: " + transport_choices("auto (the fastest for each pair)")},
      {"zero", &D::zero, kForRanks | kSame | kKept | kLater,
       "ranks keep a part each: 1: of the optimizer's state, 2: of the gradients, too (ZeRO)"},
      {"recompute", &D::recompute, kKept | kLater,
       "save memory: backward computes activations again, of every block (blocks), or of as many "
       "as keep tensors within auto:MB"},
      {"sync_bn", &D::sync_bn, kSame, "ddp: batch norm over the whole global batch"},
      {"device", &D::device, kKept},
  };
  return fields;
}

const ParallelConfigField& parallel_config_field(const std::string& name) {
  const auto& fields = parallel_config_fields();
  return *std::find_if(fields.begin(), fields.end(),
                       [&](const ParallelConfigField& field) { return field.name == name; });
}

std::string ParallelConfigField::option() const { return option_of(name); }

std::string ParallelConfigField::words(const ParallelConfig& d) const {
  const auto of = [&]<class T>(T ParallelConfig::*m) -> std::string {
    const T& value = d.*m;
    if constexpr (std::is_same_v<T, std::optional<bool>>)
      return value.value_or(false) ? option() : "";
    else if (value == ParallelConfig{}.*m)
      return "";
    else if constexpr (std::is_same_v<T, double>)
      return option() + ' ' + bucket_words(value);
    else
      return fmt::format("{} {}", option(), value);
  };
  return std::visit(of, member);
}

void ParallelConfigField::copy(const ParallelConfig& from, ParallelConfig& to) const {
  std::visit([&](auto m) { to.*m = from.*m; }, member);
}

ParallelConfig complete(ParallelConfig d, const std::optional<ParallelConfig>& before,
                        bool launched) {
  if (before) {
    if (!before->elastic.empty() && d.elastic.empty() && d.parallel.empty() && d.ranks == 0) {
      d.elastic = before->elastic;
      d.ranks = before->ranks;
    }
    const bool silent = d.parallel.empty() && d.ranks == 0;
    if (!launched) {
      if (silent || (d.parallel.empty() && before->parallel == "dp")) d.parallel = before->parallel;
      if (d.ranks == 0 && d.parallel == before->parallel) d.ranks = before->ranks;
    }
    for (const ParallelConfigField& field : parallel_config_fields())
      if ((field.traits & ParallelConfigField::kKept) && field.words(d).empty() &&
          !(d.one_process() && (field.traits & ParallelConfigField::kForRanks)))
        field.copy(*before, d);
    if (!d.sync_bn && (!d.one_process() || d.shards > 0)) d.sync_bn = before->sync_bn;
  }
  if (d.device.empty()) d.device = "cpu";
  if (before && d.shards != before->shards)
    throw UsageError(
        "--shards is {}, and the run began {}; they decide its bits, so leave --shards out",
        d.shards, before->shards ? fmt::format("with {}", before->shards) : "without");
  if (d.parallel == "dp" && d.ranks == 0) d.ranks = 2;
  if (d.one_process()) return d;
  // An environment variable counts like an option, because a launcher sets it.
  const bool ranks_before = before && !before->one_process();
  if (d.transport.empty())
    d.transport = ranks_before && variable("RINGGRAD_TRANSPORT").empty() ? before->transport
                                                                         : default_transport();
  const bool may_keep =
      ranks_before && Device(before->device).is_cpu() == Device(d.device).is_cpu();
  if (d.backend.empty())
    d.backend = may_keep && variable("RINGGRAD_BACKEND").empty()
                    ? before->backend
                    : default_backend(Device(d.device));
  return d;
}

void check_parallel_config(const ParallelConfig& d) {
  const bool dp = d.parallel == "dp";
  if (!d.parallel.empty())
    check_name("--parallel", d.parallel, {"none", "dp", "ddp"}, "none, dp or ddp");
  if (d.parallel == "none" && d.ranks > 1)
    throw UsageError("--parallel none is one rank, and --ranks is {}; leave one of them out",
                     d.ranks);
  if (const int most = dp ? kMaxReplicas : kMaxRanks; d.ranks < 0 || d.ranks > most)
    throw UsageError("--ranks is {}, expected at most {}{}", d.ranks, most,
                     dp ? " with --parallel dp" : "");
  if (d.shards < 0 || d.shards > kMaxShards)
    throw UsageError("--shards is {}, expected 1 to {}", d.shards, kMaxShards);
  if (d.sync_bn.value_or(false) && !d.parallel.empty() && d.parallel != "ddp" &&
      (d.shards == 0 || dp))
    throw UsageError("--sync-bn needs --parallel ddp, not {}", d.parallel);
  if (!d.transport.empty() && !is_transport(d.transport))
    throw UsageError("--transport is '{}', expected {}", d.transport, transport_choices());
  if (d.bucket_mb != kPlannedBuckets && !(d.bucket_mb >= 0 && d.bucket_mb <= 1e6))
    throw UsageError("--bucket-mb is {}, expected up to 1e6, or auto", d.bucket_mb);
  check_backend(d.backend, d.device);
  (void)recompute_budget(d);
  if (d.zero < 0 || d.zero > 2)
    throw UsageError("--zero is {}, expected 1 or 2 (or 0: off)", d.zero);
  if (d.zero > 0 && !d.elastic.empty())
    throw UsageError(
        "--zero {} and --elastic exclude each other: a lost rank takes its part of the "
        "optimizer's state along; leave one of them out",
        d.zero);
  for (const ParallelConfigField& field : parallel_config_fields())
    if ((field.traits & ParallelConfigField::kForRanks) && d.one_process() &&
        !field.words(d).empty())
      throw UsageError("{} is for ranks, and --parallel {} is one process; leave one of them out",
                       field.option(), d.parallel);
  if (!d.elastic.empty() &&
      (!Device(d.device).is_cpu() || (!d.backend.empty() && d.backend != "ring")))
    throw UsageError(
        "--elastic is for ranks on CPUs that the ring connects, not for --device {} --backend {}",
        d.device, d.backend);
  if (!d.elastic.empty()) (void)elastic_range(d, d.ranks > 0 ? d.ranks : ranks_for(d, 0));
}

int64_t recompute_budget(const ParallelConfig& d) {
  if (d.recompute.empty() || d.recompute == "blocks") return 0;
  const std::string_view words = d.recompute;
  double mb = 0;
  const char* end = words.data() + words.size();
  const size_t skipped = words.starts_with("auto:") ? 5 : 0;
  const auto [stop, error] = std::from_chars(words.data() + skipped, end, mb);
  if (skipped > 0 && error == std::errc() && stop == end && mb >= 1 && mb <= 1e9)
    return static_cast<int64_t>(mb * 1e6);
  throw UsageError("--recompute is '{}', expected blocks, or auto:MB with 1 to 1e9 megabytes",
                   words);
}

ElasticRange elastic_range(const ParallelConfig& d, int ranks) {
  if (d.elastic.empty()) return {};
  const ElasticRange range = parse_elastic(d.elastic);
  if (ranks < range.min || ranks > range.max)
    throw UsageError(
        "--ranks is {}, and --elastic {}: the job begins with a number of ranks that it allows",
        ranks, d.elastic);
  return range;
}

int ranks_for(const ParallelConfig& d, int64_t batch) {
  const Device device(d.device);
  if (d.ranks == 0 && !d.elastic.empty()) {
    const ElasticRange range = parse_elastic(d.elastic);
    return std::clamp(2, range.min, range.max);
  }
  if (d.ranks == 0 && d.parallel.empty()) {
    const bool divides = d.shards > 0 ? d.shards > 1 : batch % 2 == 0;
    return device.is_cpu() && cpu_cores() >= 2 && divides ? 2 : 1;
  }
  if (d.one_process()) return 1;
  if (!connects_ranks_on(device))
    throw NotImplementedError(
        fmt::format("--parallel ddp on {} needs NCCL between processes, which this build lacks; "
                    "use --device cpu, or --parallel dp",
                    d.device));
  return d.ranks > 0 ? d.ranks : 2;
}

ParallelConfig settle(const ParallelConfig& asked, int ranks) {
  ParallelConfig d = asked;
  const bool dp = ranks == 1 && d.replicas() > 1;
  const bool alone = ranks == 1 && d.elastic.empty() && !dp;
  for (const ParallelConfigField& field : parallel_config_fields())
    if ((field.traits & ParallelConfigField::kForRanks) && (dp || alone)) field.copy({}, d);
  d.parallel = dp ? "dp" : alone ? "none" : "ddp";
  if (!dp) d.ranks = ranks;
  d.sync_bn = d.sync_bn.value_or(false) && !dp && (!alone || d.shards > 0);
  return d;
}

std::string as_words(const ParallelConfig& d) {
  std::string all;
  for (const ParallelConfigField& field : parallel_config_fields())
    if (const std::string words = field.words(d); !words.empty())
      all += (all.empty() ? "" : " ") + words;
  return all;
}

std::string describe(const ParallelConfig& d, const ProcessGroup* group) {
  const Device wanted(d.device);
  const std::string device =
      wanted.is_cpu()
          ? d.device
          : fmt::format("{} ({})", d.device, device_backend(wanted.type).describe(wanted.index));
  const std::string threads = counted(cpu_cores(), "thread");
  const std::string shards = d.shards > 0 ? counted(d.shards, "shard") + " · " : "";
  if (d.parallel == "dp")
    return fmt::format("DataParallel, {} · {}{}, {}", counted(d.ranks, "replica"), shards, device,
                       threads);
  if (d.ranks == 1 && d.elastic.empty()) return fmt::format("{}{}, {}", shards, device, threads);
  return fmt::format("DDP, {}{} ({}) · {}{}, {} per rank", counted(group->size(), "rank"),
                     d.elastic.empty() ? "" : " of " + d.elastic, group->backend(), shards, device,
                     threads);
}

void check_divisible(int64_t batch, int ranks) {
  if (batch % ranks == 0) return;
  const int64_t below = batch / ranks * ranks;
  const int64_t above = below + ranks;
  throw UsageError("--batch is the global batch; {} does not divide by {} ranks. Try {}{}.", batch,
                   ranks, below > 0 ? fmt::format("{} or ", below) : "", above);
}

void check_parts(const ParallelConfig& d, const Recipe& recipe, int now) {
  const int ranks = std::max(now, elastic_range(d, now).max);  // that there may be
  // Without --shards an elastic job has as many parts as ranks.
  const std::string parts =
      d.shards > 0 ? fmt::format("--shards {}", d.shards) : "--elastic " + d.elastic;
  if (d.shards == 0 && d.elastic.empty()) return check_divisible(recipe.batch, ranks);
  if (const int workers = std::max(ranks, d.replicas()); d.shards > 0 && d.shards < workers)
    throw UsageError("--shards is {}, and there are {} {}: each needs a shard at least", d.shards,
                     workers, d.replicas() > 1 ? "replicas" : "ranks");
  if (d.replicas() > 1 && recipe.dtype == "fp16")
    throw UsageError(
        "--dtype fp16 scales the loss on one device, and --shards {} with --parallel "
        "dp has a loss on each",
        d.shards);
  if (d.zero > 0 && recipe.clip_norm > 0 && recipe.amp == "O2")
    throw UsageError(
        "--zero {} and {} with --clip-norm and --amp O2: the norm of divided float32 gradients "
        "depends on the number of ranks, and --shards' bits must not; leave one of them out",
        d.zero, parts);
  if (recipe.batch < std::max(d.shards, ranks))
    throw UsageError("{}, and --batch {}: each {} needs an image at least", parts, recipe.batch,
                     d.shards > 0 ? "shard" : "rank");
  if (recipe.accumulate > 1 && !d.elastic.empty())
    throw UsageError(
        "--accumulate {} with --elastic {}: shards come one after the other already; "
        "give --batch {} instead",
        recipe.accumulate, d.elastic, recipe.step_batch());
  if (recipe.accumulate > 1 && *d.sync_bn)
    throw UsageError(
        "--accumulate {} with --shards {} and --sync-bn: "
        "batch norm would see all of the batches at once; give --batch {} instead",
        recipe.accumulate, d.shards, recipe.step_batch());
}

void check_sync_bn(const ParallelConfig& d, int64_t images, int64_t batch) {
  const int64_t last = images % batch;
  const int64_t parts = d.shards > 0 ? d.shards : std::max(d.ranks, elastic_range(d, d.ranks).max);
  const char* part = d.shards > 0 ? "shard" : "rank";
  if (*d.sync_bn && last > 0 && last < parts)
    throw UsageError(
        "--sync-bn needs an image on every {}, and of {} images in batches of {} the last batch "
        "has {} for {} {}s; choose another --batch, or leave --sync-bn out",
        part, images, batch, last, parts, part);
}

void check_backend(const std::string& backend, const std::string& device) {
  if (backend.empty()) return;
  check_name("--backend", backend, {"ring", "mpi", "nccl", "nccl-ring"},
             "ring, mpi, nccl or nccl-ring");
  if (backend.starts_with("nccl") != Device(device).is_cuda())
    throw UsageError(
        "--backend {} does not go with --device {}: "
        "nccl and nccl-ring connect GPUs, ring and mpi CPUs",
        backend, device);
}

bool connects_ranks_on(Device device) {
  if (device.is_cpu()) return true;
  const GroupBackend* nccl = find_group_backend("nccl");
  return nccl && nccl->between_processes;
}

void check_ranks(const char* command, int ranks, const std::string& device,
                 const std::string& backend) {
  check_backend(backend, device);
  check_device(command, Device(device));
  if (ranks > 1 && !connects_ranks_on(Device(device)))
    throw NotImplementedError(fmt::format(
        "{}: ranks on {} need NCCL between processes, which this build lacks; use --device cpu",
        command, device));
}

InitOptions group_options_for(const std::string& device, const std::string& backend) {
  const Device named(device);
  InitOptions options;
  options.backend = backend.empty() ? default_backend(named) : backend;
  if (named.is_cuda() && device != "cuda") options.device = named;
  return options;
}

int report_end(int code) {
  if (code != kOk && code < 128) complain(failure_line(code));
  return code;
}

}  // namespace ringgrad::program
