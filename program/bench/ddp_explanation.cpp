#include "ringgrad/program/bench/ddp_explanation.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "ringgrad/program/bench/bench.h"

namespace ringgrad::program {
namespace {

using nlohmann::json;

// The round's ddp row has the time of the same processes without communication.
double kept_in(const json& round, const std::string& name) {
  const json& row = round.at(name);
  if (row.contains("kept_of_no_communication")) return row["kept_of_no_communication"];
  return round.at("ddp").at("no_communication_ms").get<double>() / row.at("step_ms").get<double>();
}

// Returns the interval from the lowest to the highest of `key`'s two numbers, over the rounds;
// without them that of `otherwise`.
json interval(const json& rounds, const std::string& name, const char* key,
              const std::vector<double>& otherwise) {
  double low = INFINITY;
  double high = -INFINITY;
  for (size_t i = 0; i < rounds.size(); ++i) {
    const json& row = rounds[i].at(name);
    low = std::min(low, row.contains(key) ? row[key].at(0).get<double>() : otherwise[i]);
    high = std::max(high, row.contains(key) ? row[key].at(1).get<double>() : otherwise[i]);
  }
  for (const double value : otherwise) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  return {low, high};
}

void divide_step(json& row) {
  const double step = row.at("step_ms");
  const double alone = row.value("no_communication_ms", step);
  double exposed = 0;
  double copies = 0;
  double waiting = 0;
  if (row.contains("transfer_ms")) {  // by the clocks of the ranks
    const double all = std::clamp(row.at("exposed_ms").get<double>(), 0.0, step);
    exposed = std::clamp(row["transfer_ms"].get<double>(), 0.0, all);
    waiting = all - exposed;
  } else if (row.contains("copies_ms")) {
    copies = std::clamp(row["copies_ms"].get<double>(), 0.0, step);
    waiting = std::clamp(step - alone - copies, 0.0, step - copies);
  } else {
    exposed = std::clamp(step - alone, 0.0, step);  // the row was not measured in detail
  }
  row["parts_ms"] = {{"compute", step - exposed - copies - waiting},
                     {"exposed", exposed},
                     {"copies", copies},
                     {"waiting", waiting}};
  if (row.at("row") != "none") row["exposed_ms"] = exposed + copies + waiting;
}

json explain_row(const json& rounds, const std::string& name) {
  std::vector<double> steps;
  std::vector<double> kept;
  const bool communicates = name != "none" && rounds.at(0).contains("ddp");
  for (const json& round : rounds) {
    steps.push_back(round.at(name).at("step_ms"));
    if (communicates) kept.push_back(kept_in(round, name));
  }
  const double step = median(steps);
  const auto middle =
      static_cast<size_t>(std::find(steps.begin(), steps.end(), step) - steps.begin());
  json row = rounds[middle].at(name);
  row["row"] = name;
  row["step_interval_ms"] = interval(rounds, name, "step_quartiles_ms", steps);
  if (communicates) {
    row["kept_of_no_communication"] = median(kept);
    row["kept_interval"] = interval(rounds, name, "kept_quartiles", kept);
    row["no_communication_ms"] = median(kept) * step;
  }
  divide_step(row);
  return row;
}

const json* find_row(const json& document, const char* name) {
  for (const json& row : document.at("rows"))
    if (row.at("row") == name) return &row;
  return nullptr;
}

}  // namespace

json explain_rounds(const json& measured) {
  json document = measured;
  document.erase("rounds");
  document["rows"] = json::array();
  const json& rounds = measured.at("rounds");
  document["measured_rounds"] = rounds.size();
  for (const json& name : measured.at("rows"))
    document["rows"].push_back(explain_row(rounds, name));
  const json* none = find_row(document, "none");
  const json* dp = find_row(document, "dp");
  const json* ddp = find_row(document, "ddp");
  for (json& row : document["rows"])
    if (none) row["speed_up"] = none->at("step_ms").get<double>() / row.at("step_ms").get<double>();
  if (!dp || !ddp) return document;
  std::vector<double> ratios;
  for (const json& round : rounds)
    ratios.push_back(round.at("dp").at("step_ms").get<double>() /
                     round.at("ddp").at("step_ms").get<double>());
  document["ddp_over_dp"] = {
      {"ratio", dp->at("step_ms").get<double>() / ddp->at("step_ms").get<double>()},
      {"low", quantile(ratios, 0)},
      {"high", quantile(ratios, 1)},
      {"rounds", ratios.size()}};
  document["kept_of_no_communication"] = ddp->at("kept_of_no_communication");
  return document;
}

std::string headline_of(const json& document) {
  if (!document.contains("ddp_over_dp")) return "";
  const json& r = document["ddp_over_dp"];
  const double ratio = r.at("ratio");
  const double low = r.at("low");
  const double high = r.at("high");
  const size_t rounds = r.at("rounds");
  if (rounds == 1)
    return fmt::format("DDP is {:.2f}× as fast as DataParallel (one round: no interval).", ratio);
  if (low <= 1 && high >= 1)
    return fmt::format(
        "{} rounds cannot tell whether DDP or DataParallel is faster: {:.2f}× ({:.2f} to {:.2f}).",
        rounds, ratio, low, high);
  return fmt::format("DDP is {:.2f}× as fast as DataParallel ({:.2f} to {:.2f} in {} rounds).",
                     ratio, low, high, rounds);
}

bool is_decided(const json& document) {
  if (!document.contains("ddp_over_dp")) return false;
  const json& r = document["ddp_over_dp"];
  return r.at("rounds") > 1 && (r.at("low") > 1.0 || r.at("high") < 1.0);
}

std::string speed_ups_of(const json& document) {
  std::string words;
  for (const auto& [name, called] : {std::pair("dp", "DataParallel"), std::pair("ddp", "DDP")}) {
    const json* row = find_row(document, name);
    if (!row || !row->contains("speed_up")) continue;
    words += fmt::format("{}{} {:.2f}×", words.empty() ? "" : ", ", called,
                         row->at("speed_up").get<double>());
  }
  return words.empty() ? "" : fmt::format("Against one process with all the cores: {}.", words);
}

std::vector<std::pair<std::string, std::string>> reasons_of(const json& document) {
  std::vector<std::pair<std::string, std::string>> reasons;
  for (const json& row : document.at("rows")) {
    if (!row.contains("kept_of_no_communication")) continue;
    const json& parts = row.at("parts_ms");
    const double step = row.at("step_ms");
    const double alone = row.at("no_communication_ms");
    const double compute = parts.at("compute");
    std::string why;
    const auto add = [&](double ms, const std::string& what) {
      if (ms >= 0.005 * step)
        why += fmt::format("{}{:.2f} ms {}", why.empty() ? "" : ", ", ms, what);
    };
    add(parts.at("exposed"), "averaging that backward does not hide");
    add(parts.at("copies"), "copies through the first device");
    add(parts.at("waiting"), row.at("row") == "dp"
                                 ? "waiting for replicas, and what the first device does alone"
                                 : "waiting for the slower rank");
    add(compute - alone, "computing more slowly, as averaging takes the same cores");
    reasons.emplace_back(row.at("row"), why.empty() ? "no part above 0.5 % of its step" : why);
  }
  return reasons;
}

}  // namespace ringgrad::program
