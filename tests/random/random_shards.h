// Random programs of VirtualRanks and DataParallel, for random_ddp.cpp: each gives the words of what is wrong, or none.
#pragma once

#include <cstdint>
#include <string>

namespace ringgrad::test {

// A batch cut into shards: the same bits on 1 to 3 ranks, and the gradient of the whole batch.
std::string run_shards(uint64_t seed);

// Replicas on 2 or 3 devices: the gradient, and buffers, of one process that computes their pieces one after the other.
std::string run_data_parallel(uint64_t seed);

}  // namespace ringgrad::test
