// `ringgrad report`, `compare`, `runs` and `watch`: the results of runs, for people and for
// scripts.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "ringgrad/data/image_dataset.h"
#include "ringgrad/program/report/run_record.h"
#include "ringgrad/program/run/run_kind.h"

namespace ringgrad::program {

// One HTML file with everything about these runs, side by side. `test_set`: for a run's pictures;
// nullptr: without them. Atomic. Throws IoError.
using TestSetOf = std::function<const ImageDataset*(const RunRecord&)>;
// Writes a report and returns its size in bytes.
int64_t write_report(const std::vector<RunRecord>& runs, const std::filesystem::path& file,
                     const TestSetOf& test_set);

// Tells `report` how to draw a run of another command than `train`. A source adds its own before
// main.
struct OtherReport {
  RunKind kind;
  // Writes the page, and returns what the run came to. Throws DataError, and as write_report().
  std::string (*write)(const std::filesystem::path& run, const std::filesystem::path& file);
};
inline std::vector<OtherReport>& other_reports() {
  static std::vector<OtherReport> all;
  return all;
}

}  // namespace ringgrad::program
