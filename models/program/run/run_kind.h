// Which command made a run, and how people call runs.
#pragma once

#include <filesystem>
#include <string>

namespace ringgrad::program {

// By what its files say. None: it holds no run.
enum class RunKind { None, Training, Gan, Reinforce, BenchDdp };

RunKind kind_of(const std::filesystem::path& directory);
const char* command_of(RunKind kind);  // "train"

// The directory of a run as people call it: "latest", "7" and "0007-digits-cnn" are runs/…, unless something here has
// that name. Latest is the newest run of this kind, which is said where it is not the newest of all; with None it is of
// any kind.
std::string find_run(const std::string& name, RunKind kind = RunKind::Training);

// Throws DataError, saying what is there instead, unless the directory holds a run of this kind; with None, of any.
void check_kind(const std::filesystem::path& directory, RunKind kind);

}  // namespace ringgrad::program
