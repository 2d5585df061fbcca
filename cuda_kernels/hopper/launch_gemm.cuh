// Starts the kernel of gemm.cuh: the tensor maps of its operands, and as many blocks as fit.
#pragma once

#include "ringgrad/cuda_kernels/common/gemm.cuh"
#include "ringgrad/cuda_kernels/hopper/gemm.cuh"

namespace ringgrad::cuda::hopper {

// Returns true if TMA can read an operand: it needs a contiguous dimension, 16-byte alignment of
// its beginning and of all other strides, and rows that do not overlap.
template <class T>
bool tma_reads(const MatrixOperand<T>& x, int64_t batches, int64_t K) {
  constexpr int64_t kAligned = 16 / sizeof(T);
  const bool along_k = x.k_stride == 1;
  const int64_t stride = along_k ? x.long_stride : x.k_stride;
  const int64_t width = along_k ? K : x.size;
  const int64_t rows = along_k ? x.size : K;
  return (along_k || x.long_stride == 1) && is_vector_aligned<kAligned>(x.data) &&
         (rows == 1 || (stride % kAligned == 0 && stride >= width)) &&
         (batches == 1 || (x.batch_stride % kAligned == 0 && x.batch_stride >= 0));
}

// A box of 64 × `longs` elements of an operand: 64 of K by `longs` if K is contiguous, otherwise 64
// of the long dimension by 64 of K.
template <class T>
TensorMap operand_map(DType dtype, const MatrixOperand<T>& x, int64_t batches, int64_t K,
                      int longs) {
  constexpr int64_t kBytes = sizeof(T);
  constexpr int64_t kAligned = 16 / kBytes;
  const bool along_k = x.k_stride == 1;
  const int64_t width = along_k ? K : x.size;
  const int64_t rows = along_k ? x.size : K;
  // The strides of dimensions of size 1 may be anything, but not for TMA.
  const int64_t padded = (width + kAligned - 1) / kAligned * kAligned;
  const int64_t stride = rows == 1 ? padded : along_k ? x.long_stride : x.k_stride;
  const bool one = batches == 1 || x.batch_stride == 0;
  return tiled_map({dtype,
                    x.data,
                    {width, rows, one ? 1 : batches},
                    {stride * kBytes, (one ? stride * rows : x.batch_stride) * kBytes},
                    {kDepth, along_k ? longs : 64, 1}});
}

template <class T>
struct GemmProblem {
  DType dtype;
  GemmShape shape;
  MatrixOperand<T> a;
  MatrixOperand<T> b;
  T* c;
  const T* bias;
  float* partials = nullptr;     // shape.splits of them; required if there are several
  GemmClocks* clocks = nullptr;  // of as many blocks as there are multiprocessors
  int band = 8;
};

// Returns the clocks that a product takes by a model. Tensor cores do 2048 multiplications in a
// clock, and L2 gives a multiprocessor some 39 bytes. A tile costs some clocks before its first
// product and after its last, and the sum of splits is a launch and traffic of its own.
inline double predicted_clocks(const GemmShape& shape, const GemmConfig& config, int splits,
                               int multiprocessors) {
  constexpr double kProductsPerClock = 2048;
  constexpr double kBytesOfL2 = 39;
  constexpr double kBeforeTile = 1000;
  constexpr double kEpilogueOfTile = 1500;
  constexpr double kSum = 4000;
  constexpr double kBytesOfMemory = 2000;
  const auto parts = [](int64_t size, int64_t of) { return (size + of - 1) / of; };
  const int64_t groups = parts(shape.M, int64_t{kTileRows} * config.cluster) *
                         parts(shape.N, config.columns) * shape.batches * splits;
  const int64_t waves = parts(groups, std::max(1, multiprocessors / config.cluster));
  const int shared_by = config.multicast ? config.cluster : 1;
  const double products = double{kTileRows} * config.columns * kDepth / kProductsPerClock;
  const double loads = double{kRowBytes} * (kTileRows + config.columns / shared_by) / kBytesOfL2;
  const double slice =
      std::max(config.without & kProducts ? 0 : products, config.without & kLoads ? 0 : loads);
  const auto slices = static_cast<double>(parts(parts(shape.K, kDepth), splits));
  const bool hidden = config.in_turn || (config.without & kEpilogue);
  const double tile = slices * slice + kBeforeTile + (hidden ? 0 : kEpilogueOfTile);
  const auto results = static_cast<double>(shape.batches * shape.M * shape.N);
  const double sum = splits > 1 ? kSum + results * splits * 8 / kBytesOfMemory : 0;
  return static_cast<double>(waves) * tile + sum;
}

// REQUIRES: tma_reads() for both operands, which are contiguous as kAAlongK and kBAlongK say; c is
// aligned to 16 bytes, N is a multiple of 8, and K is not zero.
template <class T, GemmConfig kConfig, bool kAAlongK, bool kBAlongK>
void launch_gemm(Stream stream, const GemmProblem<T>& p) {
  using G = Gemm<T, kConfig, kAAlongK, kBAlongK>;
  const GemmShape& s = p.shape;
  const auto parts = [](int64_t size, int of) { return static_cast<int>((size + of - 1) / of); };
  GemmArguments g{};
  g.a = operand_map(p.dtype, p.a, s.batches, s.K, kTileRows);
  g.b = operand_map(p.dtype, p.b, s.batches, s.K,
                    G::kMulticast ? G::kColumns / G::kCluster : G::kColumns);
  g.c = tiled_map({p.dtype,
                   p.c,
                   {s.N, s.M, s.batches},
                   {s.N * int64_t{sizeof(T)}, s.M * s.N * int64_t{sizeof(T)}},
                   {64, kGroupRows, 1}});
  g.results = p.c;
  g.bias = p.bias;
  g.partials = s.splits > 1 ? p.partials : nullptr;
  g.clocks = p.clocks;
  g.M = static_cast<int>(s.M);
  g.N = static_cast<int>(s.N);
  g.row_groups = parts(s.M, kTileRows * G::kCluster);
  g.column_tiles = parts(s.N, G::kColumns);
  g.slices = parts(s.K, kDepth);
  g.splits = s.splits;
  g.batches = static_cast<int>(s.batches);
  g.groups = g.row_groups * g.column_tiles * s.splits * g.batches;
  g.band = p.band;
  g.a_batch_step = p.a.batch_stride != 0;
  g.b_batch_step = p.b.batch_stride != 0;
  const int at_once = multiprocessors(stream.device) / G::kCluster;
  launch_with({.cluster = G::kCluster},
              gemm_kernel<T, kConfig.columns, kConfig.stages, kConfig.cluster, kConfig.flags(),
                          kAAlongK, kBAlongK>,
              static_cast<unsigned>(std::min(g.groups, std::max(1, at_once)) * G::kCluster),
              (1 + kConsumers) * kWarpgroup, G::kSharedBytes, stream, g);
}

}  // namespace ringgrad::cuda::hopper
