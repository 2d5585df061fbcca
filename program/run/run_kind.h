// Tells which command made a run, and finds runs by the names that people use.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace ringgrad::program {

// The command that made a run: "train", "gan". It is read from the run's files, so there are kinds
// whose command this program lacks.
using RunKind = std::string;
inline constexpr const char* kTrainingRun = "train";
inline constexpr const char* kBenchDdpRun = "bench ddp";
inline constexpr const char* kAnyRun = "";  // a run of any kind

// "" : the directory holds no run.
RunKind kind_of(const std::filesystem::path& directory);

// Returns 7 for "0007-digits-cnn". More than eight digits are no number of a run.
std::optional<int> number_of_run(const std::string& name);

// Returns the directory of a run: "latest", "7" and "0007-digits-cnn" name runs/…, unless a file or
// folder here has that name. "latest" is the newest run of this kind. A note says so if it is not
// the newest of all.
std::string find_run(const std::string& name, const RunKind& kind = kTrainingRun);

// Throws DataError, which says what the directory holds instead, unless it holds a run of this
// kind.
void check_kind(const std::filesystem::path& directory, const RunKind& kind);

}  // namespace ringgrad::program
