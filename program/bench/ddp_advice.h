// The answer of `ringgrad bench ddp` and `ringgrad doctor --advise`: how to train on this machine.
#pragma once

#include <vector>

#include <nlohmann/json_fwd.hpp>

namespace ringgrad::program {

// `documents`: as explain_rounds() has made them, of one model, batch and device, each with another
// number of ranks. Chooses the fastest row of all, and one process where no row is surely faster.
//   parallel, ranks, bucket_mb   the choice; bucket_mb is empty for the usual buckets
//   gain, low, high              how many times as fast as one process with all the cores. The
//                                interval lies between the quartiles of all rounds
//   sure                         the interval excludes 1
//   command                      the options of `train`
//   sentence                     all of this in words
nlohmann::json advise(const std::vector<nlohmann::json>& documents);

}  // namespace ringgrad::program
