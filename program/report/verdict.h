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
  std::vector<std::string> also = {};  // the names of the other findings
};

// There always is one. It is a function of the record alone. Problems of learning come first, then
// the largest loss of time.
Verdict judge(const RunRecord& run);

nlohmann::json to_json(const Verdict& verdict);  // {name, why, next, also}

}  // namespace ringgrad::program
