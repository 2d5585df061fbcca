#include "ringgrad/program/bench/ddp_advice.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "ringgrad/program/console/console.h"

namespace ringgrad::program {
namespace {

using nlohmann::json;

// A row that divides the step, beside one process in the same rounds.
struct Choice {
  std::string parallel = "none";
  std::string bucket_mb;
  int ranks = 1;
  double gain = 0;
  double low = 0;
  double high = 0;
  size_t rounds = 0;
};

Choice choice_of(const json& row, const json& none, size_t rounds) {
  const std::string name = row.at("row");
  const bool is_dp = name == "dp";
  const auto step = [](const json& r, int i) {
    return r.at("step_interval_ms").at(i).get<double>();
  };
  Choice choice{.parallel = is_dp ? "dp" : "ddp",
                .bucket_mb = "",
                .ranks = row.at("ranks"),
                .gain = none.at("step_ms").get<double>() / row.at("step_ms").get<double>(),
                .low = step(none, 0) / step(row, 1),
                .high = step(none, 1) / step(row, 0),
                .rounds = rounds};
  // "ddp", "ddp auto" or "ddp 0.25 MB".
  if (name.starts_with("ddp ")) choice.bucket_mb = name.substr(4, name.find(' ', 4) - 4);
  return choice;
}

std::string words_of(const Choice& c) {
  if (c.parallel == "dp") return fmt::format("DataParallel on {} devices", c.ranks);
  const std::string buckets =
      c.bucket_mb.empty() ? "" : fmt::format(" and --bucket-mb {}", c.bucket_mb);
  return fmt::format("DDP with {} ranks{}", c.ranks, buckets);
}

std::string command_of(const Choice& c) {
  std::string command = "train --parallel " + c.parallel;
  if (c.ranks > 1) command += fmt::format(" --ranks {}", c.ranks);
  if (!c.bucket_mb.empty()) command += " --bucket-mb " + c.bucket_mb;
  return command;
}

// Says in brackets behind a gain how sure it is.
std::string interval_of(const Choice& c) {
  if (c.rounds < 2) return "one round: no interval";
  return fmt::format("{:.2f} to {:.2f} in {} rounds", c.low, c.high, c.rounds);
}

}  // namespace

json advise(const std::vector<json>& documents) {
  Choice best;
  for (const json& document : documents) {
    const json& rows = document.at("rows");
    const json& none = rows.at(0);
    for (const json& row : rows) {
      const std::string name = row.at("row");
      if (name == "none" || name == "ddp_no_overlap") continue;
      const Choice choice = choice_of(row, none, document.at("measured_rounds"));
      if (choice.gain > best.gain) best = choice;
    }
  }
  const bool sure = best.rounds > 1 && (best.low > 1 || best.high < 1);
  const Choice one;
  const Choice& chosen = sure && best.low > 1 ? best : one;
  const json& first = documents.at(0);
  const std::string where =
      fmt::format("{} with a batch of {} on this machine", first.at("model").get<std::string>(),
                  first.at("batch").get<int64_t>());
  std::string sentence;
  if (best.rounds == 0)
    sentence = fmt::format("For {}: nothing but one process was measured.", where);
  else if (!sure)
    sentence = fmt::format(
        "For {}: one process, since the rounds cannot tell it from {}, {:.2f}× as fast ({}); "
        "more --rounds decide.",
        where, words_of(best), best.gain, interval_of(best));
  else if (best.low > 1)
    sentence = fmt::format("For {}: {} ({}), {:.2f}× as fast as one process with all cores ({}).",
                           where, words_of(best), command_of(best), best.gain, interval_of(best));
  else
    sentence = fmt::format(
        "For {}: one process with all cores; the best division, {}, is {:.2f}× "
        "as fast ({}).",
        where, words_of(best), best.gain, interval_of(best));
  return {{"parallel", chosen.parallel},
          {"ranks", chosen.ranks},
          {"bucket_mb", chosen.bucket_mb},
          {"gain", best.gain},
          {"low", best.low},
          {"high", best.high},
          {"sure", sure},
          {"command", command_of(chosen)},
          {"sentence", sentence}};
}

}  // namespace ringgrad::program
