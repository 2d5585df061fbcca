// Tells which command made a run, and finds runs by the names that people use.
#pragma once

#include <filesystem>
#include <string>

namespace ringgrad::program {

// The kind is read from a run's files. None: the directory holds no run.
enum class RunKind { None, Training, Gan, Reinforce, BenchDdp };

RunKind kind_of(const std::filesystem::path& directory);
const char* command_of(RunKind kind);  // "train"

// Returns the directory of a run: "latest", "7" and "0007-digits-cnn" name runs/…, unless a file or
// folder here has that name. "latest" is the newest run of this kind, or of any kind with None. A
// note says so if it is not the newest of all.
std::string find_run(const std::string& name, RunKind kind = RunKind::Training);

// Throws DataError, saying what the directory holds instead, unless it holds a run of this kind;
// with None, of any kind.
void check_kind(const std::filesystem::path& directory, RunKind kind);

}  // namespace ringgrad::program
