// `ringgrad bench ddp`: one batch, divided by DataParallel and by DistributedDataParallel, on the
// same cores or GPUs.
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/environment.h"
#include "ringgrad/core/base/file.h"
#include "ringgrad/core/device/cpu_division.h"
#include "ringgrad/core/device/device_backend.h"
#include "ringgrad/data/datasets/program_command.h"
#include "ringgrad/distributed/job/rank_environment.h"
#include "ringgrad/distributed/launch.h"
#include "ringgrad/distributed/launcher/supervisor.h"
#include "ringgrad/nn/safetensors.h"
#include "ringgrad/program/bench/cost_model.h"
#include "ringgrad/program/bench/ddp_advice.h"
#include "ringgrad/program/bench/ddp_explanation.h"
#include "ringgrad/program/bench/ddp_report.h"
#include "ringgrad/program/bench/ddp_row.h"
#include "ringgrad/program/command.h"
#include "ringgrad/program/console/console.h"
#include "ringgrad/program/console/exit_code.h"
#include "ringgrad/program/console/json_text.h"
#include "ringgrad/program/report/report.h"
#include "ringgrad/program/run/build.h"
#include "ringgrad/program/run/machine.h"
#include "ringgrad/program/run/parallel_config.h"
#include "ringgrad/program/run/recipe.h"
#include "ringgrad/program/run/run_directory.h"
#include "ringgrad/program/run/temporary_directory.h"

namespace ringgrad::program {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// A row of the table, and how it is measured.
struct RowPlan {
  std::string name;
  std::string method;
  double bucket_mb = kUsualBuckets;
};

// Returns the rows that this build can measure on that device.
std::vector<RowPlan> rows_on(Device device, const std::vector<std::string>& buckets) {
  std::vector<RowPlan> rows = {{"none", "none"}, {"dp", "dp"}};
  if (!connects_ranks_on(device)) return rows;
  const auto mb = [&](size_t i) {
    return buckets[i] == "0" ? kUsualBuckets : bucket_mb_from(buckets[i]);
  };
  const double first = buckets.empty() ? kUsualBuckets : mb(0);
  rows.push_back({"ddp_no_overlap", "ddp_no_overlap", first});
  rows.push_back({"ddp", "ddp", first});
  for (size_t i = 1; i < buckets.size(); ++i)
    rows.push_back({"ddp " + buckets[i] + " MB", "ddp", mb(i)});
  for (RowPlan& row : rows)
    if (row.bucket_mb == kPlannedBuckets && row.name != "ddp" && row.method == "ddp")
      row.name = "ddp auto";
  return rows;
}

fs::path parameters_beside(fs::path row) { return row.replace_extension("safetensors"); }

int run_row(const BenchDdpOptions& options) {
  if (options.row == "dp") set_cpu_devices(options.ranks);
  InitOptions group = group_options_for(options.device, options.backend);
  const Device first(options.device);
  if (!options.row.starts_with("ddp"))
    group.backend = "ring";  // a group of one process
  else if (first.is_cuda())  // the same devices as DataParallel's
    group.device = Device(first.type, first.index + rank_environment().local_rank);
  BenchDdpOptions own = options;
  if (!options.buckets.empty()) own.bucket_mb = bucket_mb_from(options.buckets[0]);
  return launch_or_throw(
      [&] {
        const std::string path = variable(kFileVariable);
        const json row =
            measure_row(own, process_group(), path.empty() ? fs::path() : parameters_beside(path));
        if (!process_group().is_main_process() || path.empty()) return;
        std::ofstream file(path);
        file << row << std::flush;
        if (!file)
          throw IoError(fmt::format("bench ddp: cannot write {}: {}", path, std::strerror(errno)));
      },
      {.group = group});
}

// Measures the row in processes of its own, which write it to this file. Throws their errors.
json measure_in_processes(const BenchDdpOptions& options, const RowPlan& row,
                          const fs::path& file) {
  SupervisorOptions job;
  job.environment = {{kFileVariable, file.string()}};
  job.num_processes = row.method.starts_with("ddp") ? options.ranks : 1;
  job.program = "/proc/self/exe";
  job.command = {program_name(), "bench", "ddp"};
  const auto pass = [&](const char* option, const auto& value) {
    job.command.insert(job.command.end(), {option, fmt::format("{}", value)});
  };
  pass("--row", row.method);
  pass("--model", options.model);
  pass("--device", options.device);
  if (!options.backend.empty()) pass("--backend", options.backend);
  pass("--batch", options.batch);
  pass("--ranks", options.ranks);
  pass("--seconds", options.seconds);
  if (row.bucket_mb != kUsualBuckets) pass("--bucket-mb", bucket_words(row.bucket_mb));
  const JobResult result = supervise(job);
  if (result.exit_code != kOk)
    throw JobFailed(result.exit_code,
                    fmt::format("bench ddp: row {}: {}", row.name, result.report));
  return json_from(text_of(file));
}

double largest_difference(const fs::path& a, const fs::path& b) {
  const auto of_a = nn::load_safetensors(a).tensors;
  const auto of_b = nn::load_safetensors(b).tensors;
  double largest = 0;
  for (size_t i = 0; i < of_a.size(); ++i) {
    const double difference = max(abs(of_a[i].second - of_b[i].second)).item<float>();
    if (!(difference <= largest)) largest = std::isfinite(difference) ? difference : INFINITY;
  }
  return largest;
}

// Compares the parameters of the rows: dividing the work must not change them.
json compare_results(bool with_ddp, const TemporaryDirectory& files) {
  const auto difference = [&](const std::string& a, const std::string& b) {
    return largest_difference(parameters_beside(files.of(a)), parameters_beside(files.of(b)));
  };
  json compared = {{"steps", kComparedSteps}, {"none_dp", difference("none", "dp")}};
  if (with_ddp) {
    compared["none_ddp"] = difference("none", "ddp");
    compared["dp_ddp"] = difference("dp", "ddp");
  }
  return compared;
}

void print_comparison(const json& compared) {
  std::string text =
      fmt::format("same result: after {} steps max |Δ| to one process: dp {:.1e}",
                  compared.at("steps").get<int>(), compared.at("none_dp").get<double>());
  if (compared.contains("none_ddp"))
    text += fmt::format(", ddp {:.1e};\n  between the two {:.1e} · ddp's ranks are bit-identical",
                        compared["none_ddp"].get<double>(), compared.at("dp_ddp").get<double>());
  result(text);
  message(
      "|Δ|     of parameters; where there is batch norm, which sees the whole batch in\n"
      "        one process only, compare dp and ddp");
}

Prediction prediction_of(const BenchDdpOptions& o) {
  return {o.predict, o.nodes, o.network_us, o.network_gbit};
}

// Throws if these options are impossible.
void check_options(const BenchDdpOptions& options) {
  recipe_field("model").check_choice(options.model);
  check_divisible(options.batch, options.ranks);
  (void)nodes_of(prediction_of(options), options.ranks);
  check_backend(options.backend, options.device);
  const Device first(options.device);
  check_device("bench ddp", first);
  if (first.is_cuda())
    check_device("bench ddp", Device(first.type, first.index + options.ranks - 1));
  if (first.is_cpu() && options.ranks > cpu_cores() && !options.force)
    throw UsageError(
        "bench ddp: {} ranks on {} cores: the rows would measure the scheduler; --force to run",
        options.ranks, cpu_cores());
}

}  // namespace

