// A reduction per channel that counts its own terms and merges. emulator_merges_test.cpp includes
// this file.
#include <algorithm>

#include "ringgrad/cuda_kernels/common/channels.cuh"

namespace {

using namespace ringgrad;
using namespace ringgrad::cuda;

// The number of terms so far, and the number of merges on the longest path.
struct Depth {
  int terms;
  int merges;
};

struct DepthReducer {
  using State = Depth;
  static constexpr int kInFlight = 4;
  int* terms;
  int* merges;

  template <int kSize>
  __device__ int constants(int64_t) const {
    return 0;
  }
  template <int kSize>
  __device__ int load(int64_t) const {
    return 1;
  }
  template <int kSize>
  __device__ void add(State (&s)[kSize], int, int term) const {
    for (int k = 0; k < kSize; ++k) s[k].terms += term;
  }
  template <int kMany>
  __device__ void merge(State& s, const State (&others)[kMany]) const {
    for (int i = 0; i < kMany; ++i) {
      s.terms += others[i].terms;
      s.merges = std::max(s.merges, others[i].merges);
    }
    ++s.merges;
  }
  __device__ void finish(int64_t c, const State& s) const {
    terms[c] = s.terms;
    merges[c] = s.merges;
  }
};

}  // namespace
