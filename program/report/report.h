// `ringgrad report`, `compare`, `runs` and `watch`: what runs have come to, for people and for
// scripts.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "ringgrad/data/image_dataset.h"
#include "ringgrad/program/report/run_record.h"

namespace ringgrad::program {

// One HTML file with everything about these runs, side by side. `test_set`: for a run's pictures;
// nullptr: without them. Atomic. Throws IoError.
using TestSetOf = std::function<const ImageDataset*(const RunRecord&)>;
// Writes a report and returns its size in bytes.
int64_t write_report(const std::vector<RunRecord>& runs, const std::filesystem::path& file,
                     const TestSetOf& test_set);

struct ReportOptions {
  std::vector<std::string> runs;
  std::string out;
};
// Throws DataError where one is no run or is damaged, IoError; nothing is written then.
int report(const ReportOptions& options);

struct CompareOptions {
  std::string a, b;
};
// Which part of a step made the difference between two runs, and what they were told differently.
// Throws DataError.
int compare(const CompareOptions& options);

struct WatchOptions {
  std::string run;
};
// Curves of a run while it goes on, until it has ended, and then its verdict; lines of text where
// there is no terminal. Returns 128 and the signal where one has ended the watching. Throws
// DataError.
int watch(const WatchOptions& options);

struct RunsOptions {
  std::string directory = "runs";
  std::string sort = "name";  // accuracy, time, speed
};
// The runs of a directory; one that cannot be read is listed with the reason. Throws UsageError
// where there is no such order, DataError where there is no such directory.
int runs(const RunsOptions& options);

}  // namespace ringgrad::program