json measure_rows(const BenchDdpOptions& options) {
  check_options(options);
  const Device first(options.device);
  double load = 0;
  if (getloadavg(&load, 1) == 1 && load > 0.5)
    message("load {:.1f}: other work is running, and shares the cores with what is measured", load);
  const std::string processor = device_backend(first.type).describe(first.index);
  if (processor.starts_with("emulated"))
    message("{} is {}, and its times mean nothing", options.device, processor);
  const std::vector<RowPlan> rows = rows_on(first, options.buckets);
  if (rows.size() == 2)
    message("the ranks of ddp on {} need NCCL between processes, which this build lacks: left out",
            options.device);

  const TemporaryDirectory files("bench ddp");
  json names = json::array();
  json rounds = json::array();
  for (const RowPlan& row : rows) names.push_back(row.name);
  message("{} rows in turn, {} times {} s each and what it takes to start them", rows.size(),
          options.rounds, options.seconds);
  Progress progress("bench ddp", static_cast<int64_t>(rows.size()) * options.rounds);
  int64_t done = 0;
  for (int round = 0; round < options.rounds; ++round) {
    json& measured = rounds.emplace_back(json::object());
    for (const RowPlan& row : rows) {
      progress.update(done,
                      [&] { return fmt::format("round {}, measuring {}", round + 1, row.name); });
      measured[row.name] = measure_in_processes(options, row, files.of(row.name));
      ++done;
      if (!on_terminal())
        message("round {} of {} · {:<15}{:>10.2f} ms a step", round + 1, options.rounds, row.name,
                measured[row.name]["step_ms"].get<double>());
    }
  }
  progress.clear();
  return {{"model", options.model},
          {"batch", options.batch},
          {"ranks", options.ranks},
          {"device", options.device},
          {"processor", processor},
          {"cores", cpu_cores()},
          {"seconds", options.seconds},
          {"rows", names},
          {"rounds", rounds},
          {"command", command_line()},
          {"machine", machine_name()},
          {"commit", build_commit()},
          {"version", RINGGRAD_VERSION},
          {"max_difference", compare_results(rows.size() > 2, files)}};
}

