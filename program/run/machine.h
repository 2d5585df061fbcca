// Facts about the machine and this process that a run records.
#pragma once

#include <cstdint>
#include <string>

namespace ringgrad::program {

// "AMD EPYC 9R14, 2 cores, kernels for v4_bf16".
std::string machine_name();
// Returns the command as it was typed.
std::string command_line();

// Returns the bytes of this machine's memory, or the limit of the process's control group if that
// is less.
int64_t memory_limit();
int64_t resident_bytes();  // that this process has taken at most, shared memory included

// Counts how often the scheduler has checked the quota of this process's control group, and how
// often it was spent. Zeros if there is no quota.
struct ProcessorQuota {
  int64_t periods = 0;
  int64_t throttled = 0;
};
ProcessorQuota processor_quota();

}  // namespace ringgrad::program
