#include "ringgrad/program/command_line.h"

#include <algorithm>
#include <limits>

#include <nlohmann/json.hpp>

#include "ringgrad/data/datasets/program_command.h"
#include "ringgrad/distributed/rendezvous/connect.h"
#include "ringgrad/program/command_line_parts.h"
#include "ringgrad/program/commands/commands.h"
#include "ringgrad/program/console/console.h"
#include "ringgrad/program/console/exit_code.h"
#include "ringgrad/program/misunderstanding.h"
#include "ringgrad/program/option_values.h"
#include "ringgrad/program/train/evaluation.h"

namespace ringgrad::program {
namespace {

std::string examples() {
  const auto line = [](const char* words, const char* what) {
    return fmt::format("  {:<46}  {}\n", program_command(words), what);
  };
  return "Examples\n" + line("train", "the default: a small CNN on generated digits") +
         line("train --data cifar10 --model resnet20", "a ResNet on CIFAR-10") +
         line("eval runs/latest --confusion", "where the network errs") + R"(
Exit codes: 0 ok, 1 training failed, 2 usage, 3 environment, 4 data or checkpoint, 5 a rank died,
6 timeout or out of step, 7 memory, 8 disk, 130 interrupted (after saving).)";
}

// An option for one hyperparameter; `o.given` remembers that it was used.
void add_recipe_option(CLI::App* app, const RecipeField& field, TrainOptions& o) {
  const std::string option = field.option();
  const auto add = [&]<class T>(T Recipe::*member) {
    const auto set = [&o, member, option](const T& value) {
      o.recipe.*member = value;
      o.given.insert(option);
    };
    if constexpr (std::is_same_v<T, bool>)
      app->add_flag_function(
          option + ",!--no-" + option.substr(2), [set](int64_t count) { set(count > 0); },
          field.help);
    else
      app->add_option_function<T>(option, set, field.help);
  };
  std::visit(add, field.member);
}

void add_train(CLI::App& app, Run& run) {
  auto* train_app = app.add_subcommand("train", "Train a model");
  auto& o = options_of(train_app, train, run);
  auto* recipe =
      train_app->add_option_group("Recipe (defaults depend on model and data, and are printed)");
  for (const RecipeField& field : recipe_fields())
    add_recipe_option(field.name == "model" || field.name == "data" ? train_app : recipe, field, o);
  add_data_dir_option(train_app, o.data_dir);
  add_device_option(train_app, o.division.device);
  train_app->add_option_function<uint64_t>(
      "--seed", [&o](uint64_t seed) { o.seed = seed; },
      "of initialisation, order and augmentation (default: 1)");
  train_app->add_option("--out", o.out, "the run directory (default: runs/NNNN-data-model)");
  train_app->add_option("--resume", o.resume,
                        "continue this run from its last checkpoint, bit for bit");
  train_app->add_option("--init", o.init,
                        "begin with the weights of this run or .safetensors file");
  train_app->add_option("--workers", o.workers, "threads that prepare batches")
      ->capture_default_str()
      ->check(CLI::Range(0, 64));
  train_app->add_option("--max-steps", o.max_steps, "save and stop after so many steps")
      ->check(kNotNegative);
  train_app->add_option("--save-every", o.save_every, "also save every so many steps")
      ->check(kNotNegative);
  train_app
      ->add_option("--preset", o.preset,
                   "speedrun: to 99 % on mnist, or airbench's mark on cifar10, as fast as we can; "
                   "takes --data, --seed, --epochs, --dtype, --out")
      ->check(CLI::IsMember({"speedrun"}));
  train_app
      ->add_option("--log-every", o.log_every, "also a line in metrics.jsonl every so many steps")
      ->check(kNotNegative);
  train_app->add_flag("--tensorboard", o.tensorboard,
                      "write these lines for TensorBoard, too, in the run directory");
  train_app->add_option_function<std::string>(
      "--trace-steps", [&o](const std::string& words) { o.trace_steps = traced_steps_from(words); },
      "FIRST:LAST: trace.json and timeline.svg of these steps");
  train_app->add_flag("!--no-report", o.report, "leave out report.html, which is made at the end");
  train_app->add_option_function<std::string>(
      "--bucket-mb",
      [&o](const std::string& words) { o.division.bucket_mb = bucket_mb_from(words); },
      "ddp: the buckets' cap, or auto: by a measurement (default: 25, the first one 1)");
  train_app->add_option("--parallel", o.division.parallel,
                        "none, dp or ddp (default: ddp where there are two cores)");
  train_app
      ->add_option("--ranks", o.division.ranks,
                   "processes that share each batch, or devices with dp (default: 2)")
      ->check(CLI::Range(1, kMaxRanks));
  train_app->add_option("--shards", o.division.shards,
                        "parts of each batch; same bits on any number of ranks");
  train_app->add_option("--elastic", o.division.elastic,
                        "MIN:MAX ranks: one that dies is replaced, and its work is lost to nobody");
  add_backend_option(train_app, o.division.backend);
  train_app->add_option("--transport", o.division.transport,
                        "between ranks: " + transport_choices("auto (the fastest for each pair)"));
  train_app
      ->add_option("--checksums", o.checksums,
                   "of messages between ranks: on, off or auto (those over a network)")
      ->check(CLI::IsMember({"auto", "on", "off"}));
  train_app->add_flag_function(
      "--sync-bn,!--no-sync-bn", [&o](int64_t count) { o.division.sync_bn = count > 0; },
      "ddp: batch norm over the whole global batch");
}

void add_checkpoint_options(CLI::App* app, CheckpointOptions& o) {
  app->add_option("checkpoint", o.checkpoint, "a run directory or a .safetensors file")->required();
  app->add_option("--model", o.model, "needed where the file does not say");
  app->add_option("--data", o.data, recipe_field("data").help);
  add_data_dir_option(app, o.data_dir);
  add_device_option(app, o.device);
}

void add_eval(CLI::App& app, Run& run) {
  auto* eval_app = app.add_subcommand("eval", "Accuracy of a checkpoint, and where it errs");
  auto& o = options_of(eval_app, eval, run);
  add_checkpoint_options(eval_app, o);
  eval_app->add_option("--provider", o.provider, recipe_field("provider").help);
  eval_app->add_flag("--confusion", o.confusion, "print the confusion matrix");
  auto* worst = eval_app->add_option("--worst", o.worst,
                                     "show so many of the images that it gets most wrong");
  worst->check(CLI::Range(1, static_cast<int>(kWorst)));
  eval_app->add_option("--out", o.out, "--worst's picture (default: worst.png beside the weights)")
      ->needs(worst);
  eval_app->add_flag("--skip-broken", o.skip_broken, recipe_field("skip_broken").help);
}

void add_predict(CLI::App& app, Run& run) {
  auto* predict_app = app.add_subcommand("predict", "What a network sees in one image");
  auto& o = options_of(predict_app, predict, run);
  add_checkpoint_options(predict_app, o);
  predict_app
      ->add_option("image", o.image, "a PNG, JPEG, PGM or PPM file, or a number: that test image")
      ->required();
}

void add_export(CLI::App& app, Run& run) {
  auto* export_app =
      app.add_subcommand("export", "How PyTorch loads a checkpoint: lines of Python");
  auto& o = options_of(export_app, export_python, run);
  export_app->add_flag("--python")->description("print them")->required();
  export_app->add_option("checkpoint", o.checkpoint, "a run directory or a .safetensors file")
      ->required();
  export_app->add_option("--model", o.model, "needed where the file does not say");
  export_app->add_option("--data", o.data, recipe_field("data").help);
}

void add_data(CLI::App& app, Run& run) {
  auto* data_app = app.add_subcommand("data", "Data sets: list, make, get or check them");
  data_app->require_subcommand(1);
  const auto add_action = [&](const char* action, const char* help, const char* names) {
    auto* action_app = data_app->add_subcommand(action, help);
    auto& o = options_of(action_app, data, run);
    o.action = action;
    if (names) action_app->add_option("name", o.name, names)->required();
    action_app->add_option("--data-dir", o.data_dir, "where data sets lie");
  };
  add_action("list", "What there is, and what is here", nullptr);
  add_action("make", "Generate digits or shapes", "digits or shapes");
  add_action("get", "Download a data set (https, SHA-256 checked)", "mnist, cifar10 or cifar100");
  add_action("check", "Read and verify a data set", recipe_field("data").help.c_str());
}

void add_inspect(CLI::App& app, Run& run) {
  auto* inspect_app =
      app.add_subcommand("inspect", "What is in a run, or a safetensors, IDX or CIFAR file");
  auto& o = options_of(inspect_app, inspect, run);
  inspect_app
      ->add_option("path", o.path, "the file, or a run: its directory, its number, or latest")
      ->required();
  auto* npy = inspect_app->add_option("--npy", o.npy, "write this tensor as .npy");
  auto* output = inspect_app->add_option("--output", o.output, "the .npy file to write");
  npy->needs(output);
  output->needs(npy);
}

void add_graph(CLI::App& app, Run& run) {
  auto* graph_app = app.add_subcommand("graph", "The autograd graph of a model's loss");
  auto& o = options_of(graph_app, graph, run);
  graph_app->add_option("model", o.model, "as for train")->capture_default_str();
  graph_app->add_option("--data", o.data, "its first images go in, normalised (default: noise)");
  graph_app->add_option("--data-dir", o.data_dir, "where data sets lie");
  graph_app->add_option("--batch", o.batch, "images (default: as train)")->check(kPositive);
  graph_app->add_flag(
      "--values", o.values,
      "also forward's values and the gradients: up to four numbers, or mean ± deviation");
  graph_app->add_flag("--dot", o.dot,
                      fmt::format("for Graphviz: {} | dot -Tsvg", program_command("graph --dot")));
}

void add_trace(CLI::App& app, Run& run) {
  auto* trace_app = app.add_subcommand(
      "trace", "When each bucket is averaged while backward runs: a timeline of a step");
  auto& o = options_of(trace_app, trace, run);
  trace_app->option_defaults()->always_capture_default();  // --help shows them
  trace_app->add_option("--model", o.model, "as for train");
  trace_app->add_option("--batch", o.batch, "images of a step, of all ranks together")
      ->check(kPositive);
  trace_app->add_option("--ranks", o.ranks, "processes that share each batch")
      ->check(CLI::Range(1, 64));
  add_device_option(trace_app, o.device);
  add_backend_option(trace_app, o.backend);
  trace_app->add_option("--steps", o.steps, "the last of so many is shown, beside their median")
      ->check(kPositive);
  trace_app
      ->add_option("--bucket-mb", o.bucket_caps,
                   "the buckets' cap, or several: 0.25,1,25; 0: as train")
      ->delimiter(',')
      ->check(CLI::Range(0.0, 1e6));
  trace_app->add_option("--perfetto", o.perfetto,
                        "also write all ranks' step to this file, for ui.perfetto.dev");
  trace_app->add_option("--svg", o.svg, "also draw it to this file");
  trace_app->footer("Example\n  " +
                    program_command("trace --model resnet18 --batch 32 --bucket-mb 4"));
}

void add_explain(CLI::App& app, Run& run) {
  auto* explain_app = app.add_subcommand(
      "explain", "How it works, told with the numbers of a run made then and there");
  auto& o = options_of(explain_app, explain, run);
  explain_app->add_option("topic", o.topic, "which of them; without one they are listed");
  explain_app->add_flag("--list", o.list, "list the topics");
  explain_app->add_option("--ranks", o.ranks, "ring: ranks, 2 to 8")->capture_default_str();
  explain_app->add_option("--html", o.html, "also write the page, with pictures, to this file");
  explain_app->footer("Example\n  " + program_command("explain ring --html ring.html"));
}

void add_learn(CLI::App& app, Run& run) {
  auto* learn_app =
      app.add_subcommand("learn", "Exercises: write a part of the engine, and have it graded");
  learn_app->require_subcommand(1);
  for (const auto& [action, help] :
       {std::pair("list", "What there is to write"),
        std::pair("start", "Write the file of an exercise, never over one that is there"),
        std::pair("check", "Compile that file alone, run it in the engine, and grade it")}) {
    auto* action_app = learn_app->add_subcommand(action, help);
    auto& o = options_of(action_app, learn, run);
    o.action = action;
    if (o.action == "list") continue;
    action_app->add_option("number", o.number, "of the exercise")->required();
    if (o.action == "check")
      action_app->add_option("--file", o.file, "yours, if it lies elsewhere");
  }
}

void add_launch(CLI::App& app, Run& run) {
  auto* launch_app =
      app.add_subcommand("launch", "Start a program on several ranks, with torchrun's environment");
  auto& o = options_of(launch_app, launch_program, run);
  launch_app->add_option("-n,--nproc-per-node", o.job.num_processes, "ranks on this machine")
      ->required()
      ->check(CLI::Range(1, 4096));
  launch_app->add_option("--nnodes", o.job.num_machines, "machines; run the same command on each")
      ->check(CLI::Range(1, 4096));
  launch_app->add_option("--node-rank", o.job.machine_rank, "which of them this one is, from 0 on")
      ->check(CLI::Range(0, 4095));
  launch_app->add_option("--master-addr", o.master_address, "machine 0's address");
  launch_app
      ->add_option("--master-port", o.job.port, "a free port there (one machine: found by itself)")
      ->check(CLI::Range(1, 65534));
  launch_app
      ->add_option("--timeout", o.timeout_seconds,
                   "seconds a rank may keep the others waiting (default: 60)")
      ->check(CLI::Range(0.001, 1e5));
  launch_app
      ->add_option("--transport", o.transport,
                   "between ranks: " + transport_choices("auto (the fastest for each pair)"))
      ->check(CLI::IsMember(transport_names()));
  launch_app->add_option("--log-dir", o.job.log_directory,
                         "also write every rank's output to rankN.log there");
  launch_app->add_option("command", o.job.command, "-- PROGRAM ARGUMENTS")->required();
  launch_app->footer("Example\n  " + program_command("launch -n 4 -- ./train --epochs 3"));
}

}  // namespace

