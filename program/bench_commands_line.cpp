// The command line of `bench …`, and the options that it shares with other commands.
#include <algorithm>

#include <fmt/format.h>

#include "ringgrad/data/datasets/program_command.h"
#include "ringgrad/distributed/rendezvous/connect.h"
#include "ringgrad/program/bench/bench.h"
#include "ringgrad/program/command_line_parts.h"
#include "ringgrad/program/commands/commands.h"

namespace ringgrad::program {
namespace {

std::string check_device_name(const std::string& name) {
  const size_t colon = std::min(name.find(':'), name.size());
  const std::string type = name.substr(0, colon), number = name.substr(colon);  // ":0"
  const bool numbered = number.size() >= 2 && number.size() <= 5 &&
                        number.find_first_not_of("0123456789", 1) == std::string::npos;
  return (type == "cpu" || type == "cuda") && (number.empty() || numbered)
             ? ""
             : fmt::format("'{}', expected cpu or cuda", name);
}

}  // namespace

void add_device_option(CLI::App* app, std::string& device) {
  app->add_option("--device", device, "cpu (the default) or cuda")->check(check_device_name);
}
void add_backend_option(CLI::App* app, std::string& backend) {
  app->add_option("--backend", backend,
                  "between ranks: ring or mpi; on GPUs nccl, "
                  "or nccl-ring for our ring over NCCL's send and receive");
}

namespace {

void add_bench_train(CLI::App& bench, Run& run) {
  auto* app = bench.add_subcommand("train", "What a training step costs, on synthetic data");
  auto& o = options_of(app, bench_train, run);
  app->option_defaults()->always_capture_default();  // --help shows them
  app->add_option("--model", o.model, "as for train");
  add_device_option(app, o.device);
  app->add_option("--batch", o.batch, "images of a step")->check(kPositive);
  app->add_option("--dtype", o.dtype, "fp32, bf16 or fp16, of the images; parameters stay float32");
  app->add_option("--conv", o.conv, "auto, direct or winograd");
  app->add_option("--provider", o.provider, recipe_field("provider").help);
  app->add_option("--float32-matmul-precision", o.float32_matmul_precision,
                  recipe_field("float32_matmul_precision").help);
  app->add_option("--threads", o.threads, "of the processor")
      ->default_str("one per core")
      ->check(kPositive);
  app->add_option("--steps", o.steps, "timed steps")->check(kPositive);
  app->add_option("--warm-up", o.warm_up, "steps before them")->check(kNotNegative);
  app->add_flag("--profile", o.profile,
                "then as many steps again: each kernel's time, and what the machine allows");
}

void add_bench_ddp(CLI::App& bench, Run& run) {
  auto* app = bench.add_subcommand(
      "ddp", "DataParallel and DistributedDataParallel on the same batch and cores");
  auto& o = options_of(app, bench_ddp, run);
  app->option_defaults()->always_capture_default();  // --help shows them
  app->add_option("--model", o.model, "as for train");
  app->add_option("--batch", o.batch, "images of a step, of all ranks together")->check(kPositive);
  app->add_option("--ranks", o.ranks, "ranks, or devices of dp")->check(CLI::Range(1, 64));
  add_device_option(app, o.device);
  add_backend_option(app, o.backend);
  app->add_option("--seconds", o.seconds, "of each row and round")->check(CLI::Range(0.01, 1000.0));
  app->add_option("--rounds", o.rounds, "the rows take turns so often")->check(kPositive);
  app->add_option("--bucket-mb", o.buckets,
                  "the buckets' cap, or auto; several, as auto,0.25,1: a row for each")
      ->default_str("25, the first one 1")
      ->delimiter(',');
  auto* predict =
      app->add_option("--predict", o.predict, "also what so many ranks would do, as 8,64,1024");
  predict->delimiter(',')->check(CLI::Range(1, 1 << 20));
  app->add_option("--nodes", o.nodes,
                  "with --predict: on so many nodes, one number for each or for all")
      ->needs(predict)
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 20));
  app->add_option("--network-us", o.network_us,
                  "with --predict: a message's latency between nodes, in µs")
      ->needs(predict)
      ->check(CLI::Range(0.0, 1e6));
  app->add_option("--network-gbit", o.network_gbit, "with --predict: a node's bandwidth, in Gbit/s")
      ->needs(predict)
      ->check(CLI::Range(1e-3, 1e6));
  app->add_option("--from", o.from, "measure nothing: explain what an earlier run's directory has");
  app->add_option("--out", o.out, "the directory for results (default: runs/NNNN-bench-ddp-MODEL)");
  app->add_flag("!--no-report", o.report, "leave out report.html");
  app->add_flag("--force", o.force, "even with more ranks than cores");
  app->add_option("--row", o.row)->group("");
}

