// `ringgrad compare`: two runs' time of an image, part by part.
#include <algorithm>
#include <cmath>
#include <map>

#include <nlohmann/json.hpp>

#include "ringgrad/core/base/check.h"
#include "ringgrad/program/command.h"
#include "ringgrad/program/console/console.h"
#include "ringgrad/program/console/exit_code.h"
#include "ringgrad/program/report/report.h"
#include "ringgrad/program/report/verdict.h"

namespace ringgrad::program {
namespace {

struct CompareOptions {
  std::string a;
  std::string b;
};

constexpr double kNoise = 0.03;  // the difference between runs with the same settings

struct TimedPart {
  std::string name;
  double seconds;  // per image
};

// Returns the parts of a step from the summary, as the mean over the ranks; or, `roughly`, from
// metrics.jsonl.
std::vector<TimedPart> parts_of(const RunRecord& run, bool roughly) {
  std::vector<TimedPart> parts;
  if (!roughly) {
    const auto& ranks = run.summary->ranks;
    const auto images =
        static_cast<double>(run.recipe.step_batch() * static_cast<int64_t>(ranks.size()));
    for (size_t p = 0; p < kParts.size(); ++p) {
      double seconds = 0;
      for (const RankSummary& rank : ranks) seconds += rank.seconds[p];
      parts.push_back({kParts[p], seconds / images});
    }
    return parts;
  }
  CHECK_AS(DataError, run.images_per_second() > 0 && !run.epochs.empty(), "compare: ", run.path,
           " has no whole epoch with its pace, in neither summary.json nor metrics.jsonl");
  const EpochLine& last = run.epochs.back();
  const double image = 1 / run.images_per_second();
  const double waiting = last.comm_wait.value_or(0);
  return {{"data", last.data_wait * image},
          {"waiting", waiting * image},
          {"compute", std::max(0.0, 1 - last.data_wait - waiting) * image}};
}

// The difference in a kernel's time between A and B. changes() returns them for one phase, the
// greatest first; names come from `name_of`. A phase that does not compute has none.
struct Change {
  std::string name;
  // seconds of an image, on rank 0
  double a = 0;
  double b = 0;
};
std::vector<Change> changes(const RunRecord& a, const RunRecord& b, const std::string& phase,
                            const auto& name_of) {
  std::map<std::string, Change> by_name;
  const auto add = [&](const RunRecord& run, double Change::*of) {
    const double images = static_cast<double>(run.recipe.step_batch()) /
                          static_cast<double>(std::max<size_t>(1, run.summary->ranks.size()));
    for (const KernelTime& k : run.summary->kernels)
      if (k.phase == phase)
        by_name.try_emplace(name_of(k), Change{name_of(k)}).first->second.*of += k.seconds / images;
  };
  if (!a.summary || !b.summary || a.summary->kernels.empty() || b.summary->kernels.empty())
    return {};
  add(a, &Change::a);
  add(b, &Change::b);
  std::vector<Change> all;
  for (const auto& [name, change] : by_name) all.push_back(change);
  std::stable_sort(all.begin(), all.end(), [](const Change& x, const Change& y) {
    return std::abs(x.b - x.a) > std::abs(y.b - y.a);
  });
  return all;
}

nlohmann::json to_json(const std::vector<Change>& all) {
  nlohmann::json list = nlohmann::json::array();
  for (const Change& c : all)
    list.push_back({{"name", c.name},
                    {"a_us", c.a * 1e6},
                    {"b_us", c.b * 1e6},
                    {"difference_us", (c.b - c.a) * 1e6}});
  return list;
}

bool is_rough(const RunRecord& run) {
  return !run.summary || run.summary->steps == 0 || run.summary->ranks.empty();
}

// Prints which part of a step made the difference between two runs, and the settings that differ.
// Throws DataError.
int compare(const CompareOptions& options) {
  const RunRecord a = read_run(options.a);
  const RunRecord b = read_run(options.b);
  const bool roughly = is_rough(a) || is_rough(b);
  const auto parts_a = parts_of(a, roughly);
  const auto parts_b = parts_of(b, roughly);
  double all_a = 0;
  double all_b = 0;
  size_t most = 0;
  nlohmann::json parts;
  for (size_t p = 0; p < parts_a.size(); ++p) {
    const double change = parts_b[p].seconds - parts_a[p].seconds;
    all_a += parts_a[p].seconds;
    all_b += parts_b[p].seconds;
    if (std::abs(change) > std::abs(parts_b[most].seconds - parts_a[most].seconds)) most = p;
    parts[parts_a[p].name] = {{"a_us", parts_a[p].seconds * 1e6},
                              {"b_us", parts_b[p].seconds * 1e6},
                              {"difference_us", change * 1e6}};
  }
  const double speedup = all_a / all_b;
  CHECK_AS(DataError, std::isfinite(speedup), "compare: an image takes ", all_a, " s in ", a.path,
           " and ", all_b, " s in ", b.path,
           ", expected times that can be compared; are the files damaged?");
  const bool differ = std::abs(speedup - 1) > kNoise;

  sentence("A  {}: {}", a.path, judge(a).name);
  sentence("B  {}: {}", b.path, judge(b).name);
  for (const RunRecord* run : {&a, &b}) {
    if (run == &b && a.path == b.path) continue;
    for (const std::string& note : run->notes) message("note    {}: {}", run->path, note);
    if (run->summary && !run->summary->sees_waiting())
      message("note    {}: waiting for other ranks was not measured apart", run->path);
  }
  result("\n{:<12}{:>11}{:>11}{:>13}", "µs an image", "A", "B", "difference");
  for (size_t p = 0; p < parts_a.size(); ++p)
    result("{:<11}{:>11.1f}{:>11.1f}{:>+13.1f}", parts_a[p].name, parts_a[p].seconds * 1e6,
           parts_b[p].seconds * 1e6, (parts_b[p].seconds - parts_a[p].seconds) * 1e6);
  result("{:<11}{:>11.1f}{:>11.1f}{:>+13.1f}", "all", all_a * 1e6, all_b * 1e6,
         (all_b - all_a) * 1e6);
  const double by_most = parts_b[most].seconds - parts_a[most].seconds;
  if (differ)
    sentence(
        "\nB is {:.2f}× as fast as A.\n{} made the difference: {:+.1f} µs of {:+.1f} µs an image.",
        speedup, parts_a[most].name, by_most * 1e6, (all_b - all_a) * 1e6);
  else
    sentence("\nA and B are equally fast: they are {:.1f} % apart, as two runs of the same may be.",
             100 * std::abs(speedup - 1));
  const std::string phase = parts_a[most].name;
  const auto layers = changes(a, b, phase, [](const KernelTime& k) {
    return k.layer.empty() ? "outside layers" : k.layer;
  });
  const auto kernels = changes(a, b, phase, [](const KernelTime& k) { return k.kernel; });
  if (differ && !layers.empty()) {
    const int room = on_terminal() ? std::clamp(line_width() - 41, 8, 36) : 36;
    result("Most of it, in µs an image on rank 0:");
    for (const auto& [what, of] : {std::pair("layer", &layers), std::pair("kernel", &kernels)})
      for (size_t i = 0; i < std::min<size_t>(3, of->size()); ++i)
        result("  {:<7}{:<{}}{:>10.2f}{:>10.2f}{:>+12.2f}", i == 0 ? what : "",
               (*of)[i].name.substr(0, room - 1), room, (*of)[i].a * 1e6, (*of)[i].b * 1e6,
               ((*of)[i].b - (*of)[i].a) * 1e6);
  }
  if (!a.epochs.empty() && !b.epochs.empty())
    result("Test accuracy: {:.2f} % and {:.2f} %.", 100 * a.accuracy(), 100 * b.accuracy());

  nlohmann::json told = nlohmann::json::array();
  const std::vector<Difference> all = differences(a, b);
  result(all.empty() ? "\nSame settings." : "\nSettings that differ:");
  for (const Difference& d : all) {
    sentence("  {:<16} {}  |  {}", d.what, d.a, d.b);
    told.push_back({{"what", d.what}, {"a", d.a}, {"b", d.b}});
  }
  print_json({{"a", a.path},
              {"b", b.path},
              {"images_per_second", {a.images_per_second(), b.images_per_second()}},
              {"test_accuracy", {a.accuracy_or_null(), b.accuracy_or_null()}},
              {"speedup", speedup},
              {"differ", differ},
              {"phase", phase},
              {"layer", layers.empty() ? "" : layers.front().name},
              {"kernel", kernels.empty() ? "" : kernels.front().name},
              {"layers", to_json(layers)},
              {"kernels", to_json(kernels)},
              {"parts", parts},
              {"verdicts", {to_json(judge(a)), to_json(judge(b))}},
              {"differences", told}});
  return kOk;
}

void add_options(CLI::App* app, CompareOptions& o) {
  app->add_option("a", o.a, "a run directory")->required();
  app->add_option("b", o.b, "another")->required();
}

const Command kCompare(120, "compare", "Which part of a step made the difference between two runs",
                       compare, add_options);

}  // namespace
}  // namespace ringgrad::program
