// Batch normalisation in its four steps. x is NCHW (or any [N, C, …]) or NHWC; everything per
// channel is float32, or float64 for float64.
//
// Mapping: the statistics (common/moments.cuh, and step by step ladders/moments_ladder.cu) and the
// sums of the backward pass are reductions per channel (common/channels.cuh). The two other steps
// are one pass over memory. Each thread handles 16 bytes of neighbouring elements at a time.
#include <cmath>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/cuda_kernels/batch_norm.h"
#include "ringgrad/cuda_kernels/common/batch_norm.cuh"
#include "ringgrad/cuda_kernels/common/moments.cuh"
#include "ringgrad/cuda_kernels/common/strided_index.cuh"

namespace ringgrad::cuda {
namespace {

// The factors by which the channels of kSize neighbouring elements are mapped (Terms::Line). They
// are recomputed only if the channels change. With channels last and C a power of two, a thread's
// step through memory ends at the same channels. A grid is one wave of blocks, so each thread takes
// many of those steps.
template <class Terms, int kSize>
struct Lines {
  typename Terms::Line of[kSize] = {};
  int64_t first = -1;

  __device__ __forceinline__ void move_to(const Channels& channels, int64_t offset,
                                          const Terms& terms) {
    const int64_t c = channels.channel(offset);
    if (c == first) return;
    first = c;
#pragma unroll
    for (int k = 0; k < kSize; ++k) of[k] = k == 0 || channels.last ? terms.line(c + k) : of[0];
  }
};

constexpr int kBits = 8;  // of a byte of batch_norm_positive(), one for each element of a vector

// ---- forward ------------------------------------------------------------------------------------

template <int kSize, class T, class A = Compute<T>>
__global__ void RINGGRAD_ONE_WAVE apply_kernel(Channels channels, int64_t vectors,
                                               Normalise<T> normalise, bool relu, T* y,
                                               uint8_t* positive, const T* x, const T* residual) {
  constexpr int kInFlight = 4;
  Lines<Normalise<T>, kSize> lines;
  for (int64_t first = thread_number(); first < vectors; first += kInFlight * thread_count()) {
    Vector<T, kSize> in[kInFlight];
    Vector<T, kSize> added[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const int64_t v = first + i * thread_count();
      if (v < vectors) in[i] = load_vector<kSize>(x, v);
      if (v < vectors && residual) added[i] = load_vector<kSize>(residual, v);
    }
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const int64_t v = first + i * thread_count();
      if (v >= vectors) break;
      Vector<T, kSize> out;
      unsigned bits = 0;
      lines.move_to(channels, v * kSize, normalise);
#pragma unroll
      for (int k = 0; k < kSize; ++k) {
        A value = lines.of[k](widen(in[i].element[k]));
        if (residual) value += widen(added[i].element[k]);
        bits |= static_cast<unsigned>(value > 0) << k;
        out.element[k] = narrow<T>(relu && !(value > 0) && value == value ? A(0) : value);
      }
      store_vector<kSize>(y, v, out);
      if constexpr (kSize == kBits)
        if (positive) positive[v] = static_cast<uint8_t>(bits);
    }
  }
}

// ---- backward -----------------------------------------------------------------------------------

// The elements that ReLU lets through: those with bits that forward has written, else those with
// y > 0, else (without relu) all.
template <class T>
struct Through {
  const uint8_t* bits;  // bit i % 8 of byte i / 8, in the order of memory
  const T* y;