void add_bench_allreduce(CLI::App& bench, Run& run) {
  auto* app = bench.add_subcommand(
      "allreduce", "All-reduce between ranks of this machine, as nccl-tests reports it");
  auto& o = options_of(app, bench_allreduce, run);
  app->option_defaults()->always_capture_default();  // --help shows them
  app->add_option("--ranks", o.ranks, "processes")->check(CLI::Range(2, 256));
  add_device_option(app, o.device);
  add_backend_option(app, o.backend);
  app->add_option("--transport", o.transport, "of the ring: " + transport_choices());
  app->add_option("--algorithm", o.algorithm,
                  "of the ring: auto, gather, exchange, ring, segmented or shared");
  auto* smallest = app->add_option("-b,--minbytes", o.min_bytes, "smallest size, such as 8 or 1M")
                       ->default_str("1K, 64K, 1M, 4M, 25M and 64M")
                       ->transform(CLI::AsSizeValue(false));
  app->add_option("-e,--maxbytes", o.max_bytes, "largest size")
      ->default_str("64M")
      ->transform(CLI::AsSizeValue(false));
  app->add_option("-f,--stepfactor", o.factor, "with -b: from one size to the next")
      ->needs(smallest)
      ->check(CLI::Range(2, 1024));
  app->add_option("-n,--iters", o.iterations, "repetitions")
      ->default_str("what --seconds allow")
      ->check(kPositive);
  app->add_option("-w,--warmup_iters", o.warmup, "repetitions before")->check(kNotNegative);
  app->add_option("--seconds", o.seconds, "for each size")->check(CLI::Range(0.01, 1000.0));
  app->add_flag("--bound", o.bound, "also time the same sums by threads of one process");
}

void add_bench_same_bits(CLI::App& bench, Run& run) {
  auto* app =
      bench.add_subcommand("same-bits", "What --shards costs, against plain training, in turn");
  auto& o = options_of(app, bench_same_bits, run);
  app->option_defaults()->always_capture_default();  // --help shows them
  app->add_option("--model", o.models, "as for train; several: one after the other");
  app->add_option("--batch", o.batch, "images of a step, of all ranks together")->check(kPositive);
  app->add_option("--ranks", o.ranks, "with a shard each; 1: only one process")
      ->check(CLI::Range(1, 64));
  app->add_option("--shards", o.shards, "of one process")->check(CLI::Range(1, kMaxShards));
  app->add_option("--seconds", o.seconds, "for each network and number of ranks")
      ->check(CLI::Range(0.01, 1000.0));
}

void add_bench_kernel(CLI::App& bench, Run& run) {
  auto* app = bench.add_subcommand(
      "kernel", "One CUDA kernel alone, step by step from the obvious to the fast");
  auto& o = options_of(app, bench_kernel, run);
  app->add_option("KERNEL", o.kernel, "its name (default: says which there are, and their steps)");
  app->add_option("--step", o.step,
                  "only this one, by number or name; without a GPU also line by line");
  app->add_option("--size", o.size, "such as 4096, or several numbers: as the list says")
      ->delimiter(',');
  app->add_option("--dtype", o.dtype,
                  "fp32, bf16 or fp16 (default: bf16, or fp32 for steps that take only that)");
  app->footer(
      "Without a GPU kernels are emulated, and what they ask of the memory "
      "is counted, not timed.\nExample\n  " +
      program_command("bench kernel matmul --step 3"));
}

}  // namespace

void add_bench(CLI::App& app, Run& run) {
  auto* bench = app.add_subcommand("bench", "Measurements");
  bench->footer("Examples\n  " + program_command("bench ddp --model resnet20 --predict 8,64,1024") +
                "\n  " + program_command("bench allreduce --ranks 2"));
  bench->require_subcommand(1);
  add_bench_ddp(*bench, run);
  add_bench_allreduce(*bench, run);
  auto* ops =
      bench->add_subcommand("ops", "What an operation on the tape costs, without arithmetic");
  ops->add_option("--repetitions", options_of(ops, bench_ops, run).repetitions,
                  "the median of so many")
      ->check(kPositive);
  add_bench_train(*bench, run);
  add_bench_kernel(*bench, run);
  add_bench_same_bits(*bench, run);
}

}  // namespace ringgrad::program
