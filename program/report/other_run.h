// Reads the runs that other commands than `train` have made: `runs` lists them, and `watch` shows
// their lines.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "ringgrad/program/run/run_kind.h"

namespace ringgrad::program {

struct OtherRun {
  std::string path;
  RunKind kind;
  bool running = false;
  std::vector<nlohmann::json> lines;  // the lines of metrics.jsonl without damaged ones
  std::string failure;                // why it failed, if it did

  std::string summary() const;  // "epoch 5, generator_loss 1.234"
};

// Throws DataError if there is no such run.
OtherRun read_other_run(const std::string& path, const RunKind& kind);

// Returns the numbers and words of a line: "epoch=5 discriminator_loss=0.4012".
std::string as_pairs(const nlohmann::json& line);

}  // namespace ringgrad::program