int run_command_line(int argc, char** argv) {
  CLI::App app("A from-scratch tensor and autograd engine with built-in data parallelism",
               "ringgrad");
  app.set_version_flag("--version", "ringgrad " RINGGRAD_VERSION);
  app.require_subcommand(1);
  app.fallthrough();  // the options below may also follow a command
  ConsoleOptions console;
  app.add_flag("--json")->description(
      "one JSON document on stdout, also of an error; everything else on stderr");
  app.add_flag("-q,--quiet", console.quiet, "no progress and no messages: answers and errors only");
  app.add_flag("--plain", console.plain, "no bar and no colour, even on a terminal");

  Run run;
  for (const auto add :
       {add_train, add_eval, add_predict, add_export, add_data, add_inspect, add_graph, add_trace,
        add_explain, add_learn, add_run_commands, add_other_training, add_launch, add_bench})
    add(app, run);
  app.add_subcommand("doctor", "What machine and build have, what is off and why")->callback([&] {
    run = doctor;
  });

  check_values(app);
  app.footer(examples());  // last: commands inherit it when they are added
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  const auto first = std::find_if(words.begin(), words.end(),
                                  [](const auto& word) { return !word.starts_with("-"); });
  if (first != words.end() && *first == "help") {
    words.erase(first);
    if (const std::string mistake = help_misunderstood(app, words); !mistake.empty())
      throw UsageError(mistake);
    words.push_back("--help");
  }
  std::reverse(words.begin(), words.end());  // as CLI11 wants them
  try {
    app.parse(std::move(words));
  } catch (const CLI::CallForHelp&) {
    result(app.help());  // of the command that was named
    print_json({{"help", app.help()}});
    return kOk;
  } catch (const CLI::CallForVersion& version) {
    result(version.what());
    print_json({{"version", RINGGRAD_VERSION}});
    return kOk;
  } catch (const CLI::ParseError& error) {
    if (argc == 1)
      throw UsageError("expected a command; " + program_command("--help") + " shows them");
    throw UsageError(misunderstanding(app, error, argc, argv));
  }
  configure_console(console);
  try {
    (void)default_timeout();
    (void)default_rendezvous_timeout();
  } catch (const Error& error) {  // these variables are as good as options
    throw UsageError(error.what());
  }
  return run();
}

}  // namespace ringgrad::program
