// The verdict: what kept a run from being faster or better. It has a name, a reason with numbers,
// and a command that may help.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "ringgrad/program/report/run_record.h"

namespace ringgrad::program {

struct Verdict {
  std::string name;                    // "healthy", or one of the others that verdict.cpp has
  std::string why;                     // with numbers
  std::string next;                    // a command
  std::vector<std::string> also = {};  // what else was found, by name
};

// There always is one. A function of the record alone: what is wrong with the learning counts most,
// then what costs the most time.
Verdict judge(const RunRecord& run);

nlohmann::json to_json(const Verdict& verdict);  // {name, why, next, also}

}  // namespace ringgrad::program
