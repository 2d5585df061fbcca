// The command line: the only file that includes CLI11.
#include <CLI/CLI.hpp>

#include <limits>
#include <regex>

#include "ringgrad/core/error.h"
#include "ringgrad/distributed/job/rank_environment.h"
#include "ringgrad/distributed/rendezvous/connect.h"
#include "ringgrad/models/program/commands/commands.h"
#include "ringgrad/models/program/console/console.h"
#include "ringgrad/models/program/console/exit_code.h"

namespace ringgrad::program {
namespace {

constexpr const char* kExamples = R"(Examples
  ringgrad train                                  the default: a small CNN on generated digits
  ringgrad train --data cifar10 --model resnet20  a ResNet on CIFAR-10
  ringgrad eval runs/latest --confusion           where the network errs

Exit codes: 0 ok, 1 training failed, 2 usage, 3 environment, 4 data or checkpoint, 5 a rank died,
6 timeout or out of step, 7 memory, 8 disk, 130 interrupted (after saving).)";

constexpr const char* kProviderHelp =
    "native (ours), vendor (oneDNN; cuBLAS, cuDNN), fastest (measured at first use, and remembered) or auto: native on "
    "the CPU, fastest on CUDA";

constexpr const char* kDataNames = "digits, shapes, mnist, cifar10 or cifar100";

const CLI::Range kPositive(1, std::numeric_limits<int>::max(), "POSITIVE");
const CLI::Range kNotNegative(0, std::numeric_limits<int>::max(), "NONNEGATIVE");

std::string check_device_name(const std::string& name) {
  return std::regex_match(name, std::regex("(cpu|cuda)(:[0-9]{1,4})?")) ? "" : "'" + name + "', expected cpu or cuda";
}

template <class T>
CLI::Option* optional(CLI::App* app, const std::string& name, std::optional<T>& value, const std::string& help) {
  return app->add_option_function<T>(
      name, [&value](const T& given) { value = given; }, help);
}
void optional_flag(CLI::App* app, const std::string& name, std::optional<bool>& value, const std::string& help) {
  app->add_flag_function(
      name, [&value](int64_t count) { value = count > 0; }, help);
}

void add_data_options(CLI::App* app, std::string& name, std::string& directory) {
  app->add_option("--data", name, kDataNames);
  app->add_option("--data-dir", directory, "where data sets lie (default: $RINGGRAD_DATA_DIR, else data/files)");
}

void add_device_option(CLI::App* app, std::string& device) {
  app->add_option("--device", device, "cpu (the default) or cuda")->check(check_device_name);
}
void add_backend_option(CLI::App* app, std::string& backend) {
  app->add_option("--backend", backend,
                  "between ranks: ring or mpi; on GPUs nccl, or nccl-ring for our ring over NCCL's send and receive");
}

void add_train(CLI::App& app, TrainOptions& o, std::function<int()>& run) {
  auto* train_app = app.add_subcommand("train", "Train a model");
  train_app->add_option("--model", o.model,
                        "cnn, lenet, resnet20 … resnet110, resnet18 … resnet152 (default: as the data needs)");
  add_data_options(train_app, o.data, o.data_dir);
  add_device_option(train_app, o.device);
  optional(train_app, "--seed", o.seed, "of initialisation, order and augmentation (default: 1)")
      ->check([](const std::string& seed) { return seed.starts_with('-') ? "expected a number from 0 on" : ""; });
  train_app->add_option("--out", o.out, "the run directory (default: runs/NNNN-data-model)");
  train_app->add_option("--resume", o.resume, "continue this run from its last checkpoint, bit for bit")
      ->check([](const std::string& run) { return run.empty() ? "expected a run directory" : ""; });
  train_app->add_option("--init", o.init, "begin with the weights of this run or .safetensors file");
  train_app->add_option("--workers", o.workers, "threads that prepare batches")
      ->capture_default_str()
      ->check(CLI::Range(0, 64));
  train_app->add_option("--max-steps", o.max_steps, "save and stop after so many steps")->check(kNotNegative);
  train_app->add_option("--save-every", o.save_every, "also save every so many steps")->check(kNotNegative);
  train_app->add_option("--parallel", o.parallel, "none, dp or ddp (default: ddp where there are two cores)");
  train_app->add_option("--ranks", o.ranks, "processes that share each batch, or devices with dp (default: 2)")
      ->check(CLI::Range(1, 4096));
  add_backend_option(train_app, o.backend);
  train_app->add_option("--transport", o.transport, "between ranks: auto (the fastest for each pair), shm or tcp");
  optional_flag(train_app, "--sync-bn,!--no-sync-bn", o.sync_bn, "ddp: batch norm over the whole global batch");
  const std::string recipe = "Recipe (defaults depend on model and data, and are printed)";
  auto* group = train_app->add_option_group(recipe);
  optional(group, "--epochs", o.epochs, "passes over the training set");
  optional(group, "--batch", o.batch, "global batch size, of all ranks together");
  optional(group, "--optimizer", o.optimizer, "sgd, adam or adamw");
  optional(group, "--lr", o.lr, "peak learning rate");
  optional(group, "--momentum", o.momentum, "of sgd");
  optional_flag(group, "--nesterov,!--no-nesterov", o.nesterov, "Nesterov's momentum");
  optional(group, "--weight-decay", o.weight_decay, "L2 penalty (decoupled for adamw)");
  optional(group, "--schedule", o.schedule, "constant, step, cosine or onecycle");
  optional(group, "--warmup", o.warmup, "epochs of linear warm-up");
  optional(group, "--label-smoothing", o.label_smoothing, "in [0, 1)");
  optional(group, "--clip-norm", o.clip_norm, "clip the gradient's norm; 0: never");
  optional(group, "--crop", o.crop, "random crop after padding by so many pixels");
  optional_flag(group, "--flip,!--no-flip", o.flip, "random horizontal flips");
  optional(group, "--cutout", o.cutout, "a random square of this size set to the mean");
  optional(group, "--dtype", o.dtype, "fp32, bf16 or fp16, of images and activations");
  optional(group, "--amp", o.amp,
           "O0: float32; O1: float32 parameters; O2: 16-bit ones with float32 copies; O3: without");
  optional(group, "--conv", o.conv, "auto, direct or winograd: how the CPU convolves");
  optional(group, "--provider", o.provider, kProviderHelp);
  train_app->callback([&] { run = [&] { return train(o); }; });
}

void add_bench_train(CLI::App& bench, BenchTrainOptions& o, std::function<int()>& run) {
  auto* app = bench.add_subcommand("train", "What a training step costs, on synthetic data");
  app->option_defaults()->always_capture_default();  // --help shows them
  app->add_option("--model", o.model, "as for train");
  add_device_option(app, o.device);
  app->add_option("--batch", o.batch, "images of a step")->check(kPositive);
  app->add_option("--dtype", o.dtype, "fp32, bf16 or fp16, of the images; parameters stay float32");
  app->add_option("--conv", o.conv, "auto, direct or winograd");
  app->add_option("--provider", o.provider, kProviderHelp);
  app->add_option("--threads", o.threads, "of the processor")->default_str("one per core")->check(kPositive);
  app->add_option("--steps", o.steps, "timed steps")->check(kPositive);
  app->add_option("--warm-up", o.warm_up, "steps before them")->check(kNotNegative);
  app->add_flag("--profile", o.profile, "then as many steps again: each kernel's time, and what the machine allows");
  app->callback([&] { run = [&] { return bench_train(o); }; });
}

void add_bench_ddp(CLI::App& bench, BenchDdpOptions& o, std::function<int()>& run) {
  auto* app = bench.add_subcommand("ddp", "DataParallel and DistributedDataParallel on the same batch and cores");
  app->option_defaults()->always_capture_default();  // --help shows them
  app->add_option("--model", o.model, "as for train");
  app->add_option("--batch", o.batch, "images of a step, of all ranks together")->check(kPositive);
  app->add_option("--ranks", o.ranks, "ranks, or devices of dp")->check(CLI::Range(1, 64));
  add_device_option(app, o.device);
  add_backend_option(app, o.backend);
  app->add_option("--seconds", o.seconds, "of each row and round")->check(CLI::Range(0.01, 1000.0));
  app->add_option("--rounds", o.rounds, "the rows take turns so often")->check(kPositive);
  app->add_option("--bucket-mb", o.bucket_mb, "the buckets' cap")
      ->default_str("25, the first one 1")
      ->check(CLI::Range(0.0, 1e6));
  app->add_flag("--force", o.force, "even with more ranks than cores");
  app->add_option("--row", o.row)->group("");
  app->callback([&] { run = [&] { return bench_ddp(o); }; });
}

void add_trace(CLI::App& app, TraceOptions& o, std::function<int()>& run) {
  auto* trace_app =
      app.add_subcommand("trace", "When each bucket is averaged while backward runs: a timeline of a step");
  trace_app->option_defaults()->always_capture_default();  // --help shows them
  trace_app->add_option("--model", o.model, "as for train");
  trace_app->add_option("--batch", o.batch, "images of a step, of all ranks together")->check(kPositive);
  trace_app->add_option("--ranks", o.ranks, "processes that share each batch")->check(CLI::Range(1, 64));
  add_device_option(trace_app, o.device);
  add_backend_option(trace_app, o.backend);
  trace_app->add_option("--steps", o.steps, "the last of so many is shown")->check(kPositive);
  trace_app->add_option("--bucket-mb", o.bucket_mb, "the buckets' cap; 0: as train, 25, the first one 1")
      ->check(CLI::Range(0.0, 1e6));
  trace_app->footer("Example\n  ringgrad trace --model resnet18 --batch 32 --bucket-mb 4");
  trace_app->callback([&] { run = [&] { return trace(o); }; });
}

void add_launch(CLI::App& app, LaunchCommandOptions& o, std::function<int()>& run) {
  auto* launch_app = app.add_subcommand("launch", "Start a program on several ranks, with torchrun's environment");
  launch_app->add_option("-n,--nproc-per-node", o.processes, "ranks on this machine")
      ->required()
      ->check(CLI::Range(1, 4096));
  launch_app->add_option("--nnodes", o.machines, "machines; run the same command on each")->check(CLI::Range(1, 4096));
  launch_app->add_option("--node-rank", o.machine_rank, "which of them this one is, from 0 on")
      ->check(CLI::Range(0, 4095));
  launch_app->add_option("--master-addr", o.master_address, "machine 0's address");
  launch_app->add_option("--master-port", o.master_port, "a free port there (one machine: found by itself)")
      ->check(CLI::Range(1, 65534));
  launch_app->add_option("--timeout", o.timeout_seconds, "seconds a rank may keep the others waiting (default: 60)")
      ->check(CLI::Range(0.001, 1e5));
  launch_app->add_option("--transport", o.transport, "between ranks: auto (the fastest for each pair), shm or tcp")
      ->check(CLI::IsMember(transport_names()));
  launch_app->add_option("--log-dir", o.log_directory, "also write every rank's output to rankN.log there");
  launch_app->add_option("command", o.command, "-- PROGRAM ARGUMENTS")->required();
  launch_app->footer("Example\n  ringgrad launch -n 4 -- ./train --epochs 3");
  launch_app->callback([&] { run = [&] { return launch_program(o); }; });
}

void add_bench_allreduce(CLI::App& bench, BenchAllReduceOptions& o, std::function<int()>& run) {
  auto* app = bench.add_subcommand("allreduce", "All-reduce between ranks of this machine, as nccl-tests reports it");
  app->option_defaults()->always_capture_default();  // --help shows them
  app->add_option("--ranks", o.ranks, "processes")->check(CLI::Range(2, 256));
  add_device_option(app, o.device);
  add_backend_option(app, o.backend);
  app->add_option("--transport", o.transport, "of the ring: auto, shm or tcp");
  app->add_option("--algorithm", o.algorithm, "of the ring: auto, gather, exchange, ring, segmented or shared");
  auto* smallest = app->add_option("-b,--minbytes", o.min_bytes, "smallest size, such as 8 or 1M")
                       ->default_str("1K, 64K, 1M, 4M, 25M and 64M")
                       ->transform(CLI::AsSizeValue(false));
  app->add_option("-e,--maxbytes", o.max_bytes, "largest size")->default_str("64M")->transform(CLI::AsSizeValue(false));
  app->add_option("-f,--stepfactor", o.factor, "with -b: from one size to the next")
      ->needs(smallest)
      ->check(CLI::Range(2, 1024));
  app->add_option("-n,--iters", o.iterations, "repetitions")->default_str("what --seconds allow")->check(kPositive);
  app->add_option("-w,--warmup_iters", o.warmup, "repetitions before")->check(kNotNegative);
  app->add_option("--seconds", o.seconds, "for each size")->check(CLI::Range(0.01, 1000.0));
  app->add_flag("--bound", o.bound, "also time the same sums by threads of one process");
  app->callback([&] { run = [&] { return bench_allreduce(o); }; });
}

std::vector<const CLI::App*> children_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

// The long options of a command, those of its groups (nameless children) included.
std::vector<std::string> options_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options([](const CLI::Option*) { return true; }))
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  for (const CLI::App* child : children_of(app))
    if (child->get_name().empty())
      for (std::string& name : options_of(*child)) names.push_back(std::move(name));
  return names;
}

