// Combines the rounds of `ringgrad bench ddp`. Everything that is printed, drawn and written
// follows from this document, so no sentence can contradict the rows.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace ringgrad::program {

// Returns the explained document of the rounds in `measured`: {model, batch, ranks, device,
// processor, cores, rows: names in order, rounds: [{name: a row of measure_row()}, …]}. The
// document has these fields without the rounds. Each of its `rows` is the row of the round with the
// median step, and also has
//   step_interval_ms, kept_interval      from a round's lowest quartile to the highest one
//   kept_of_no_communication             the median of the rounds; dp's is against ddp's of the
//                                        same round
//   no_communication_ms                  the kept part times the step
//   speed_up                             over the row "none"
//   parts_ms {compute, exposed, copies, waiting}
//                                        they add up to the step, and none is negative; exposed:
//                                        communication as the last rank sees it; waiting: for
//                                        slower ranks, or replicas
//   exposed_ms                           all parts but compute
// `ddp_over_dp` {ratio, low, high, rounds} compares the rows' steps, with the least and the largest
// ratio of a round. kept_of_no_communication is the ddp row's. Throws nlohmann's exceptions if a
// field is missing.
nlohmann::json explain_rounds(const nlohmann::json& measured);

// "DDP is 1.14× as fast as DataParallel (1.10 to 1.18 in 3 rounds)."; empty without both rows.
std::string headline_of(const nlohmann::json& document);
bool is_decided(const nlohmann::json& document);  // all rounds say the same of it
// Returns "Against one process with all the cores: DataParallel 0.74×, DDP 0.95×."; empty without
// both. ddp_advice.h says whether dividing a step pays.
std::string speed_ups_of(const nlohmann::json& document);
// Returns, for the rows that communicate, their names and where their time goes, in words.
std::vector<std::pair<std::string, std::string>> reasons_of(const nlohmann::json& document);

}  // namespace ringgrad::program
