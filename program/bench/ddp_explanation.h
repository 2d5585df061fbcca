// What the rounds of `ringgrad bench ddp` come to. Everything that is printed, drawn and written
// follows from this, so that no sentence can say another thing than the rows.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace ringgrad::program {

// `measured`: {model, batch, ranks, device, processor, cores, rows: names in order, rounds: [{name:
// a row of measure_row()}, …]}. The document: these but for the rounds; `rows`, each that of the
// round with its median step, and
//   step_interval_ms, kept_interval      from the lowest quartile of a round to the highest
//   kept_of_no_communication             the median of the rounds; dp's against ddp's of the same
//                                        round
//   no_communication_ms                  kept times the step
//   speed_up                             over none
//   parts_ms {compute, exposed, copies, waiting}
//                                        add up to the step, and none is negative; exposed: on its
//                                        way, seen by the rank that came last; waiting: for slower
//                                        ranks, or replicas
//   exposed_ms                           all of these but compute
// and `ddp_over_dp` {ratio, low, high, rounds}: of the rows' steps, with the least and the largest
// of a round, between which it lies; kept_of_no_communication: the ddp row's. Throws nlohmann's
// exceptions where something lacks.
nlohmann::json explain_rounds(const nlohmann::json& measured);

// "DDP is 1.14× as fast as DataParallel (1.10 to 1.18 in 3 rounds)."; empty without both rows.
std::string headline_of(const nlohmann::json& document);
bool is_decided(const nlohmann::json& document);  // all rounds say the same of it
// Returns "Against one process with all the cores: DataParallel 0.74×, DDP 0.95×; dividing a step
// does not pay here."
std::string payoff_of(const nlohmann::json& document);
// Where the time of the rows that communicate goes: their names, and words.
std::vector<std::pair<std::string, std::string>> reasons_of(const nlohmann::json& document);

}  // namespace ringgrad::program
