// The ranks of an exercise: processes that share memory as those of a job do, made by fork(), so
// that they have the learner's code, and can be killed.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "ringgrad/distributed/transport/transport.h"

namespace ringgrad::program {

struct RankResult {
  nlohmann::json answer;  // null if the rank failed
  std::string error;      // the exception that it threw
  bool noticed = false;   // only that another rank failed
  std::string killed;     // "was killed by signal 9 (Killed)", or ended otherwise without an answer
};

using RankBody = std::function<nlohmann::json(std::unique_ptr<Transport>)>;

// Runs rank(transport) on each of `size` ranks, and returns their answers. A wait in which nothing
// moves ends after two seconds. Throws LimitError.
std::vector<RankResult> run_forked_ranks(int size, const RankBody& rank);

// The answers of ranks that are not to fail. Throws Wrong, naming one that did by itself.
std::vector<nlohmann::json> answers_of(const std::vector<RankResult>& results);

}  // namespace ringgrad::program
