// Checks that all ranks have the same parameters, and the same of other things that must be equal.
// It uses small collectives; an error names the rank and the difference.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "ringgrad/distributed/buckets/bucket_plan.h"
#include "ringgrad/distributed/process_group.h"

namespace ringgrad {

// Throws OutOfStepError. All ranks come to the same conclusion, but not at the same moment. A rank
// that is still in the last collective when another one has left it learns the reason from that
// one.
[[noreturn]] void disagree(ProcessGroup& group, const std::string& text);

// Throws Error unless a user may give a step this number, of which others are computed.
void check_step(const char* what, int64_t step);

// Returns the words of an exception, and never none.
std::string words_of(const std::exception_ptr& error);

// Collective: a step has failed on some ranks, which give their words_of(); the others give "".
// Throws GivenUpError, which names the ranks. The group lives on.
[[noreturn]] void throw_of_ranks(ProcessGroup& group, const std::string& what,
                                 const std::string& own);

// Collective. Compares lines of text. Unless all ranks have the same, throws OutOfStepError on
// every rank, naming the first rank whose lines differ from rank 0's and the first line that
// differs. `what` begins the message, `noun` says what the lines describe, and `remedy` ends the
// message. REQUIRES: no line contains a newline.
void check_same_lines(ProcessGroup& group, const std::string& what, const char* noun,
                      const std::vector<std::string>& lines, const char* remedy = "");

// Returns lines to compare: each tensor's name, and a hash of its values.
std::vector<std::string> lines_of_values(const NamedTensors& tensors);

// Compares the signature of tensors: their number, names, shapes and dtypes.
void check_same_signature(ProcessGroup& group, const std::string& what,
                          const NamedTensors& tensors);

// Collective. The tensors of a module, of which `trained` require a gradient, become rank 0's.
// Throws as check_same_signature(), before anything is broadcast: ranks that built different
// networks must learn which tensor differs, not wait for each other in a collective that the others
// never enter.
void take_from_rank_0(ProcessGroup& group, const std::string& what, const NamedTensors& state,
                      const NamedTensors& trained);

// Collective. Returns a hash of all values, in order. Throws OutOfStepError on every rank, naming
// the first tensor that differs and the ranks that do not have rank 0's values, unless they are the
// same bit for bit everywhere. REQUIRES: take_from_rank_0() has returned.
uint64_t check_identical_values(ProcessGroup& group, const char* what, const NamedTensors& tensors);

}  // namespace ringgrad