  template <int kSize>
  struct Of {
    Vector<T, kSize> y;
    unsigned bits;
  };
  template <int kSize>
  __device__ __forceinline__ Of<kSize> load(int64_t offset) const {
    Of<kSize> of{};
    if (bits)
      of.bits = static_cast<unsigned>(bits[offset / kBits]) >> offset % kBits;
    else if (y)
      of.y = load_vector<kSize>(y + offset, 0);
    return of;
  }
  // Returns the gradient at the normalised value.
  template <int kSize>
  __device__ __forceinline__ Compute<T> operator()(T dy, const Of<kSize>& of, int k) const {
    const bool counts = bits ? (of.bits >> k & 1) != 0 : !y || widen(of.y.element[k]) > 0;
    return counts ? widen(dy) : Compute<T>(0);
  }
};

template <class T, class A = Compute<T>>
struct BackwardReducer {
  using State = Sums<A>;
  static constexpr int kInFlight = 2;
  const T* dy;
  const T* x;
  Through<T> through;
  const A* mean;
  const A* var;
  A* sum_dy;
  A* sum_dy_xhat;
  A eps;

  template <int kSize>
  struct Term {
    Vector<T, kSize> dy;
    Vector<T, kSize> x;
    typename Through<T>::template Of<kSize> relu;
  };
  template <int kSize>
  __device__ __forceinline__ Vector<A, kSize> constants(int64_t c) const {
    Vector<A, kSize> means;
#pragma unroll
    for (int k = 0; k < kSize; ++k) means.element[k] = mean[c + k];
    return means;
  }
  template <int kSize>
  __device__ __forceinline__ Term<kSize> load(int64_t offset) const {
    return {load_vector<kSize>(dy + offset, 0), load_vector<kSize>(x + offset, 0),
            through.template load<kSize>(offset)};
  }
  template <int kSize>
  __device__ __forceinline__ void add(State (&s)[kSize], const Vector<A, kSize>& means,
                                      const Term<kSize>& term) const {
#pragma unroll
    for (int k = 0; k < kSize; ++k) {
      const A g = through(term.dy.element[k], term.relu, k);
      s[k].dy += g;
      // The division by the deviation happens once, in finish.
      s[k].dy_xhat += g * (widen(term.x.element[k]) - means.element[k]);
    }
  }
  template <int kMany>
  __device__ __forceinline__ void merge(State& s, const State (&others)[kMany]) const {
#pragma unroll
    for (int i = 0; i < kMany; ++i) {
      s.dy += others[i].dy;
      s.dy_xhat += others[i].dy_xhat;
    }
  }
  __device__ __forceinline__ void finish(int64_t c, const State& s) const {
    sum_dy[c] = s.dy;
    sum_dy_xhat[c] = s.dy_xhat / std::sqrt(var[c] + eps);
  }
};

template <int kSize, class T, class A = Compute<T>>
__global__ void RINGGRAD_ONE_WAVE backward_apply_kernel(Channels channels, int64_t vectors,
                                                        BackwardTerms<T> terms, T* dx, T* dresidual,
                                                        Through<T> through, const T* dy,
                                                        const T* x) {
  Lines<BackwardTerms<T>, kSize> lines;
  for (int64_t v = thread_number(); v < vectors; v += thread_count()) {
    const auto grad = load_vector<kSize>(dy, v);
    const auto in = load_vector<kSize>(x, v);
    const auto of = through.template load<kSize>(v * kSize);
    Vector<T, kSize> to_x;
    Vector<T, kSize> to_residual;
    lines.move_to(channels, v * kSize, terms);
#pragma unroll
    for (int k = 0; k < kSize; ++k) {
      const A g = through(grad.element[k], of, k);
      to_x.element[k] = narrow<T>(lines.of[k](g, widen(in.element[k])));
      to_residual.element[k] = narrow<T>(g);
    }
    store_vector<kSize>(dx, v, to_x);
    if (dresidual) store_vector<kSize>(dresidual, v, to_residual);
  }
}

// ---- launchers ----------------------------------------------------------------------------------

// Launches the kernel for vectors if a vector's elements are neighbours in their layout, and
// otherwise the kernel for elements.
template <int kSize, class... Params, class... Args>
void launch_vectors(Stream stream, const Tensor& x, bool aligned,
                    void (*vector_kernel)(Channels, int64_t, Params...),
                    void (*element_kernel)(Channels, int64_t, Params...), const Args&... args) {
  const Channels channels(x);
  const bool vectors = aligned && (channels.last ? channels.C : channels.S) % kSize == 0;
  const int64_t n = vectors ? x.numel() / kSize : x.numel();
  const auto wave = static_cast<unsigned>(kBlocksOfWave * multiprocessors(stream.device));
  launch(vectors ? vector_kernel : element_kernel, std::min(blocks_for(n, kThreads), wave),
         kThreads, 0, stream, channels, n, args...);
}

template <class T>
bool all_aligned(std::initializer_list<const Tensor*> tensors) {
  for (const Tensor* t : tensors)
    if (t->defined() && !is_vector_aligned<kVectorSize<T>>(device_data<T>(*t))) return false;
  return true;
}
// Returns true if all tensors have x's memory layout. Optional tensors may be undefined.
bool alike(const Tensor& x, std::initializer_list<const Tensor*> others) {
  for (const Tensor* other : others)
    if (other->defined() && !same_memory(x, *other)) return false;
  return true;
}

// Channel-blocked memory is used on the CPU only. Kernels here see a tensor of that layout as a
// channels-last copy.
Tensor blank(const Tensor& x) {
  return x.defined() ? empty(x.shape(), {x.dtype(), x.device(), Layout::ChannelsLast}) : x;
}
Tensor unblocked(const Tensor& x) {
  const Tensor copy = blank(x);
  if (x.defined()) kernels::copy(copy, x);
  return copy;
}

// Splits an output, or its bits, which are of type uint8.
bool is_bits(const Tensor& y) { return y.defined() && y.dtype() == DType::UInt8; }
Tensor output_of(const Tensor& y) { return is_bits(y) ? Tensor() : y; }
template <class T>
Through<Element<T>> through_of(const Tensor& y) {
  if (is_bits(y)) return {device_data<uint8_t>(y), nullptr};
  return {nullptr, optional_data<T>(y)};
}

bool begins_vector(const Tensor& x) {
  return !x.defined() || reinterpret_cast<uintptr_t>(x.raw_data()) % kVectorBytes == 0;
}
Tensor beginning_vector(const Tensor& x) {
  if (begins_vector(x)) return x;
  const Tensor copy = empty_like(x);
  kernels::copy(copy, x);
  return copy;
}

template <class A>
Running<A> running_of(const kernels::RunningStatistics& running) {
  return {optional_data<A>(running.mean), optional_data<A>(running.var),
          optional_data<int64_t>(running.batches), static_cast<A>(running.momentum)};
}

void statistics(Stream stream, const Tensor& mean, const Tensor& var, const Tensor& x,
                const kernels::RunningStatistics& running) {
  if (x.is_channel_blocked()) return statistics(stream, mean, var, unblocked(x), running);
  ASSERT(alike(x, {&x}));
  if (x.shape()[1] == 0) return;
  visit_floating("batch_norm", x.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    reduce_channels<kVectorSize<T>>(
        stream, Channels(x), all_aligned<T>({&x}),
        StatsReducer<Element<T>>{device_data<T>(x), device_data<A>(mean), device_data<A>(var),
                                 running_of<A>(running)});
  });
}

