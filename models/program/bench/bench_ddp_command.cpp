// `ringgrad bench ddp`: one batch, divided by DataParallel and by DistributedDataParallel, on the same cores or GPUs.
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>

#include <nlohmann/json.hpp>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/base/environment.h"
#include "ringgrad/core/device/device_backend.h"
#include "ringgrad/distributed/job/rank_environment.h"
#include "ringgrad/distributed/launch.h"
#include "ringgrad/distributed/launcher/supervisor.h"
#include "ringgrad/models/program/bench/ddp_workload.h"
#include "ringgrad/models/program/console/console.h"
#include "ringgrad/models/program/console/exit_code.h"
#include "ringgrad/models/program/run/division.h"
#include "ringgrad/models/program/run/recipe.h"
#include "ringgrad/models/program/run/temporary_directory.h"
#include "ringgrad/nn/safetensors.h"

namespace ringgrad::program {
namespace {

namespace fs = std::filesystem;

// What this build can run there.
std::vector<std::string> rows_on(Device device) {
  if (connects_ranks_on(device)) return {"none", "dp", "ddp_no_overlap", "ddp"};
  return {"none", "dp"};
}

constexpr const char* kFileVariable = "RINGGRAD_BENCH_FILE";  // where rank 0 of a row writes its result

fs::path parameters_beside(fs::path row) { return row.replace_extension("safetensors"); }

int run_row(const BenchDdpOptions& options) {
  if (options.row == "dp") setenv("RINGGRAD_CPU_DEVICES", std::to_string(options.ranks).c_str(), 1);
  InitOptions group = group_options_for(options.device, options.backend);
  const Device first(options.device);
  if (!options.row.starts_with("ddp"))
    group.backend = "ring";  // of one process
  else if (first.is_cuda())  // the same devices as DataParallel's
    group.device = Device(first.type, first.index + rank_environment().local_rank);
  return launch_or_throw(
      [&] {
        const std::string path = variable(kFileVariable);
        const nlohmann::json row =
            measure_row(options, process_group(), path.empty() ? fs::path() : parameters_beside(path));
        if (!process_group().is_main_process() || path.empty()) return;
        std::ofstream file(path);
        file << row << std::flush;
        if (!file) throw IoError(fmt::format("bench ddp: cannot write {}: {}", path, std::strerror(errno)));
      },
      {.group = group});
}

// The row, measured in processes of its own, which write it to this file; throws what went wrong there.
nlohmann::json measure_in_processes(const BenchDdpOptions& options, const std::string& row, const fs::path& file) {
  setenv(kFileVariable, file.c_str(), 1);
  SupervisorOptions job;
  job.num_processes = row.starts_with("ddp") ? options.ranks : 1;
  job.command = {"/proc/self/exe", "bench", "ddp"};
  const auto pass = [&](const char* option, const auto& value) {
    job.command.insert(job.command.end(), {option, fmt::format("{}", value)});
  };
  pass("--row", row);
  pass("--model", options.model);
  pass("--device", options.device);
  pass("--backend", options.backend);
  pass("--batch", options.batch);
  pass("--ranks", options.ranks);
  pass("--seconds", options.seconds);
  pass("--bucket-mb", options.bucket_mb);
  const JobResult result = supervise(job);
  if (result.exit_code != kOk)
    throw JobFailed(result.exit_code, fmt::format("bench ddp: row {}: {}", row, result.report));
  return nlohmann::json::parse(std::ifstream(file));
}

// The run with the median speed of several; kept_of_no_communication is the median of theirs.
nlohmann::json middle(std::vector<nlohmann::json> runs) {
  const auto by = [&](const char* key) {
    std::sort(runs.begin(), runs.end(), [key](const auto& a, const auto& b) { return a[key] < b[key]; });
    return runs[runs.size() / 2];
  };
  if (!runs[0].contains("kept_of_no_communication")) return by("images_per_second");
  const double kept = by("kept_of_no_communication")["kept_of_no_communication"];
  nlohmann::json row = by("images_per_second");
  row["kept_of_no_communication"] = kept;
  return row;
}

void print_row(const nlohmann::json& row, double single_ms) {
  std::vector<int64_t> memory = row["memory_bytes"];
  std::sort(memory.rbegin(), memory.rend());
  const auto number = [&](const char* key) { return row[key].get<double>(); };
  const double step_ms = number("step_ms");
  std::string exposed, kept;  // not of one process
  if (row.contains("exposed_ms"))
    exposed = fmt::format("{:.2f} ms {:4.1f} %", number("exposed_ms"), 100 * number("exposed_ms") / step_ms);
  if (row.contains("kept_of_no_communication"))
    kept = fmt::format("{:.1f} %", 100 * number("kept_of_no_communication"));
  result("{:<15}{:>5}{:>11.2f} ms{:>10}{:>9.2f}×{:>19}{:>9}   {:>9} / {:<9}{:>10}", row["row"].get<std::string>(),
         row["ranks"].get<int>(), step_ms, with_commas(static_cast<int64_t>(number("images_per_second"))),
         single_ms / step_ms, exposed, kept, human_bytes(memory.front()), human_bytes(memory.back()),
         human_bytes(row["moved_bytes"]));
}

// DataParallel's communication is no separate activity that could be timed: it is what its step takes longer than the
// same two halves of the batch do without any. On GPUs that goes for all.
void add_prices(std::map<std::string, nlohmann::json>& rows) {
  if (!rows.contains("ddp")) return;
  const double alone = rows["ddp"]["no_communication_ms"];
  rows["dp"]["kept_of_no_communication"] = alone / rows["dp"]["step_ms"].get<double>();
  for (auto& [name, row] : rows)
    if (name != "none" && !row.contains("exposed_ms"))
      row["exposed_ms"] = row["step_ms"].get<double>() - row.value("no_communication_ms", alone);
}

using Runs = std::map<std::string, std::vector<nlohmann::json>>;  // of each row, by round

// The ratio is taken within a round.
void print_verdict(const Runs& runs) {
  std::vector<double> ratios;
  for (size_t round = 0; round < runs.at("ddp").size(); ++round)
    ratios.push_back(runs.at("dp")[round]["step_ms"].get<double>() / runs.at("ddp")[round]["step_ms"].get<double>());
  result("DDP is {:.2f}× as fast as DataParallel ({:.2f}–{:.2f} in {} rounds).", median(ratios), quantile(ratios, 0),
         quantile(ratios, 1), ratios.size());
}

double largest_difference(const fs::path& a, const fs::path& b) {
  const auto of_a = nn::load_safetensors(a).tensors, of_b = nn::load_safetensors(b).tensors;
  double largest = 0;
  for (size_t i = 0; i < of_a.size(); ++i) {
    const double difference = max(abs(of_a[i].second - of_b[i].second)).item<float>();
    if (!(difference <= largest)) largest = std::isfinite(difference) ? difference : INFINITY;
  }
  return largest;
}

// Whether dividing the work has changed it.
nlohmann::json compare_results(const std::vector<std::string>& rows, const TemporaryDirectory& files) {
  const auto difference = [&](const std::string& a, const std::string& b) {
    return largest_difference(parameters_beside(files.of(a)), parameters_beside(files.of(b)));
  };
  nlohmann::json compared = {{"steps", kComparedSteps}, {"none_dp", difference("none", "dp")}};
  std::string text = fmt::format("same result: after {} steps max |Δ| to one process: DataParallel {:.1e}",
                                 kComparedSteps, compared["none_dp"].get<double>());
  if (rows.size() > 2) {
    compared["none_ddp"] = difference("none", "ddp");
    compared["dp_ddp"] = difference("dp", "ddp");
    text += fmt::format(", DDP {:.1e}; between the two {:.1e} · DDP ranks bit-identical",
                        compared["none_ddp"].get<double>(), compared["dp_ddp"].get<double>());
  }
  result(text);
  return compared;
}

}  // namespace

int bench_ddp(const BenchDdpOptions& options) {
  if (!options.row.empty()) return run_row(options);
  recipe_field("model").check_choice(options.model);
  check_divisible(options.batch, options.ranks);
  check_backend(options.backend, options.device);
  const Device first(options.device);
  check_device("bench ddp", first);
  if (first.is_cuda()) check_device("bench ddp", Device(first.type, first.index + options.ranks - 1));
  if (first.is_cpu() && options.ranks > cpu_cores() && !options.force)
    throw UsageError("bench ddp: {} ranks on {} cores: the rows would measure the scheduler; --force to run",
                     options.ranks, cpu_cores());
  double load = 0;
  if (getloadavg(&load, 1) == 1 && load > 0.5)
    message("load {:.1f}: other work is running, and shares the cores with what is measured", load);

  const std::string processor = device_backend(first.type).describe(first.index);
  if (processor.starts_with("emulated")) message("{} is {}, and its times mean nothing", options.device, processor);
  const std::vector<std::string> names = rows_on(first);
  if (names.size() == 2)
    message("the ranks of ddp on {} need NCCL between processes, which this build lacks: left out", options.device);

  const TemporaryDirectory files("bench ddp");
  Runs runs;
  message("{} rows in turn, {} times {} s each and what it takes to start them: {}", names.size(), options.rounds,
          options.seconds, fmt::join(names, ", "));
  Progress progress("bench ddp", static_cast<int64_t>(names.size()) * options.rounds);
  int64_t done = 0;
  for (int round = 0; round < options.rounds; ++round)  // in turn, so that a slow minute hits all of them
    for (const std::string& row : names) {
      runs[row].push_back(measure_in_processes(options, row, files.of(row)));
      progress.update(++done, [&] {
        return fmt::format("{} img/s with {}",
                           with_commas(static_cast<int64_t>(runs[row].back()["images_per_second"].get<double>())), row);
      });
    }
  progress.clear();
  std::map<std::string, nlohmann::json> rows;
  for (const auto& [name, several] : runs) rows[name] = middle(several);
  add_prices(rows);

  result("{} · batch {} · {} rounds of {} s a row · {}", options.model, options.batch, options.rounds, options.seconds,
         first.is_cpu() ? fmt::format("{} cores in all", cpu_cores()) : options.device + ": " + processor);
  result("{:<15}{:>5}{:>14}{:>10}{:>10}{:>19}{:>9}   {:^21}{:>10}", "", "ranks", "step", "img/s", "speed-up",
         "exposed comm.", "kept", "memory: most / least", "moved");
  nlohmann::json document = {{"model", options.model},
                             {"batch", options.batch},
                             {"device", options.device},
                             {"processor", processor},
                             {"rows", nlohmann::json::array()}};
  for (const std::string& row : names) {
    print_row(rows[row], rows["none"]["step_ms"]);
    document["rows"].push_back(rows[row]);
  }
  if (runs.contains("ddp")) print_verdict(runs);
  document["max_difference"] = compare_results(names, files);
  message(
      "kept: throughput as a part of that of the same processes without communication (no_sync), in turn; dp's is\n"
      "against ddp's, and its exposed communication the difference. moved: bytes of a step between devices. |Δ|: of\n"
      "parameters; where there is batch norm, which sees the whole batch in one process only, compare the two others.");
  print_json(document);
  return kOk;
}

}  // namespace ringgrad::program
