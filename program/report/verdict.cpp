#include "ringgrad/program/report/verdict.h"

#include <algorithm>
#include <cmath>

#include "ringgrad/data/datasets/program_command.h"
#include "ringgrad/program/console/console.h"
#include "ringgrad/program/report/findings.h"

namespace ringgrad::program {
namespace {

constexpr int64_t kFewSteps = 10;  // whose times say nothing yet

std::string percent(double part) { return fmt::format("{:.0f} %", 100 * part); }
std::string ms(double seconds) {
  return fmt::format("{:.{}f} ms", seconds * 1e3, seconds < 0.01 ? 2 : 1);
}

double mean_of(const RunSummary& s, auto of) {
  double sum = 0;
  for (const RankSummary& rank : s.ranks) sum += of(rank);
  return sum / static_cast<double>(s.ranks.size());
}
double least_of(const RunSummary& s, auto of) {
  double least = of(s.ranks.front());
  for (const RankSummary& rank : s.ranks) least = std::min<double>(least, of(rank));
  return least;
}

void judge_processor(const RunRecord& run, double step, Findings& found) {
  const RunSummary& s = *run.summary;
  const double starved = mean_of(s, [](const RankSummary& r) { return r.starved; }) / step;
  const double by_all = least_of(s, [](const RankSummary& r) { return r.starved; }) / step;
  const auto ranks = static_cast<int>(s.ranks.size());
  if (s.throttled >= 0.05)
    return found.push_back(
        {std::max(s.throttled, starved),
         {"throttled",
          fmt::format("the quota of processor time was spent in {} of the scheduler's periods: the "
                      "ranks stood still {} of the time",
                      percent(s.throttled), percent(starved)),
          "cat /sys/fs/cgroup/cpu.max  # and have it raised"}});
  if (by_all < 0.15) return;
  if (ranks * s.threads > s.cores)
    return found.push_back(
        {by_all,
         {"oversubscribed",
          fmt::format("{} × {} share {}: each is without one {} of the time",
                      counted(ranks, "rank"), counted(s.threads, "thread"),
                      counted(s.cores, "core"), percent(starved)),
          train_with(run,
                     fmt::format("--ranks {}", std::max(1, s.cores / std::max(1, s.threads))))}});
  // A process's own threads, such as loaders, take turns, too: that is no trouble.
  double own = 0;
  for (const RankSummary& rank : s.ranks) own += rank.processor;
  const double others = (s.ranks.front().machine - own) / (step * std::max(1, s.cores));
  if (others >= 0.1)
    found.push_back(
        {by_all,
         {"busy-processor",
          fmt::format("other programs use {} of {}: the ranks stood in line for one {} of the time",
                      percent(others),
                      s.cores == 1 ? "the core" : fmt::format("the {} cores", s.cores),
                      percent(starved)),
          "top  # what else is running"}});
}

// The bucket from which on a rank is behind the others: ready times are its own computation alone.
std::string slow_layer(const RunSummary& s, size_t slow, double excess) {
  const auto& own = s.ranks[slow].buckets;
  double before = 0;
  double jump = 0;
  std::string where;
  for (size_t b = 0; b < own.size(); ++b) {
    double others = 0;
    for (size_t r = 0; r < s.ranks.size(); ++r) {
      if (s.ranks[r].buckets.size() != own.size()) return "";
      if (r != slow)
        others += s.ranks[r].buckets[b].ready / static_cast<double>(s.ranks.size() - 1);
    }
    const double later = own[b].ready - others;
    if (later - before > jump) {
      jump = later - before;
      where = own[b].parameters;
    }
    before = later;
  }
  return own.size() > 1 && jump > 0.5 * excess
             ? ", most of it in backward before " + where.substr(0, where.find(' '))
             : "";
}

void judge_straggler(const RunRecord& run, double step, Findings& found) {
  const RunSummary& s = *run.summary;
  if (s.ranks.size() < 2) return;
  const auto own = [](const RankSummary& r) { return r.compute() + r.part(Part::Data); };
  const auto slowest =
      std::max_element(s.ranks.begin(), s.ranks.end(),
                       [&](const auto& a, const auto& b) { return own(a) < own(b); });
  const auto rank = static_cast<size_t>(slowest - s.ranks.begin());
  const auto others = [&](auto of) {
    return (mean_of(s, of) * static_cast<double>(s.ranks.size()) - of(*slowest)) /
           static_cast<double>(s.ranks.size() - 1);
  };
  const auto excess = [&](auto of) { return of(*slowest) - others(of); };
  const auto waiting = [](const RankSummary& r) { return r.part(Part::Waiting); };
  const double behind = excess(own);
  if (behind < 0.1 * step || excess(waiting) > 0) return;
  const auto data = [](const RankSummary& r) { return r.part(Part::Data); };
  const auto starved = [](const RankSummary& r) { return r.starved; };
  // A rank may also lack a core while it waits for others.
  const auto busy = [](const RankSummary& r) { return std::max(0.0, r.compute() - r.starved); };
  const auto compute = [](const RankSummary& r) { return r.compute(); };
  const double by_data = excess(data);
  const double by_queue = excess(starved);
  const double by_work = excess(busy);
  const auto said = [&](const char* what, auto of, const std::string& more,
                        const std::string& next) {
    found.push_back(
        {behind / step,
         {"straggler",
          fmt::format("rank {} {} {} in a step, the others {}: they wait {} of {} for it{}", rank,
                      what, ms(of(*slowest)), ms(others(of)), ms(others(waiting)), ms(step), more),
          next}});
  };
  if (by_data >= std::max(by_queue, by_work))
    said("waits for its data", data, "",
         train_with(run, fmt::format("--workers {}", std::max(2, 2 * s.workers))));
  else if (by_queue >= by_work)
    said("stands in line for a core", starved, "", "top  # what else runs on its core");
  else
    said("computes", compute, slow_layer(s, rank, behind), program_command("explain straggler"));
}

void judge_input(const RunRecord& run, double step, Findings& found) {
  const RunSummary& s = *run.summary;
  const double part = least_of(s, [](const RankSummary& r) { return r.part(Part::Data); }) / step;
  if (part < 0.1) return;
  found.push_back({part,
                   {"input-bound",
                    fmt::format("{} of each {} step is spent waiting for data, which {} prepare{}",
                                percent(part), ms(step), counted(s.workers, "loader thread"),
                                s.workers == 1 ? "s" : ""),
                    train_with(run, fmt::format("--workers {}", std::max(2, 2 * s.workers)))}});
}

void judge_communication(const RunRecord& run, double step, Findings& found) {
  const RunSummary& s = *run.summary;
  const auto& buckets = s.ranks.front().buckets;
  if (s.ranks.size() < 2 || buckets.empty()) return;
  // Ranks that wait for another rank to get a core do not wait for communication.
  const double part = (least_of(s, [](const RankSummary& r) { return r.part(Part::Waiting); }) -
                       least_of(s, [](const RankSummary& r) { return r.starved; })) /
                      step;
  int64_t bytes = 0;
  // This excludes waiting for other ranks, because the last rank to launch a bucket waits for none.
  double travelled = 0;
  for (size_t b = 0; b < buckets.size(); ++b) {
    bytes += buckets[b].bytes;
    double shortest = buckets[b].completed - buckets[b].launched;
    for (const RankSummary& rank : s.ranks)
      if (b < rank.buckets.size())
        shortest = std::min(shortest, rank.buckets[b].completed - rank.buckets[b].launched);
    travelled += shortest;
  }
  const int64_t each = bytes / static_cast<int64_t>(buckets.size());
  const bool tiny = buckets.size() >= 8 && each < 16 << 10;
  if (part < 0.15 && !tiny) return;
  const std::string waits = fmt::format("{} of each {} step is spent waiting for gradients",
                                        percent(std::max(0.0, part)), ms(step));
  const double rate = static_cast<double>(s.ranks.front().sent_bytes) / std::max(travelled, 1e-9);
  if (tiny || (buckets.size() >= 4 && each < 64 << 10))
    found.push_back({std::max(part, 0.1),
                     {"small-buckets",
                      fmt::format("{}, which travel in {} buckets of {}", waits, buckets.size(),
                                  human_bytes(each)),
                      train_with(run, "--bucket-mb 1")}});
  else if (bytes >= 1 << 20 && rate < 1e8)
    found.push_back({part,
                     {"slow-network",
                      fmt::format("{}: {} leave a rank with {} a second, on all ranks alike", waits,
                                  human_bytes(s.ranks.front().sent_bytes),
                                  human_bytes(static_cast<int64_t>(rate))),
                      program_command("bench allreduce")}});
  else
    found.push_back({part,
                     {"communication-bound",
                      fmt::format("{}, {} of them in {}", waits, human_bytes(bytes),
                                  counted(static_cast<int64_t>(buckets.size()), "bucket")),
                      train_with(run, fmt::format("--batch {}", 2 * run.recipe.batch))}});
}

void judge_memory(const RunRecord& run, Findings& found) {
  const RunSummary& s = *run.summary;
  int64_t resident = 0;
  for (const RankSummary& rank : s.ranks) resident += rank.resident_bytes;
  const double faults = mean_of(s, [](const RankSummary& r) { return r.page_faults; });
  const std::string smaller = train_with(
      run, fmt::format("--batch {0} --accumulate 2", std::max<int64_t>(1, run.recipe.batch / 2)));
  if (faults >= 5)
    found.push_back({0.9,
                     {"swapping",
                      fmt::format("{} a step had to be read from the disk",
                                  counted(std::llround(faults), "page")),
                      smaller}});
  else if (s.memory_limit > 0 &&
           static_cast<double>(resident) > 0.9 * static_cast<double>(s.memory_limit))
    found.push_back({0.3,
                     {"memory",
                      fmt::format("the ranks took {} of {}", human_bytes(resident),
                                  human_bytes(s.memory_limit)),
                      smaller}});
}

void judge_disk(const RunRecord& run, Findings& found) {
  const RunSummary& s = *run.summary;
  const double all = s.train_seconds + s.test_seconds + s.save_seconds;
  if (s.save_seconds >= 1 && s.save_seconds > 0.25 * all)
    found.push_back(
        {s.save_seconds / all,
         {"slow-disk", fmt::format("saving took {:.1f} s of {:.1f} s", s.save_seconds, all),
          train_with(run, "--out DIRECTORY-ON-ANOTHER-DISK")}});
}

void judge_steps(const RunRecord& run, double step, Findings& found) {
  const RunSummary& s = *run.summary;
  const double optimizer =
      least_of(s, [](const RankSummary& r) { return r.part(Part::Optimizer); }) / step;
  if (optimizer >= 0.3)
    found.push_back(
        {optimizer,
         {"small-batch",
          fmt::format("the optimizer takes {} of a step of {}, as much for a small batch as for a "
                      "large one",
                      percent(optimizer), ms(step)),
          train_with(run, fmt::format("--batch {}", 2 * run.recipe.batch))}});
  const double uneven = 1 - s.histogram.median / std::max(s.ranks.front().step(), 1e-9);
  if (s.histogram.median > 0 && uneven >= 0.25)
    found.push_back(
        {uneven - 0.1,
         {"uneven-steps",
          fmt::format("a step takes {} mostly, but {} on average: some take far longer ({} and "
                      "more)",
                      ms(s.histogram.median), ms(s.ranks.front().step()), ms(s.histogram.p95)),
          program_command("report " + shell_word(run.path))}});
  const int used = static_cast<int>(s.ranks.size()) * s.threads;
  if (run.parallel != "dp" && 2 * used <= s.cores)
    found.push_back({0.01,
                     {"idle-cores",
                      fmt::format("{} of {} {}", used, counted(s.cores, "core"),
                                  used == 1 ? "computes" : "compute"),
                      train_with(run, fmt::format("--ranks {}", s.cores))}});
}

// Judges a run without a summary by metrics.jsonl alone.
void judge_lines(const RunRecord& run, Findings& found) {
  if (run.epochs.empty() && run.steps.empty()) return;
  const double data = run.epochs.empty() ? run.steps.back().data_wait : run.epochs.back().data_wait;
  const double ranks =
      (run.epochs.empty() ? run.steps.back().comm_wait : run.epochs.back().comm_wait).value_or(0);
  if (data >= 0.1)
    found.push_back(
        {data,
         {"input-bound", fmt::format("{} of the time went by waiting for data", percent(data)),
          train_with(run, "--workers 2")}});
  if (ranks >= 0.15)
    found.push_back(
        {ranks,
         {"communication-bound",
          fmt::format("{} of the time went by waiting for other ranks or their gradients",
                      percent(ranks)),
          train_with(run, fmt::format("--batch {}", 2 * run.recipe.batch))}});
}

// DataParallel does on one device what DDP divides: it sends the parameters out, adds up the
// gradients, keeps all outputs, and steps.
void judge_data_parallel(const RunRecord& run, double step, Findings& found) {
  const RankSummary& one = run.summary->ranks.front();
  if (run.parallel != "dp" || one.device_bytes.size() < 2) return;
  const auto devices = static_cast<double>(one.device_bytes.size());
  const int64_t others = *std::max_element(one.device_bytes.begin() + 1, one.device_bytes.end());
  const double ratio =
      static_cast<double>(one.device_bytes[0]) / static_cast<double>(std::max<int64_t>(1, others));
  const double at_most =
      std::min(devices * std::max(1, run.summary->threads), 1.0 * run.summary->cores);
  const double idle = 1 - one.processor / (step * std::max(1.0, at_most));
  if (ratio < 1.5 && idle < 0.15) return;
  found.push_back(
      {std::max(idle, 0.1),
       {"data-parallel",
        fmt::format(
            "device 0 keeps {}, {:.1f}× as much as any other, and {} go through it in a step; {} "
            "of the cores' time is idle meanwhile",
            human_bytes(one.device_bytes[0]), ratio, human_bytes(one.sent_bytes),
            percent(std::max(0.0, idle))),
        train_with(run, fmt::format("--parallel ddp --ranks {}", one.device_bytes.size()))}});
}

// The verdict for a run that did not get to its end, and has no other finding.
Finding unfinished(const RunRecord& run) {
  const std::string next = run.saved_step > 0 ? resume_of(run) : train_with(run, "--save-every 20");
  const std::string done = fmt::format("after step {} ({} of {})", run.last_step(),
                                       run.epochs_done(), counted(run.recipe.epochs, "epoch"));
  if (run.state == RunRecord::Failed)
    return {0, {"failed", fmt::format("{}: {}", done, run.failure), next}};
  return {0, {"killed", "the run stopped without an error " + done, next}};
}

Verdict nothing_found(const RunRecord& run) {
  const bool goes_on = run.state != RunRecord::Running && run.saved_step > 0;
  const std::string next = goes_on ? resume_of(run) : eval_of(run);
  const std::string learnt =
      run.epochs.empty() ? "" : fmt::format("{:.2f} % test accuracy; ", 100 * run.accuracy());
  if (run.state == RunRecord::Running && run.last_step() == 0)
    return {"too-early", "no line of step 1 or a later one yet",
            program_command("watch " + shell_word(run.path))};
  if (!run.summary || run.has_preset())
    return {"unmeasured",
            learnt + (run.has_preset() ? "the steps of a speedrun are not measured one by one"
                                       : fmt::format("{}, but not where their time went",
                                                     counted(run.last_step(), "step"))),
            next};
  const RunSummary& s = *run.summary;
  if (s.steps < kFewSteps || s.ranks.empty())
    return {"too-short",
            fmt::format("{}{} {} measured, too few to say where the time goes", learnt,
                        counted(s.steps, "step"), s.steps == 1 ? "was" : "were"),
            next};
  const double step = mean_of(s, [](const RankSummary& r) { return r.step(); });
  const auto part = [&](auto of) { return percent(mean_of(s, of) / step); };
  return {"healthy",
          fmt::format("{}{} of each {} step is computing, {} waiting for data{}", learnt,
                      part([](const RankSummary& r) { return r.compute(); }), ms(step),
                      part([](const RankSummary& r) { return r.part(Part::Data); }),
                      s.sees_waiting() ? fmt::format(", {} waiting for other ranks",
                                                     part([](const RankSummary& r) {
                                                       return r.part(Part::Waiting);
                                                     }))
                                       : "; waiting for other ranks was not measured apart"),
          next};
}

}  // namespace

Verdict judge(const RunRecord& run) {
  Findings found;
  Findings costs;
  judge_learning(run, found);
  if (!run.summary) {
    judge_lines(run, costs);
  } else if (const RunSummary& s = *run.summary; !s.ranks.empty() && s.steps >= kFewSteps) {
    const double step = std::max(1e-9, mean_of(s, [](const RankSummary& r) { return r.step(); }));
    if (run.device == "cpu") {  // elsewhere the parts of a step are the host's, which runs ahead
      judge_processor(run, step, costs);
      judge_straggler(run, step, costs);
      judge_communication(run, step, costs);
      judge_steps(run, step, costs);
      judge_data_parallel(run, step, costs);
    }
    judge_input(run, step, costs);
    judge_memory(run, costs);
    judge_disk(run, costs);
  }
  std::stable_sort(costs.begin(), costs.end(),
                   [](const Finding& a, const Finding& b) { return a.cost > b.cost; });
  found.insert(found.end(), costs.begin(), costs.end());
  if (run.state == RunRecord::Failed || run.state == RunRecord::Died)
    found.push_back(unfinished(run));
  if (found.empty()) return nothing_found(run);
  Verdict verdict = found.front().verdict;
  for (size_t i = 1; i < found.size(); ++i) verdict.also.push_back(found[i].verdict.name);
  return verdict;
}

nlohmann::json to_json(const Verdict& verdict) {
  return {
      {"name", verdict.name}, {"why", verdict.why}, {"next", verdict.next}, {"also", verdict.also}};
}

}  // namespace ringgrad::program