namespace {

void write_json(const fs::path& file, const json& document) {
  write_text(file, json_text(document, 1) + '\n');
}

// Does the same in a directory that is made first, because the results take minutes.
json measure_into(const fs::path& run, const BenchDdpOptions& options) {
  try {
    json measured = measure_rows(options);
    write_json(run / "measurements.json", measured);
    return measured;
  } catch (...) {
    std::error_code ignored;
    fs::remove(run, ignored);  // if it is empty
    throw;
  }
}

json read_measurements(const std::string& path) {
  const fs::path from = find_run(path, kBenchDdpRun);
  if (!kind_of(from).empty()) check_kind(from, kBenchDdpRun);
  const fs::path file = fs::is_directory(from) ? from / "measurements.json" : from;
  CHECK_AS(DataError, fs::exists(file), "bench ddp: there is no ", file.string(),
           ", where --from expects what was measured");
  json measured = json_if_whole(text_of(file));
  CHECK_AS(DataError, measured.contains("rounds") && !measured["rounds"].empty(),
           "bench ddp: ", file.string(), " is damaged, or no measurements.json of bench ddp");
  return measured;
}

json explained(const json& measured, const BenchDdpOptions& options) {
  json document = explain_rounds(measured);
  predict_rows(document);
  document["advice"] = advise({document});
  if (!options.predict.empty())
    document["prediction"] = predict_clusters(document, prediction_of(options));
  return document;
}

// Draws the results as they were left, with a prediction if there is one, else what was measured.
std::string report_run(const fs::path& run, const fs::path& file) {
  const fs::path results = run / "results.json";
  json document = fs::exists(results) ? json_if_whole(text_of(results)) : json();
  try {
    if (!document.contains("advice")) document = explained(read_measurements(run.string()), {});
    write_ddp_page(document, file);
    return headline_of(document);
  } catch (const json::exception& error) {
    throw DataError(fmt::format("report: {} lacks what is to be drawn: {}", run.string(),
                                without_number(error)));
  }
}

const auto kReport = other_reports().insert(other_reports().end(), {kBenchDdpRun, report_run});

int bench_ddp(const BenchDdpOptions& options) try {
  if (!options.row.empty()) return run_row(options);
  for (const std::string& words : options.buckets)
    if (words != "0") (void)bucket_mb_from(words);
  const bool measures = options.from.empty();
  const fs::path run =
      measures ? make_result_directory(options.out, "bench-ddp-" + options.model) : fs::path();
  const json measured = measures ? measure_into(run, options) : read_measurements(options.from);
  json document = explained(measured, options);

  const std::string device = document.at("device");
  const std::string processor = document.value("processor", "");
  result("{} · batch {} · {} · {}", document.at("model").get<std::string>(),
         document.at("batch").get<int64_t>(),
         counted(static_cast<int64_t>(measured["rounds"].size()), "round"),
         Device(device).is_cpu() ? counted(document.at("cores").get<int>(), "core") + " in all"
                                 : device + ": " + processor);
  print_ddp(document);
  if (document.contains("max_difference")) print_comparison(document["max_difference"]);
  if (measures) {
    document["run"] = run.string();
    write_json(run / "results.json", document);
    if (options.report) write_ddp_page(document, run / "report.html");
    message("written {}", (run / (options.report ? "report.html" : "results.json")).string());
  }
  print_json(document);
  return kOk;
} catch (const json::exception& error) {
  throw DataError(
      fmt::format("bench ddp: the measurements lack something: {}", without_number(error)));
}

void add_options(CLI::App* app, BenchDdpOptions& o) {
  app->option_defaults()->always_capture_default();  // --help shows them
  app->add_option("--model", o.model, "as for train");
  app->add_option("--batch", o.batch, "images of a step, of all ranks together")->check(kPositive);
  app->add_option("--ranks", o.ranks, "ranks, or devices of dp")->check(CLI::Range(1, 64));
  add_device_option(app, o.device);
  app->add_option("--backend", o.backend, parallel_config_field("backend").help);
  app->add_option("--seconds", o.seconds, "seconds to measure each row per round")
      ->check(CLI::Range(0.01, 1000.0));
  app->add_option("--rounds", o.rounds, "how often all rows are measured in turn")
      ->check(kPositive);
  app->add_option("--bucket-mb", o.buckets,
                  "largest bucket in MB, or auto; several, as auto,0.25,1: a row for each")
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

const Command kBenchDdp(191, "bench ddp",
                        "DataParallel and DistributedDataParallel on the same batch and cores",
                        bench_ddp, add_options);

}  // namespace
}  // namespace ringgrad::program