void batch_norm_stats_cuda(Stream stream, const Tensor& mean, const Tensor& var, const Tensor& x) {
  statistics(stream, mean, var, x, {});
}

void batch_norm_apply_cuda(Stream stream, const Tensor& y, const Tensor& positive, const Tensor& x,
                           const Tensor& mean, const Tensor& var, const Tensor& weight,
                           const Tensor& bias, const Tensor& residual, double eps, bool relu) {
  if (positive.defined() && !(begins_vector(y) && begins_vector(x) && begins_vector(residual))) {
    // Only whole vectors write bytes of bits.
    const Tensor result = empty_like(y);
    batch_norm_apply_cuda(stream, result, positive, beginning_vector(x), mean, var, weight, bias,
                          beginning_vector(residual), eps, relu);
    return kernels::copy(y, result);
  }
  if (x.is_channel_blocked()) {
    ASSERT(!positive.defined());
    const Tensor result = blank(y);
    batch_norm_apply_cuda(stream, result, {}, unblocked(x), mean, var, weight, bias,
                          unblocked(residual), eps, relu);
    return kernels::copy(y, result);
  }
  ASSERT(alike(x, {&x, &y, &residual}));
  visit_floating("batch_norm", x.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    using D = Element<T>;
    constexpr int kSize = kVectorSize<T>;
    const Normalise<D> normalise{device_data<A>(mean), device_data<A>(var),
                                 optional_data<A>(weight), optional_data<A>(bias),
                                 static_cast<A>(eps)};
    launch_vectors<kSize>(stream, x, all_aligned<T>({&y, &x, &residual}), apply_kernel<kSize, D>,
                          apply_kernel<1, D>, normalise, relu, device_data<T>(y),
                          optional_data<uint8_t>(positive), device_data<T>(x),
                          optional_data<T>(residual));
  });
}

