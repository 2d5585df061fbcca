// Sums over any dimensions of a tensor with any strides.
//
// The dimensions are sorted by x's strides into those that are kept (each combination is an output)
// and those that are summed (their combinations are the terms). Mapping: a block takes kColumns
// neighbouring outputs and a segment of the terms. Thread (column, lane) sums every kLanes-th term
// of the segment.
//   rows        the fastest dimension is summed: 1 output × 256 lanes, so that a warp reads
//               neighbouring terms
//   short rows  the same with a warp for each output: 8 outputs × 32 lanes
//   columns     the fastest dimension is kept: 32 outputs × 8 lanes, so that a warp reads
//               neighbouring outputs
// A second launch adds the segments. Segments depend on the shape alone, so results do not depend
// on the device.
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/core/kernels/numbers.h"
#include "ringgrad/cuda_kernels/common/reduce.cuh"
#include "ringgrad/cuda_kernels/common/strided_index.cuh"

namespace ringgrad::cuda {
namespace {

constexpr int64_t kTermsPerLane = 32;

// The type in which a thread adds its terms: float for the 16-bit types, and 64 bits for integers.
template <class T>
using Total = std::conditional_t<std::is_integral_v<T>, int64_t, Compute<T>>;
// The type in which the threads' sums, of type P, are added.
template <class P>
using Wide = std::conditional_t<std::is_integral_v<P>, int64_t, double>;

// A term is a function of an element and of its output's position.
struct Itself {
  template <class A>
  __device__ A operator()(A x, int64_t) const {
    return x;
  }
};
struct Square {
  template <class A>
  __device__ A operator()(A x, int64_t) const {
    return x * x;
  }
};
struct SquaredDeviation {
  const double* mean;
  __device__ double operator()(double x, int64_t output) const {
    const double deviation = mean ? x - mean[output] : x;
    return deviation * deviation;
  }
};

struct SumShape {
  int64_t outputs;
  int64_t terms;
  int64_t segments;
};

// kAlongTerms: neighbouring threads take neighbouring terms; otherwise neighbouring outputs.
template <int kColumns, bool kAlongTerms, class Y, class X, class P, class F>
__global__ void __launch_bounds__(kThreads)
    sum_kernel(SumShape shape, StridedIndex<2> outputs, StridedIndex<1> terms, Y* y,
               Wide<P>* partials, const X* x, F f, double scale) {
  constexpr int kLanes = kThreads / kColumns;
  __shared__ Wide<P> totals[kThreads];
  // These count threads.
  constexpr int kNextLane = kAlongTerms ? 1 : kColumns;
  constexpr int kNextColumn = kAlongTerms ? kLanes : 1;
  const int column = static_cast<int>(threadIdx.x) / kNextColumn % kColumns;
  const int lane = static_cast<int>(threadIdx.x) / kNextLane % kLanes;
  const int64_t segment = blockIdx.x % shape.segments;
  const int64_t output = blockIdx.x / shape.segments * kColumns + column;
  const int64_t first = segment * kLanes * kTermsPerLane;
  const int64_t last = min(first + kLanes * kTermsPerLane, shape.terms);
  const auto at = outputs.offsets(output < shape.outputs ? output : 0);

  const auto sum_in = [&]<class B>(B total) {
    if (output < shape.outputs)
      for (int64_t term = first + lane; term < last; term += kLanes)
        total = Sum{}(total,
                      f(static_cast<B>(widen(x[at.of[1] + terms.offsets(term).of[0]])), at.of[0]));
    return total;
  };
  Wide<P> total = sum_in(P(0));
  if constexpr (std::is_same_v<P, float>)  // it may overflow although the total does not
    if (!(std::abs(total) < kInfinity<double>)) total = sum_in(0.0);
  totals[threadIdx.x] = total;
  for (int half = kLanes / 2; half > 0; half /= 2) {
    __syncthreads();
    if (lane < half)
      totals[threadIdx.x] = Sum{}(totals[threadIdx.x], totals[threadIdx.x + half * kNextLane]);
  }
  if (lane != 0 || output >= shape.outputs) return;
  if (partials)
    partials[output * shape.segments + segment] = totals[threadIdx.x];
  else
    y[at.of[0]] = narrow<Y>(
        scale == 1 ? totals[threadIdx.x]
                   : static_cast<Wide<P>>(scale * static_cast<double>(totals[threadIdx.x])));
}

// One block per output adds its segments.
template <class Y, class W>
__global__ void __launch_bounds__(kThreads)
    add_segments_kernel(SumShape shape, StridedIndex<2> outputs, Y* y, const W* partials,
                        double scale) {
  const int64_t output = blockIdx.x;
  W total = 0;
  for (int64_t s = threadIdx.x; s < shape.segments; s += kThreads)
    total = Sum{}(total, partials[output * shape.segments + s]);
  total = block_reduce(total, Sum{}, W(0));
  if (threadIdx.x == 0)
    y[outputs.offsets(output).of[0]] =
        narrow<Y>(scale == 1 ? total : static_cast<W>(scale * static_cast<double>(total)));
}

// Appends a loop, or merges it with the one before if all operands can walk the two as one.
void append(LoopPlan& plan, int64_t size, std::initializer_list<int64_t> strides) {
  const auto last = static_cast<size_t>(plan.dims) - 1;
  bool merge = plan.dims > 0;
  size_t operand = 0;
  for (const int64_t stride : strides)
    merge = merge && plan.strides[operand++][last] == stride * size;
  const size_t d = merge ? last : static_cast<size_t>(plan.dims++);
  plan.sizes[d] = merge ? plan.sizes[d] * size : size;
  operand = 0;
  for (const int64_t stride : strides) plan.strides[operand++][d] = stride;
  plan.numel *= size;
}

template <class Out, class In, class P = Total<Element<In>>, class F>
void sum_terms(Stream stream, const Tensor& y, const Tensor& x, F f, double scale) {
  LoopPlan outputs;
  LoopPlan terms;
  outputs.numel = terms.numel = 1;
  bool fastest_is_summed = true;
  const DimOrder order = memory_order(x.shape(), x.strides());
  for (int i = 0; i < order.count; ++i) {
    const int d = order.dim[static_cast<size_t>(i)];
    fastest_is_summed = y.shape()[d] == 1;
    if (fastest_is_summed)
      append(terms, x.shape()[d], {x.strides()[d]});
    else
      append(outputs, x.shape()[d], {y.strides()[d], x.strides()[d]});
  }
  if (outputs.dims == 0) append(outputs, 1, {1, 1});
  if (terms.dims == 0) append(terms, 1, {1});

  constexpr int kRow = 1;
  constexpr int kShortRows = 8;
  constexpr int kColumns = 32;
  const bool is_short = terms.numel <= kThreads / kShortRows * kTermsPerLane;  // one segment
  const int columns = !fastest_is_summed ? kColumns : is_short ? kShortRows : kRow;
  const int64_t segment = kThreads / columns * kTermsPerLane;
  const SumShape shape{outputs.numel, terms.numel, (terms.numel + segment - 1) / segment};
  Tensor partials;
  if (shape.segments > 1)
    partials = empty({shape.outputs * shape.segments}, {dtype_of<Wide<P>>, y.device()});
  const StridedIndex<2> to(outputs);
  const StridedIndex<1> from(terms);
  const auto kernel =
      columns == kColumns     ? sum_kernel<kColumns, false, Element<Out>, Element<In>, P, F>
      : columns == kShortRows ? sum_kernel<kShortRows, true, Element<Out>, Element<In>, P, F>
                              : sum_kernel<kRow, true, Element<Out>, Element<In>, P, F>;
  const int64_t tiles = (shape.outputs + columns - 1) / columns;
  launch(kernel, grid_of(tiles * shape.segments), kThreads, 0, stream, shape, to, from,
         device_data<Out>(y), optional_data<Wide<P>>(partials), device_data<In>(x), f, scale);
  if (shape.segments > 1)
    launch(add_segments_kernel<Element<Out>, Wide<P>>, grid_of(shape.outputs), kThreads, 0, stream,
           shape, to, device_data<Out>(y), device_data<Wide<P>>(partials), scale);
}

void sum_cuda(Stream stream, const Tensor& y, const Tensor& x, double scale) {
  ASSERT(y.dim() == x.dim() && y.is_contiguous() && !x.is_channel_blocked());
  if (x.numel() == 0) return kernels::fill(y, 0 * scale);  // the mean of no elements is NaN
  if (y.dtype() != x.dtype())
    return visit_floating("sum", x.dtype(), [&]<class T>() {
      if (y.dtype() == DType::Float64)
        sum_terms<double, T, double>(stream, y, x, Itself{}, scale);
      else
        sum_terms<float, T, float>(stream, y, x, Itself{}, scale);
    });
  visit_number("sum", x.dtype(),
               [&]<class T>() { sum_terms<T, T>(stream, y, x, Itself{}, scale); });
}

void squared_deviations_cuda(Stream stream, const Tensor& y, const Tensor& x, const Tensor& mean) {
  ASSERT(y.dim() == x.dim() && y.is_contiguous() && !x.is_channel_blocked());
  if (x.numel() == 0) return kernels::fill(y, 0);
  visit_floating("squared_deviations", x.dtype(), [&]<class T>() {
    sum_terms<double, T, double>(stream, y, x, SquaredDeviation{optional_data<double>(mean)}, 1);
  });
}

void sum_squares_cuda(Stream stream, const Tensor& y, const Tensor& x) {
  ASSERT(x.is_contiguous() && y.numel() == 1);
  if (x.numel() == 0) return kernels::fill(y, 0);
  const Tensor flat = x.as_strided({x.numel()}, {1}, x.storage_offset());
  visit_floating("sum_squares", x.dtype(), [&]<class T>() {
    sum_terms<Accumulator<T>, T>(stream, y.as_strided({1}, {1}, y.storage_offset()), flat, Square{},
                                 1);
  });
}

REGISTER_KERNEL(sum, CUDA, Native, sum_cuda);
REGISTER_KERNEL(squared_deviations, CUDA, Native, squared_deviations_cuda);
REGISTER_KERNEL(sum_squares, CUDA, Native, sum_squares_cuda);

}  // namespace
}  // namespace ringgrad::cuda
