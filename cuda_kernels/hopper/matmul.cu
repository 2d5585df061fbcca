// c[b] = a[b] · b[b] + bias in float16 or bfloat16 on Hopper: the last step of the ladder in
// ../matmul.cu. gemm.cuh explains it.
#include "ringgrad/cuda_kernels/ladders.h"

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/cuda_kernels/common/map.cuh"
#include "ringgrad/cuda_kernels/hopper/launch_gemm.cuh"

namespace ringgrad::cuda {
namespace {

using hopper::GemmConfig;
using hopper::GemmProblem;

// ---- choosing -----------------------------------------------------------------------------------

// All rings have 192 KB. Narrow tiles are for narrow results, and for those that have too few wide
// tiles to occupy all multiprocessors.
constexpr GemmConfig kWide{.columns = 256, .stages = 4, .cluster = 2};
constexpr GemmConfig kMiddle{.columns = 128, .stages = 6, .cluster = 2};
constexpr GemmConfig kNarrow{.columns = 64, .stages = 8, .cluster = 1};
constexpr const GemmConfig* kConfigs[] = {&kWide, &kMiddle, &kNarrow};

struct Plan {
  const GemmConfig* config;
  int splits;
};

Plan fastest(const GemmShape& shape, int multiprocessors) {
  constexpr int64_t kMostSplits = 32;
  const int64_t slices = (shape.K + hopper::kDepth - 1) / hopper::kDepth;
  Plan best{};
  double least = 0;
  for (const GemmConfig* config : kConfigs)
    for (int splits = 1; splits <= std::min(kMostSplits, slices); ++splits) {
      const double clocks = hopper::predicted_clocks(shape, *config, splits, multiprocessors);
      if (best.config && clocks >= least) continue;
      best = {config, splits};
      least = clocks;
    }
  return best;
}

// ---- the sum of splits --------------------------------------------------------------------------

// c = the sum of its parts [split, element] in their order, + bias, four elements at a time.
template <class T>
__global__ void __launch_bounds__(kThreads)
    sum_splits_kernel(T* c, const float* parts, const T* bias, int splits, int64_t elements,
                      int64_t N) {
  constexpr int kSize = kVectorSize<float>;
  for (int64_t i = thread_number(); i < elements / kSize; i += thread_count()) {
    Vector<float> total = load_vector<kSize>(parts, i);
    for (int split = 1; split < splits; ++split) {
      const Vector<float> part = load_vector<kSize>(parts + split * elements, i);
#pragma unroll
      for (int j = 0; j < kSize; ++j) total.element[j] += part.element[j];
    }
    Vector<T, kSize> result;
#pragma unroll
    for (int j = 0; j < kSize; ++j) {
      const float added = bias ? widen(bias[i * kSize % N + j]) : 0.0f;
      result.element[j] = narrow<T>(total.element[j] + added);
    }
    store_vector<kSize>(c, i, result);
  }
}

// ---- launchers ----------------------------------------------------------------------------------

template <class T, bool kAAlongK, bool kBAlongK>
void launch_planned(Stream stream, const GemmConfig* config, const GemmProblem<T>& problem) {
  (config == &kWide     ? hopper::launch_gemm<T, kWide, kAAlongK, kBAlongK>
   : config == &kMiddle ? hopper::launch_gemm<T, kMiddle, kAAlongK, kBAlongK>
                        : hopper::launch_gemm<T, kNarrow, kAAlongK, kBAlongK>)(stream, problem);
}

template <class T>
GemmProblem<Element<T>> problem_of(const Tensor& c, const Tensor& a, const Tensor& b,
                                   const Tensor& bias) {
  return {c.dtype(),          {c.shape()[0], c.shape()[1], c.shape()[2], a.shape()[2]},
          left_operand<T>(a), right_operand<T>(b),
          device_data<T>(c),  optional_data<T>(bias)};
}

template <class T>
void run(Stream stream, const Tensor& c, const Tensor& a, const Tensor& b, const Tensor& bias) {
  using D = Element<T>;
  GemmProblem<D> problem = problem_of<T>(c, a, b, bias);
  const Plan plan = fastest(problem.shape, multiprocessors(stream.device));
  Tensor parts;
  if (plan.splits > 1) {
    parts = empty({plan.splits, c.numel()}, {.dtype = DType::Float32, .device = c.device()});
    problem.shape.splits = plan.splits;
    problem.partials = parts.data<float>();
  }
  const bool a_along_k = problem.a.k_stride == 1;
  const bool b_along_k = problem.b.k_stride == 1;
  (a_along_k   ? b_along_k ? launch_planned<D, true, true> : launch_planned<D, true, false>
     : b_along_k ? launch_planned<D, false, true>
               : launch_planned<D, false, false>)(stream, plan.config, problem);
  if (plan.splits > 1)
    launch_elements(stream, c.numel() / kVectorSize<float>, sum_splits_kernel<D>, problem.c,
                    static_cast<const float*>(problem.partials), problem.bias, plan.splits,
                    c.numel(), problem.shape.N);
}

template <class T>
bool readable(const Tensor& c, const Tensor& a, const Tensor& b) {
  const GemmProblem<Element<T>> p = problem_of<T>(c, a, b, {});
  return hopper::tma_reads(p.a, p.shape.batches, p.shape.K) &&
         hopper::tma_reads(p.b, p.shape.batches, p.shape.K) && is_vector_aligned<8>(p.c);
}

}  // namespace

bool hopper_supports(const Tensor& c, const Tensor& a, const Tensor& b) {
  constexpr int64_t kMost = 1 << 30;  // of a coordinate
  // A smaller result leaves most of a tile empty.
  constexpr int64_t kLeastElements = 64 * 64;
  const Shape& shape = c.shape();
  const int64_t K = a.shape()[2];
  if (shape[2] % 8 != 0 || shape[1] * shape[2] < kLeastElements || K == 0) return false;
  if (std::max({c.numel() / 4096, shape[1], shape[2], K}) > kMost) return false;
  if (compute_capability_major(c.device()) != 9) return false;
  if (c.dtype() == DType::Float16) return readable<float16>(c, a, b);
  return c.dtype() == DType::BFloat16 && readable<bfloat16>(c, a, b);
}

void matmul_hopper(Stream stream, const Tensor& c, const Tensor& a, const Tensor& b,
                   const Tensor& bias) {
  ASSERT(hopper_supports(c, a, b));
  (c.dtype() == DType::Float16 ? run<float16> : run<bfloat16>)(stream, c, a, b, bias);
}

}  // namespace ringgrad::cuda