void batch_norm_backward_reduce_cuda(Stream stream, const Tensor& sum_dy, const Tensor& sum_dy_xhat,
                                     const Tensor& dy, const Tensor& x, const Tensor& y,
                                     const Tensor& mean, const Tensor& var, double eps) {
  if (x.is_channel_blocked())
    return batch_norm_backward_reduce_cuda(stream, sum_dy, sum_dy_xhat, unblocked(dy), unblocked(x),
                                           unblocked(y), mean, var, eps);
  const Tensor output = output_of(y);
  ASSERT(alike(x, {&x, &dy, &output}));
  if (x.shape()[1] == 0) return;
  visit_floating("batch_norm", x.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    reduce_channels<kVectorSize<T>>(
        stream, Channels(x), all_aligned<T>({&dy, &x, &output}),
        BackwardReducer<Element<T>>{device_data<T>(dy), device_data<T>(x), through_of<T>(y),
                                    device_data<A>(mean), device_data<A>(var),
                                    device_data<A>(sum_dy), device_data<A>(sum_dy_xhat),
                                    static_cast<A>(eps)});
  });
}

void batch_norm_backward_apply_cuda(Stream stream, const Tensor& dx, const Tensor& dresidual,
                                    const Tensor& dy, const Tensor& x, const Tensor& y,
                                    const Tensor& mean, const Tensor& var, const Tensor& weight,
                                    const Tensor& sum_dy, const Tensor& sum_dy_xhat, double eps,
                                    double count) {
  if (x.is_channel_blocked()) {
    const Tensor to_x = blank(dx);
    const Tensor to_residual = blank(dresidual);
    batch_norm_backward_apply_cuda(stream, to_x, to_residual, unblocked(dy), unblocked(x),
                                   unblocked(y), mean, var, weight, sum_dy, sum_dy_xhat, eps,
                                   count);
    kernels::copy(dx, to_x);
    if (dresidual.defined()) kernels::copy(dresidual, to_residual);
    return;
  }
  const Tensor output = output_of(y);
  ASSERT(alike(x, {&x, &dx, &dresidual, &dy, &output}));
  visit_floating("batch_norm", x.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    using D = Element<T>;
    constexpr int kSize = kVectorSize<T>;
    const BackwardTerms<D> terms{device_data<A>(mean),        device_data<A>(var),
                                 optional_data<A>(weight),    device_data<A>(sum_dy),
                                 device_data<A>(sum_dy_xhat), static_cast<A>(eps),
                                 static_cast<A>(1 / count)};
    launch_vectors<kSize>(stream, x, all_aligned<T>({&dx, &dresidual, &dy, &x, &output}),
                          backward_apply_kernel<kSize, D>, backward_apply_kernel<1, D>, terms,
                          device_data<T>(dx), optional_data<T>(dresidual), through_of<T>(y),
                          device_data<T>(dy), device_data<T>(x));
  });
}

