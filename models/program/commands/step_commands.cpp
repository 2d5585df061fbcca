// What a training step is made of: `ringgrad graph` shows its tape; `ringgrad trace`, when each bucket of gradients was
// ready, launched and complete, beside backward.
#include <algorithm>
#include <sstream>

#include <nlohmann/json.hpp>

#include "ringgrad/autograd/graph_print.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/distributed/job/rank_environment.h"
#include "ringgrad/distributed/launch.h"
#include "ringgrad/models/program/bench/ddp_workload.h"
#include "ringgrad/models/program/commands/commands.h"
#include "ringgrad/models/program/console/console.h"
#include "ringgrad/models/program/console/exit_code.h"
#include "ringgrad/models/registry.h"

namespace ringgrad::program {

int graph(const GraphOptions& options) {
  recipe_field("model").check_choice(options.model);
  const models::ModelOptions sizes = models::usual_images(options.model);
  const auto model = models::make_model(options.model, sizes);
  const Tensor x = zeros({2, sizes.in_channels, sizes.image_size, sizes.image_size});
  const Tensor loss = cross_entropy(model->forward(x), zeros({2}, {.dtype = DType::Int64}));
  std::ostringstream text;
  if (options.dot)
    print_graph_dot(text, loss, model->named_parameters());
  else
    print_graph(text, loss, model->named_parameters());
  result(text.str());
  return kOk;
}

namespace {

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

void print(const ReductionLog& log, bool on_gpu) {
  result("\n{:>6}{:>11}{:>9}{:>10}{:>11}   parameters", "bucket", "size", "ready", "launched", "completed");
  for (size_t b = 0; b < log.buckets.size(); ++b) {
    const BucketLog& bucket = log.buckets[b];
    result("{:>6}{:>11}{:>9.2f}{:>10.2f}{:>11.2f}   {}", b, human_bytes(bucket.bytes), bucket.ready * 1e3,
           bucket.launched * 1e3, bucket.completed * 1e3, first_and_last(*bucket.parameters));
  }
  const int width = line_width() - 8;
  const int end = static_cast<int>(log.computed / log.finished * (width - 1));
  result("\nbackward{:─>{}}┤", "", end);
  for (size_t b = 0; b < log.buckets.size(); ++b) result("{:>6}  {}", b, bar(log.buckets[b], log, width));
  const Communication seconds = communication_of(log);
  result("\nBackward took {:.2f} ms; the gradients were averaged {:.2f} ms after it.", log.computed * 1e3,
         log.exposed() * 1e3);
  result("Of {:.2f} ms of communication {:.2f} ms were hidden behind backward: {:.0f} %.", seconds.all * 1e3,
         seconds.hidden * 1e3, seconds.all > 0 ? 100 * seconds.hidden / seconds.all : 0.0);
  message(
      "Milliseconds since backward began, on rank 0. ░ ready, but others go first; █ its all-reduce, and\n"
      "waiting for other ranks; │ backward has ended. The last bucket is always launched after that.");
  if (on_gpu) message("The host waits for the GPU wherever a time is noted, so the step is slower than in training.");
}

void trace_step(const TraceOptions& options, ProcessGroup& group) {
  Workload work(options, "ddp_traced", group);
  work.block(options.steps);
  if (!group.is_main_process()) return;
  const ReductionLog& log = work.ddp()->log();
  result("{} · batch {} on {} ranks ({}) · step {}", options.model, options.batch, group.size(), group.backend(),
         log.step);
  print(log, group.device().is_cuda());
  nlohmann::json document = log_as_json(log);
  document.update({{"model", options.model},
                   {"batch", options.batch},
                   {"ranks", group.size()},
                   {"backend", group.backend()},
                   {"device", str(group.device())}});
  print_json(document);
}

}  // namespace

int trace(const TraceOptions& options) {
  recipe_field("model").check_choice(options.model);
  const RankEnvironment here = rank_environment();
  const bool is_rank = !here.source.empty();
  const int ranks = is_rank ? here.size : options.ranks;
  if (ranks < 2) throw UsageError("trace: one rank has nobody to average gradients with; --ranks 2 or more");
  check_ranks("trace", ranks, options.device, options.backend);
  check_divisible(options.batch, ranks);
  if (!is_rank && ranks > cpu_cores())
    message("{} ranks on {} cores take turns: the times tell of the scheduler, too", ranks, cpu_cores());
  return report_end(
      launch_or_throw([&] { trace_step(options, process_group()); },
                      {.num_processes = ranks, .group = group_options_for(options.device, options.backend)}));
}

}  // namespace ringgrad::program
