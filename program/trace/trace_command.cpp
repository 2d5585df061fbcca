// `ringgrad trace`: when each bucket of gradients was ready, launched and complete, beside
// backward, in a step that all ranks take then and there.
#include <algorithm>
#include <optional>
#include <thread>

#include <nlohmann/json.hpp>

#include "ringgrad/core/base/file.h"
#include "ringgrad/data/datasets/program_command.h"
#include "ringgrad/distributed/job/rank_environment.h"
#include "ringgrad/distributed/launch.h"
#include "ringgrad/program/bench/ddp_workload.h"
#include "ringgrad/program/command.h"
#include "ringgrad/program/console/console.h"
#include "ringgrad/program/console/document.h"
#include "ringgrad/program/console/exit_code.h"
#include "ringgrad/program/run/parallel_config.h"
#include "ringgrad/program/run/recipe.h"
#include "ringgrad/program/run/run_directory.h"
#include "ringgrad/program/trace/one_clock.h"
#include "ringgrad/program/trace/perfetto.h"
#include "ringgrad/program/trace/step_recorder.h"
#include "ringgrad/program/trace/timeline_svg.h"

namespace ringgrad::program {
namespace {

struct TraceOptions : WorkloadOptions {
  // A small network, too, has several buckets then; each is shown.
  std::vector<double> bucket_caps = {0.25};
  // The last one is shown.
  int steps = 10;
  // Also write the step of all ranks to this file, for ui.perfetto.dev.
  std::string perfetto;
  // Also draw it to this file.
  std::string svg;
};

std::string bar(const BucketLog& bucket, const ReductionLog& log, int width) {
  const auto column = [&](double t) { return static_cast<int>(t / log.finished * (width - 1)); };
  std::string text;
  for (int at = 0; at < width; ++at) {
    if (column(bucket.launched) <= at && at <= column(bucket.completed))
      text += "█";
    else if (column(bucket.ready) <= at && at < column(bucket.launched))
      text += "░";
    else
      text += at == column(log.computed) ? "│" : " ";
  }
  return text;
}

// Returns "layer3.2.conv1.weight", or ".conv1.weight" if that is too long.
std::string within(const std::string& name, size_t columns) {
  size_t from = 0;
  while (name.size() - from > columns && name.find('.', from + 1) != std::string::npos)
    from = name.find('.', from + 1);
  return name.substr(from, columns);
}

// Returns the first and the last of a bucket's parameters.
std::pair<std::string, std::string> ends_of(const BucketLog& bucket) {
  const std::string names = first_and_last(*bucket.parameters);
  const size_t space = names.find(' ');
  return space == std::string::npos
             ? std::pair(names, names)
             : std::pair(names.substr(0, space), names.substr(names.rfind(' ') + 1));
}

// Returns the first and the last parameter. If both do not fit, returns the first and how many more
// there are.
std::string parameters_of(const BucketLog& bucket, size_t columns) {
  const std::string both = first_and_last(*bucket.parameters);
  if (both.size() <= columns) return both;
  const std::string& names = *bucket.parameters;
  const size_t end = std::min(names.find(" ("), names.size());
  const auto more = std::count(names.begin(), names.begin() + static_cast<ptrdiff_t>(end), ' ');
  const std::string rest = more > 0 ? fmt::format(" and {} more", more) : "";
  return within(ends_of(bucket).first, columns - std::min(columns, rest.size())) + rest;
}

void print(const ReductionLog& log) {
  result("\n{:>6}{:>10}{:>8}{:>10}{:>10}  parameters", "bucket", "size", "ready", "launched",
         "completed");
  const auto columns = static_cast<size_t>(line_width() - 46);
  for (size_t b = 0; b < log.buckets.size(); ++b) {
    const BucketLog& bucket = log.buckets[b];
    result("{:>6}{:>10}{:>8.2f}{:>10.2f}{:>10.2f}  {}", b, human_bytes(bucket.bytes),
           bucket.ready * 1e3, bucket.launched * 1e3, bucket.completed * 1e3,
           parameters_of(bucket, columns));
  }
  const int width = line_width() - 8;
  const int end = static_cast<int>(log.computed / log.finished * (width - 1));
  result("\nbackward{:─>{}}┤", "", end);
  for (size_t b = 0; b < log.buckets.size(); ++b)
    result("{:>6}  {}", b, bar(log.buckets[b], log, width));
  const Communication seconds = communication_of(log);
  result("\nBackward took {:.2f} ms; the gradients were averaged {:.2f} ms after it.",
         log.computed * 1e3, log.exposed() * 1e3);
  result("Of {:.2f} ms of communication {:.2f} ms were hidden behind backward: {:.0f} %.",
         seconds.all * 1e3, seconds.hidden * 1e3,
         seconds.all > 0 ? 100 * seconds.hidden / seconds.all : 0.0);
}

// The median of several steps, and their least and largest time.
struct Spread {
  double middle;
  double least;
  double most;
};
Spread spread_of(const std::vector<double>& ms) {
  return {median(ms), quantile(ms, 0), quantile(ms, 1)};
}

// Prints the times of all recorded steps except the first ones, which measure and plan.
nlohmann::json print_steps(const std::vector<ReductionLog>& logs) {
  constexpr size_t kFirst = 2;
  if (logs.size() <= kFirst + 1) return nullptr;
  std::vector<double> backward;
  std::vector<double> exposed;
  for (size_t i = kFirst; i < logs.size(); ++i) {
    backward.push_back(logs[i].computed * 1e3);
    exposed.push_back(logs[i].exposed() * 1e3);
  }
  const Spread b = spread_of(backward);
  const Spread e = spread_of(exposed);
  result("Of {} the median: backward {:.2f} ms ({:.2f} to {:.2f}),",
         counted(static_cast<int64_t>(backward.size()), "step"), b.middle, b.least, b.most);
  result("gradients averaged {:.2f} ms after it ({:.2f} to {:.2f}).", e.middle, e.least, e.most);
  const auto as_json = [](const Spread& s) {
    return nlohmann::json{{"median", s.middle}, {"least", s.least}, {"most", s.most}};
  };
  return {{"count", backward.size()}, {"backward_ms", as_json(b)}, {"exposed_ms", as_json(e)}};
}

// A parameter that is larger than a bucket ends one and begins the next.
nlohmann::json explain_split(const ReductionLog& log) {
  nlohmann::json split = nlohmann::json::object();
  for (size_t b = 0; b + 1 < log.buckets.size(); ++b)
    if (const std::string name = ends_of(log.buckets[b]).second;
        name == ends_of(log.buckets[b + 1]).first)
      split[name] = split.value(name, 1) + 1;
  for (const auto& [name, buckets] : split.items())
    result("{} is larger than a bucket, and travels in {}.", within(name, 40), buckets.get<int>());
  return split;
}

void write_file(AtomicFile& file, const std::string& text) {
  file.write(text);
  file.commit();
}

// Returns rank 0's description of the step; null on other ranks.
nlohmann::json trace_step(const TraceOptions& options, ProcessGroup& group) {
  // One that cannot be written is an error before the steps.
  std::optional<AtomicFile> perfetto;
  std::optional<AtomicFile> svg;
  if (group.is_main_process() && !options.perfetto.empty()) perfetto.emplace(options.perfetto);
  if (group.is_main_process() && !options.svg.empty()) svg.emplace(options.svg);
  Workload work(options, "ddp_traced", group);
  std::optional<StepRecorder> recorder;
  if (!options.perfetto.empty() || !options.svg.empty()) recorder.emplace(work.model(), work.ddp());
  std::vector<ReductionLog> logs;
  for (int step = 0; step < options.steps; ++step) {
    const bool record = recorder && step + 1 == options.steps;
    group.barrier().wait();
    if (record) recorder->start();
    work.step([&](const char* phase) {
      if (record) recorder->begins(phase);
    });
    logs.push_back(work.ddp()->log());
    if (record) {
      recorder->end_step();
      recorder->pause();
    }
  }
  std::vector<StepRecord> records;
  if (recorder) records = on_one_clock(recorder->take(), group);
  if (!group.is_main_process()) return nullptr;

  const ReductionLog& log = logs.back();
  const std::string title = fmt::format("{} · batch {} on {} ranks ({}) · step {}", options.model,
                                        options.batch, group.size(), group.backend(), log.step);
  result(
      "{}{}", title,
      options.bucket_caps.size() > 1 ? fmt::format("\nbuckets of {} MB", options.bucket_mb) : "");
  print(log);
  nlohmann::json document = log_as_json(log);
  document.update({{"model", options.model},
                   {"batch", options.batch},
                   {"ranks", group.size()},
                   {"backend", group.backend()},
                   {"device", str(group.device())},
                   {"steps", print_steps(logs)},
                   {"split", explain_split(log)}});
  message(
      "Milliseconds since backward began, on rank 0. ░ ready, but others go first;\n"
      "█ its all-reduce, waiting for other ranks included; │ backward has ended.\n"
      "The last bucket is always launched after that.");
  if (group.device().is_cuda())
    message(
        "The host waits for the GPU wherever a time is noted, "
        "so the step is slower than in\ntraining.");
  if (perfetto) {
    write_file(*perfetto, perfetto_trace(records).dump() + "\n");
    message("wrote {} (open it in ui.perfetto.dev)", options.perfetto);
  }
  if (svg) {
    write_file(*svg, timeline_svg(title, records));
    message("wrote {}", options.svg);
  }
  return document;
}

void warn_of_load() {
  double load = 0;
  // The cores of all ranks together.
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  if (getloadavg(&load, 1) == 1 && load > 0.5 * cores)
    message("note    load {:.1f} on {}: other programs run, too, and are in these times", load,
            counted(cores, "core"));
}

// Prints the same steps with each cap, below each other.
void trace_each(TraceOptions options, ProcessGroup& group) {
  if (group.is_main_process()) warn_of_load();
  std::vector<nlohmann::json> documents;
  for (const double cap : options.bucket_caps) {
    options.bucket_mb = cap;
    documents.push_back(trace_step(options, group));
    if (!group.is_main_process()) continue;
    documents.back()["bucket_mb"] = cap;
    if (documents.size() < options.bucket_caps.size()) result("");
  }
  if (!group.is_main_process()) return;
  print_json(documents.size() == 1 ? documents[0] : nlohmann::json{{"traces", documents}});
}

int trace(const TraceOptions& options) {
  recipe_field("model").check_choice(options.model);
  const RankEnvironment here = rank_environment();
  const bool is_rank = !here.source.empty();
  const int ranks = is_rank ? here.size : options.ranks;
  if (ranks < 2)
    throw UsageError("trace: one rank has nobody to average gradients with; --ranks 2 or more");
  check_ranks("trace", ranks, options.device, options.backend);
  check_divisible(options.batch, ranks);
  if (options.bucket_caps.size() > 1 && !(options.perfetto + options.svg).empty())
    throw UsageError("trace: --perfetto and --svg show one --bucket-mb, not {}",
                     options.bucket_caps.size());
  check_output(options.perfetto);
  check_output(options.svg);
  if (!is_rank && ranks > cpu_cores())
    message("{} on {} take turns: the times tell of the scheduler, too", counted(ranks, "rank"),
            counted(cpu_cores(), "core"));
  return report_end(launch_or_throw([&] { trace_each(options, process_group()); },
                                    {.num_processes = ranks,
                                     .group = group_options_for(options.device, options.backend),
                                     .environment = document_for_ranks()}));
}

void add_options(CLI::App* app, TraceOptions& o) {
  app->option_defaults()->always_capture_default();  // --help shows them
  app->add_option("--model", o.model, "as for train");
  app->add_option("--batch", o.batch, "images of a step, of all ranks together")->check(kPositive);
  app->add_option("--ranks", o.ranks, "processes that share each batch")->check(CLI::Range(1, 64));
  add_device_option(app, o.device);
  app->add_option("--backend", o.backend, parallel_config_field("backend").help);
  app->add_option("--steps", o.steps,
                  "train so many steps; the last one is shown, beside their median")
      ->check(kPositive);
  app->add_option("--bucket-mb", o.bucket_caps,
                  "largest bucket in MB, or several: 0.25,1,25; 0: as train")
      ->delimiter(',')
      ->check(CLI::Range(0.0, 1e6));
  app->add_option("--perfetto", o.perfetto,
                  "also write all ranks' step to this file, for ui.perfetto.dev");
  app->add_option("--svg", o.svg, "also draw it to this file");
  app->footer("Example\n  " + program_command("trace --model resnet18 --batch 32 --bucket-mb 4"));
}

const Command kTrace(80, "trace",
                     "When each bucket is averaged while backward runs: a timeline of a step",
                     trace, add_options);

}  // namespace
}  // namespace ringgrad::program
