// Random programs of VirtualRanks and DataParallel, for random_ddp.cpp. Each returns what is wrong,
// or "".
#pragma once

#include <cstdint>
#include <string>

namespace ringgrad::test {

// Cuts a batch into shards. The bits must be the same on 1 to 3 ranks, and the gradient must be
// that of the whole batch.
std::string run_shards(uint64_t seed);

// Runs replicas on 2 or 3 devices. Gradient and buffers must be those of one process that computes
// the pieces one after the other.
std::string run_data_parallel(uint64_t seed);

}  // namespace ringgrad::test