// ---- parts of a convolution's sums --------------------------------------------------------------

// Reduces a convolution's parts [part, C] as Reducer reduces the elements of a tensor.
template <class Reducer>
struct PartsReducer : Reducer {
  using State = typename Reducer::State;
  static constexpr int kInFlight = kMergedAtOnce;
  const State* parts;

  template <int kSize>
  __device__ __forceinline__ Nothing constants(int64_t) const {
    return {};
  }
  template <int kSize>
  __device__ __forceinline__ State load(int64_t offset) const {
    return parts[offset];
  }
  template <int kSize>
  __device__ __forceinline__ void add(State (&s)[kSize], Nothing, const State& part) const {
    const State others[] = {part};
    this->merge(s[0], others);
  }
};

template <class Reducer>
void reduce_parts(Stream stream, const Tensor& parts, const Reducer& reducer) {
  using State = typename Reducer::State;
  ASSERT(parts.shape()[2] * sizeof(float) == sizeof(State));
  // One channel at a time: the parts seen as images of one pixel.
  const Tensor of_channels =
      parts.as_strided({parts.shape()[0], parts.shape()[1]}, {parts.shape()[1], 1}, 0);
  reduce_channels<1>(
      stream, Channels(of_channels), true,
      PartsReducer<Reducer>{reducer, reinterpret_cast<const State*>(parts.data<float>())});
}

void batch_norm_cuda(Stream stream, const Tensor& y, const Tensor& positive, const Tensor& mean,
                     const Tensor& var, const Tensor& x, const Tensor& weight, const Tensor& bias,
                     const Tensor& residual, double eps, bool relu,
                     const kernels::RunningStatistics& running) {
  batch_statistics(stream, mean, var, x, {}, running);
  batch_norm_apply_cuda(stream, y, positive, x, mean, var, weight, bias, residual, eps, relu);
}

REGISTER_KERNEL(batch_norm_stats, CUDA, Native, batch_norm_stats_cuda);
REGISTER_KERNEL(batch_norm_apply, CUDA, Native, batch_norm_apply_cuda);
REGISTER_KERNEL(batch_norm_backward_reduce, CUDA, Native, batch_norm_backward_reduce_cuda);
REGISTER_KERNEL(batch_norm_backward_apply, CUDA, Native, batch_norm_backward_apply_cuda);
REGISTER_KERNEL(batch_norm, CUDA, Native, batch_norm_cuda);
REGISTER_KERNEL(batch_norm_backward, CUDA, Native, batch_norm_backward_in_steps);

}  // namespace

// The step that completes a channel's statistics also updates its running ones, if those are
// contiguous.
void batch_statistics(Stream stream, const Tensor& mean, const Tensor& var, const Tensor& x,
                      const Tensor& parts, const kernels::RunningStatistics& running) {
  const auto lies_there = [](const Tensor& t) { return !t || t.is_contiguous(); };
  const bool at_once = lies_there(running.mean) && lies_there(running.var);
  const kernels::RunningStatistics updated = at_once ? running : kernels::RunningStatistics();
  if (parts)
    reduce_parts(stream, parts,
                 StatsReducer<float>{nullptr, mean.data<float>(), var.data<float>(),
                                     running_of<float>(updated)});
  else
    statistics(stream, mean, var, x, updated);
  if (!at_once)
    update_running(running, mean, var,
                   static_cast<double>(x.numel()) / static_cast<double>(x.size(1)));
}

void merge_gradient_sums(Stream stream, const Tensor& sum_dy, const Tensor& sum_dy_xhat,
                         const Tensor& parts, const Tensor& var, double eps) {
  reduce_parts(stream, parts,
               BackwardReducer<float>{nullptr,
                                      nullptr,
                                      {},
                                      nullptr,
                                      var.data<float>(),
                                      sum_dy.data<float>(),
                                      sum_dy_xhat.data<float>(),
                                      static_cast<float>(eps)});
}

}  // namespace ringgrad::cuda
