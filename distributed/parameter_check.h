// Do all ranks have the same parameters? Asked with small collectives; the answer names the rank and the parameter.
#pragma once

#include <cstddef>
#include <cstdint>

#include "distributed/bucket_plan.h"
#include "distributed/process_group.h"

namespace ringgrad {

// Collective. Throws OutOfStepError on every rank, naming the first rank that differs from rank 0 and where, unless all
// have the same number of tensors with the same names, shapes and dtypes. `what` begins the message.
void check_same_signature(ProcessGroup& group, const char* what, const NamedParameters& tensors);

// Collective. Returns a hash of all values, in order. Throws OutOfStepError on every rank, naming the first tensor that
// differs and the ranks that do not have rank 0's values, unless they are the same bit for bit everywhere.
// REQUIRES: check_same_signature() passes.
uint64_t check_identical_values(ProcessGroup& group, const char* what, const NamedParameters& tensors);

// 64 bits of any bytes, the same on every machine: each 8-byte word is mixed in with a multiplication and a shift, as
// in wyhash. Not for use against an adversary.
uint64_t hash_of(const void* data, size_t bytes);

}  // namespace ringgrad