// The message for what CLI11 did not understand, with the nearest thing that exists.
std::string explain(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  const CLI::App* command = &app;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--") break;  // another program's words follow
    if (word.starts_with("--")) {
      const std::string name = word.substr(0, word.find('='));
      auto known = options_of(*command);
      for (std::string& global : options_of(app)) known.push_back(std::move(global));
      if (std::find(known.begin(), known.end(), name) == known.end())
        return command->get_name() + ": no option '" + name + "'" + did_you_mean(name, known);
    } else if (!word.starts_with("-")) {
      std::vector<std::string> names;
      const CLI::App* found = nullptr;
      for (const CLI::App* child : children_of(*command)) {
        if (child->get_name() == word) found = child;
        if (!child->get_name().empty()) names.push_back(child->get_name());
      }
      if (!found && !names.empty()) return "no command '" + word + "'" + did_you_mean(word, names);
      if (found) command = found;
    }
  }
  return error.what();
}

}  // namespace

int run_command_line(int argc, char** argv) {
  CLI::App app("A from-scratch tensor and autograd engine with built-in data parallelism", "ringgrad");
  app.set_version_flag("--version", "ringgrad " RINGGRAD_VERSION);
  app.require_subcommand(1);
  app.fallthrough();  // the options below may also follow a command
  ConsoleOptions console;
  app.add_flag("--json", console.json, "one JSON document on stdout, everything else on stderr");
  app.add_flag("-q,--quiet", console.quiet, "no progress and no messages");
  app.add_flag("--plain", console.plain, "no bar and no colour, even on a terminal");

  std::function<int()> run;
  TrainOptions train_options;
  add_train(app, train_options, run);

  EvalOptions eval_options;
  auto* eval_app = app.add_subcommand("eval", "Accuracy of a checkpoint, and where it errs");
  eval_app->add_option("checkpoint", eval_options.checkpoint, "a run directory or a .safetensors file")->required();
  eval_app->add_option("--model", eval_options.model, "needed where the file does not say");
  add_data_options(eval_app, eval_options.data, eval_options.data_dir);
  add_device_option(eval_app, eval_options.device);
  eval_app->add_option("--provider", eval_options.provider, kProviderHelp);
  eval_app->add_flag("--confusion", eval_options.confusion, "print the confusion matrix");
  eval_app->callback([&] { run = [&] { return eval(eval_options); }; });

  PredictOptions predict_options;
  auto* predict_app = app.add_subcommand("predict", "What a network sees in one image");
  predict_app->add_option("checkpoint", predict_options.checkpoint, "a run directory or a .safetensors file")
      ->required();
  predict_app->add_option("image", predict_options.image, "a PNG, PGM or PPM file, or a number: that test image")
      ->required();
  predict_app->add_option("--model", predict_options.model, "needed where the file does not say");
  add_data_options(predict_app, predict_options.data, predict_options.data_dir);
  add_device_option(predict_app, predict_options.device);
  predict_app->callback([&] { run = [&] { return predict(predict_options); }; });

  DataOptions data_options;
  auto* data_app = app.add_subcommand("data", "Data sets: list, make, get or check them");
  data_app->require_subcommand(1);
  const auto add_data_action = [&](const char* action, const char* help, const char* names) {
    auto* action_app = data_app->add_subcommand(action, help);
    if (names) action_app->add_option("name", data_options.name, names)->required();
    action_app->add_option("--data-dir", data_options.data_dir, "where data sets lie");
    action_app->callback([&, action] {
      data_options.action = action;
      run = [&] { return data(data_options); };
    });
  };
  add_data_action("list", "What there is, and what is here", nullptr);
  add_data_action("make", "Generate digits or shapes", "digits or shapes");
  add_data_action("get", "Download a data set (https, SHA-256 checked)", "mnist, cifar10 or cifar100");
  add_data_action("check", "Read and verify a data set", kDataNames);

  InspectOptions inspect_options;
  auto* inspect_app = app.add_subcommand("inspect", "What is in a safetensors, IDX or CIFAR file");
  inspect_app->add_option("path", inspect_options.path, "the file, or a run directory")->required();
  auto* npy = inspect_app->add_option("--npy", inspect_options.npy, "write this tensor as .npy");
  auto* output = inspect_app->add_option("--output", inspect_options.output, "the .npy file to write");
  npy->needs(output);
  output->needs(npy);
  inspect_app->callback([&] { run = [&] { return inspect(inspect_options); }; });

  GraphOptions graph_options;
  auto* graph_app = app.add_subcommand("graph", "The autograd graph of a model's loss");
  graph_app->add_option("model", graph_options.model, "as for train")->capture_default_str();
  graph_app->add_flag("--dot", graph_options.dot, "for Graphviz: ringgrad graph --dot | dot -Tsvg");
  graph_app->callback([&] { run = [&] { return graph(graph_options); }; });

  TraceOptions trace_options;
  add_trace(app, trace_options, run);

  auto* doctor_app = app.add_subcommand("doctor", "What this machine and this build have, what is off and why");
  doctor_app->callback([&] { run = doctor; });

  LaunchCommandOptions launch_options;
  add_launch(app, launch_options, run);

  BenchOpsOptions bench_options;
  BenchAllReduceOptions bench_allreduce_options;
  auto* bench_app = app.add_subcommand("bench", "Measurements");
  bench_app->require_subcommand(1);
  BenchDdpOptions bench_ddp_options;
  add_bench_ddp(*bench_app, bench_ddp_options, run);
  add_bench_allreduce(*bench_app, bench_allreduce_options, run);
  auto* ops_app = bench_app->add_subcommand("ops", "What an operation on the tape costs, without arithmetic");
  ops_app->add_option("--repetitions", bench_options.repetitions, "the median of so many")->check(kPositive);
  ops_app->callback([&] { run = [&] { return bench_ops(bench_options); }; });
  BenchTrainOptions bench_train_options;
  add_bench_train(*bench_app, bench_train_options, run);

  app.footer(kExamples);  // last: commands inherit it when they are added
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    result(app.help());  // of the command that was named
    return kOk;
  } catch (const CLI::CallForVersion& version) {
    result(version.what());
    return kOk;
  } catch (const CLI::ParseError& error) {
    if (argc == 1) throw UsageError("expected a command; ringgrad --help shows them");
    throw UsageError(explain(app, error, argc, argv));
  }
  configure_console(console);
  try {
    (void)default_timeout();
  } catch (const Error& error) {  // RINGGRAD_TIMEOUT is as good as an option
    throw UsageError(error.what());
  }
  return run();
}

}  // namespace ringgrad::program
