#include "ringgrad/program/bench/cost_model.h"

#include <algorithm>
#include <numeric>

#include <nlohmann/json.hpp>

#include "ringgrad/core/base/check.h"
#include "ringgrad/distributed/other_collectives/other_collectives.h"
#include "ringgrad/program/console/console.h"
#include "ringgrad/program/console/exit_code.h"

namespace ringgrad::program {
namespace {

using nlohmann::json;

// Returns the cost of a reduce-scatter or an all-gather, which is half of a ring's.
double half_ring(const LinkModel& hop, int ranks, double bytes) {
  return (ranks - 1) * hop.seconds(bytes / ranks);
}

LinkModel line_through(const json& row) {
  std::vector<LinkSample> samples;
  for (const json& point : row.value("samples", json::array()))
    samples.push_back({point.at(0), point.at(1)});
  return fit(samples);
}

const json* row_of(const json& document, const std::string& name) {
  for (const json& row : document.at("rows"))
    if (row.at("row") == name) return &row;
  return nullptr;
}

constexpr double kNumbersBytes = 64;  // the ranks' numbers at the end of backward

// Returns the step of a ddp row, with its buckets averaged at this cost.
template <class Seconds>
StepModel step_of(const json& row, double hidden_costs, Seconds&& seconds) {
  StepModel step{.alone = row.at("no_communication_ms").get<double>() / 1e3,
                 .computed = row.value("computed_ms", 0.0) / 1e3,
                 .after = seconds(row.at("buffer_bytes").get<double>() + kNumbersBytes),
                 .hidden_costs = hidden_costs};
  if (row.contains("buckets")) {
    for (const json& bucket : row["buckets"]) {
      step.ready.push_back(bucket.at("ready_ms").get<double>() / 1e3);
      step.seconds.push_back(seconds(bucket.at("bytes").get<double>()));
    }
  } else {  // the times of gradients are unknown: count all as ready at the end
    step.ready.push_back(step.computed);
    step.seconds.push_back(seconds(row.at("gradient_bytes").get<double>()));
  }
  return step;
}

double hidden_costs_of(const json& document) {
  const bool on_cpu = document.at("device").get<std::string>().starts_with("cpu");
  return on_cpu && document.at("ranks").get<int>() >= document.at("cores").get<int>() ? 1 : 0;
}

}  // namespace

LinkModel hop_of(const LinkModel& all_reduce, int ranks) {
  if (ranks < 2) return all_reduce;
  return {all_reduce.latency / (2 * (ranks - 1)), all_reduce.per_byte * ranks / (2 * (ranks - 1))};
}

double ring(const Cluster& c, double bytes) {
  return c.ranks() < 2 ? 0 : 2 * half_ring(c.nodes > 1 ? c.far : c.near, c.ranks(), bytes);
}

namespace {

// Returns the cost of what Auto takes for a few ranks (distributed/README.md).
double messages(const LinkModel& hop, int ranks, double bytes) {
  const double parts = ranks;
  const double exchange = hop.seconds((parts - 1) * bytes);
  const double direct = 2 * hop.seconds((parts - 1) / parts * bytes);
  const double around = 2 * half_ring(hop, ranks, bytes);
  return ranks < 2 ? 0 : ranks <= kMostDirect ? std::min(exchange, direct) : around;
}

}  // namespace

double direct(const Cluster& c, double bytes) {
  return messages(c.nodes > 1 ? c.far : c.near, c.ranks(), bytes);
}

double hierarchy(const Cluster& c, double bytes) {
  const double within = c.local > 1 ? 2 * half_ring(c.near, c.local, bytes) : 0;
  return within + messages(c.far, c.nodes, bytes);
}

double overlapped(const StepModel& s) {
  double until = 0;
  double busy = 0;
  for (size_t b = 0; b < s.ready.size(); ++b) {
    until = std::max(until, s.ready[b]) + s.seconds[b];
    busy += s.seconds[b];
  }
  const double exposed = std::max(0.0, until - s.computed);
  return s.alone + exposed + s.hidden_costs * std::max(0.0, busy - exposed) + s.after;
}

double one_after_the_other(const StepModel& s) {
  return std::accumulate(s.seconds.begin(), s.seconds.end(), s.alone) + s.after;
}

void predict_rows(json& document) {
  const json* ddp = row_of(document, "ddp");
  if (!ddp) return;
  const int ranks = document.at("ranks");
  const double hidden_costs = hidden_costs_of(document);
  const double alone = ddp->at("no_communication_ms").get<double>() / 1e3;
  const LinkModel link = line_through(*ddp);
  const auto average = [&](double bytes) { return link.seconds(bytes); };
  json costs = {{"latency_us", link.latency * 1e6},
                {"GBps", link.per_byte > 0 ? 1e-9 / link.per_byte : 0},
                {"hidden_costs", hidden_costs}};
  for (json& row : document["rows"]) {
    const std::string name = row.at("row");
    double seconds = alone;
    if (name == "none" && !document.at("device").get<std::string>().starts_with("cpu"))
      seconds = alone * ranks;
    if (name.starts_with("ddp")) {
      const StepModel step = step_of(row, hidden_costs, average);
      seconds = name == "ddp_no_overlap" ? one_after_the_other(step) : overlapped(step);
    }
    if (name == "dp") {
      const LinkModel copy = line_through(row);
      if (!row.contains("copies")) continue;
      seconds += row.at("copies").get<double>() * copy.latency +
                 row.at("moved_bytes").get<double>() * copy.per_byte;
      costs["copy_us"] = copy.latency * 1e6;
      costs["copy_GBps"] = copy.per_byte > 0 ? 1e-9 / copy.per_byte : 0;
    }
    row["predicted_ms"] = seconds * 1e3;
  }
  costs["assumptions"] = {
      fmt::format("an all-reduce of S bytes takes α + βS (Hockney 1994): "
                  "α {:.1f} µs, 1/β {:.2f} GB/s, measured here",
                  link.latency * 1e6, link.per_byte > 0 ? 1e-9 / link.per_byte : 0),
      "buckets are averaged one after the other, each when it is ready, as it was measured",
      hidden_costs > 0 ? "what backward hides still costs its time: the ranks use all cores, "
                         "which do the sums, too"
                       : "what backward hides costs nothing",
      "computing takes as long as without communication; "
      "DataParallel adds its copies, one after the other"};
  document["costs"] = costs;
}

std::vector<int> nodes_of(const Prediction& wanted, int measured_ranks) {
  if (wanted.nodes.size() > 1 && wanted.nodes.size() != wanted.ranks.size())
    throw UsageError("bench ddp: --nodes has {} numbers and --predict {}; expected as many, or one",
                     wanted.nodes.size(), wanted.ranks.size());
  CHECK_AS(DataError, measured_ranks > 0, "bench ddp: the measurements are of no ranks");
  std::vector<int> all;
  for (size_t i = 0; i < wanted.ranks.size(); ++i) {
    const int ranks = wanted.ranks[i];
    int nodes = (ranks + measured_ranks - 1) / measured_ranks;
    while (ranks % nodes != 0) ++nodes;
    if (!wanted.nodes.empty()) nodes = wanted.nodes[std::min(i, wanted.nodes.size() - 1)];
    if (ranks % nodes != 0)
      throw UsageError(
          "bench ddp: --predict {} ranks on {} nodes: every node must have equally many", ranks,
          nodes);
    all.push_back(nodes);
  }
  return all;
}

json predict_clusters(const json& document, const Prediction& wanted) {
  const json* ddp = row_of(document, "ddp");
  if (!ddp || !document.contains("costs"))
    throw UsageError("bench ddp: --predict needs the rows of ddp, which were not measured on {}",
                     document.at("device").get<std::string>());
  const int measured = document.at("ranks");
  const std::vector<int> nodes = nodes_of(wanted, measured);
  const LinkModel near = hop_of(line_through(*ddp), measured);
  const LinkModel far{wanted.network_us / 1e6, 8 / (wanted.network_gbit * 1e9)};
  const double own_batch = document.at("batch").get<double>() / measured;
  const double bytes = ddp->at("gradient_bytes");
  json rows = json::array();
  for (size_t i = 0; i < wanted.ranks.size(); ++i) {
    const int p = wanted.ranks[i];
    const Cluster cluster{nodes[i], p / nodes[i], near, far};
    const std::pair<const char*, double (*)(const Cluster&, double)> ways[] = {
        {"ring", ring}, {"direct", direct}, {"hierarchy", hierarchy}};
    json row = {{"ranks", p}, {"nodes", cluster.nodes}};
    double best = INFINITY;
    for (const auto& [name, way] : ways) {
      const StepModel step = step_of(*ddp, document["costs"].at("hidden_costs"),
                                     [&, way = way](double b) { return way(cluster, b); });
      const double seconds = overlapped(step);
      row[std::string(name) + "_ms"] = way(cluster, bytes) * 1e3;
      if (seconds >= best) continue;
      best = seconds;
      row["best"] = name;
      row["step_ms"] = seconds * 1e3;
      row["kept_of_no_communication"] = step.alone / seconds;
      row["images_per_second"] = p * own_batch / seconds;
    }
    rows.push_back(row);
  }
  return {{"rows", rows},
          {"assumptions",
           {fmt::format("within a node: {:.1f} µs and {:.2f} GB/s a message, "
                        "from the all-reduces that were measured here",
                        near.latency * 1e6, near.per_byte > 0 ? 1e-9 / near.per_byte : 0),
            fmt::format("between nodes: {:g} µs and {:g} Gbit/s for all ranks of a "
                        "node together (--network-us, --network-gbit)",
                        wanted.network_us, wanted.network_gbit),
            "ring: 2(p-1)α + 2(p-1)/p Sβ, at the slowest hop's pace (Patarasuk & Yuan 2009)",
            fmt::format("direct: up to {} ranks α + (p-1)Sβ, each to all, or 2α + 2(p-1)/p Sβ, "
                        "each sums a slice for all; the lesser",
                        kMostDirect),
            "hierarchy: reduce-scatter in the node, direct between nodes, all-gather in the node",
            fmt::format("each rank keeps its batch of {:g} and computes as fast as here; "
                        "buckets of {} are ready as here",
                        own_batch,
                        human_bytes(static_cast<int64_t>(
                            bytes / static_cast<double>(std::max<size_t>(
                                        1, ddp->value("buckets", json::array()).size()))))),
            "no rank is slower than another, and nobody else uses the network"}}};
}

}  // namespace ringgrad::program
