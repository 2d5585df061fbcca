// Autotune: of two ways to compute a call, the one that was faster when this machine first saw it.
//
// What was measured is kept in a text file, one line per call, that people can read and delete:
// $RINGGRAD_CACHE_DIR/autotune.tsv, by default below $XDG_CACHE_HOME or ~/.cache in ringgrad/. Its first line names the
// processor; a file from another one is not used. Off unless switched on: with it, how a sum is rounded depends on a
// measurement, and two runs may differ in the last bit. Thread-safe.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace ringgrad {

void set_autotune(bool on);
bool autotune();

// Runs native() or vendor(), whichever is known to be faster for `key`, which names the kernel and everything its speed
// depends on (no tabs or newlines). For a new key both are timed; a file that cannot be written is not an error.
// REQUIRES: both overwrite the same outputs and read nothing of them, so that either may run several times.
void run_fastest(const std::string& key, const std::function<void()>& native, const std::function<void()>& vendor);

struct TunedCall {
  std::string key;
  double native_us, vendor_us;
};
std::vector<TunedCall> tuned_calls();  // by key; those of the file included
std::filesystem::path autotune_file();

}  // namespace ringgrad
