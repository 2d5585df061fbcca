// The gradient of the filters for images with few channels, in float16 or bfloat16.
//
// A block keeps bands of x and of dy in shared memory (common/image_band.cuh), and goes through its
// images. Products are dy's pixels, transposed, × x's pixels at a tap: both by ldmatrix, summed
// over the pixels. Each byte of x and dy is read from global memory once.
//
// README.md has predictions. Not yet run on a GPU.
#include "ringgrad/core/factory.h"
#include "ringgrad/cuda_kernels/common/image_band.cuh"
#include "ringgrad/cuda_kernels/ladders.h"

namespace ringgrad::cuda {
namespace {

constexpr int kWeightThreads = kWeightWarps * kWarp;
// One part of dw for each block. Both are constant, so that every card computes the same bits.
constexpr int64_t kMostParts = 264;
constexpr int64_t kMostFloats = 64 * (64 * 64 * 9);  // of all parts, which are written and read

struct WeightProblem {
  Band x;
  Band dy;
  int stride;
  int items;
  Divider by_bands;
};

// A warp sums 16 filters × the taps of one row × all channels, and keeps the sums while the block
// goes through its images. Where fewer such units exist than warps, several warps share one, and
// take its pixels in turn. Block b writes part b of [part][filter][tap × channel].
template <class T, int kTaps, int kChannels>
__global__ void __launch_bounds__(kWeightThreads, kTaps* kChannels <= 96 ? 2 : 1)
    shared_image_weight_kernel(WeightProblem g, const T* dy, const T* x, float* parts) {
  constexpr int kFragments = kChannels / kFragmentN;
  constexpr int kPitch = kChannels + kChunk;
  DYNAMIC_SHARED(T, x_band);
  T* const dy_band = x_band + g.x.elements();
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int units = kTaps * (g.dy.channels / kFragmentM);
  const auto shares = static_cast<int>(shares_of_weight(kTaps, g.dy.channels));
  const int share = warp / units;
  const int tap_row = warp % units % kTaps;
  const int first_filter = warp % units / kTaps * kFragmentM;
  const int pixels = g.dy.rows * g.dy.W;
  float total[kTaps * kFragments][4] = {};
  for (int item = static_cast<int>(blockIdx.x); item < g.items; item += gridDim.x) {
    const auto [image, number] = g.by_bands(static_cast<unsigned>(item));
    const int first_row = static_cast<int>(number) * g.dy.rows;
    g.x.load(x_band, x, image, first_row * g.stride - kTaps / 2);
    g.dy.load(dy_band, dy, image, first_row);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    for (int pixel = share * kFragmentK; pixel < pixels && share < shares;
         pixel += shares * kFragmentK) {
      // A pixel after the last is zero, like the first of x's border.
      const int of_a = pixel + lane / 16 * 8 + lane % 8;
      unsigned a[4];
      ldmatrix_x4<true>(a, of_a < pixels
                               ? dy_band + of_a * g.dy.pitch() + first_filter + lane / 8 % 2 * 8
                               : x_band);
      const int of_b = min(pixel + lane % 16, pixels - 1);
      const auto [row, column] = g.dy.by_width(static_cast<unsigned>(of_b));
      const int at = (static_cast<int>(row) * g.stride + tap_row) * g.x.width() +
                     static_cast<int>(column) * g.stride;
      const T* const from = x_band + at * kPitch + lane / 16 * kChunk;
#pragma unroll
      for (int s = 0; s < kTaps; ++s)
#pragma unroll
        for (int j = 0; j < kFragments; j += 2) {
          unsigned b[4];
          ldmatrix_x4<true>(b, from + s * kPitch + j * kFragmentN);
          mma_16816<T>(total[s * kFragments + j], a, {b[0], b[1]});
          mma_16816<T>(total[s * kFragments + j + 1], a, {b[2], b[3]});
        }
    }
    __syncthreads();  // all warps have read the bands
  }

  // The first warp of a unit adds the sums of the others in order, element by element of a lane.
  constexpr int kSums = kTaps * kFragments * 4;
  float* const sums = reinterpret_cast<float*>(x_band) + warp % units * kSums * kWarp + lane;
  for (int turn = 1; turn < shares; ++turn) {
    if (share == turn)
#pragma unroll
      for (int i = 0; i < kSums; ++i) sums[i * kWarp] = total[i / 4][i % 4];
    __syncthreads();
    if (share == 0)
#pragma unroll
      for (int i = 0; i < kSums; ++i) total[i / 4][i % 4] += sums[i * kWarp];
    __syncthreads();
  }
  if (share != 0) return;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t filter = int64_t{blockIdx.x} * g.dy.channels + first_filter + half * 8 + lane / 4;
    float* const part = parts + (filter * kTaps + tap_row) * kTaps * kChannels + lane % 4 * 2;
#pragma unroll
    for (int j = 0; j < kTaps * kFragments; ++j)
      store_vector<2>(part + j * kFragmentN, 0, {total[j][half * 2], total[j][half * 2 + 1]});
  }
}

template <class T, int kTaps, int kChannels>
Tensor run_weight(Stream stream, const ConvProblem& p, const Tensor& dy, const Tensor& x) {
  const int64_t stride = p.options.stride.h;
  const Division d = divide_images(p, 1);
  const int64_t items = x.shape()[0] * d.bands;
  const int64_t blocks =
      std::min({items, kMostParts, std::max<int64_t>(kMostFloats / p.w.numel(), 1)});
  const Tensor parts = empty({blocks, p.w[0], kTaps * kTaps, p.w[1]}, {DType::Float32, x.device()});
  const WeightProblem problem{.x = Band(x, kTaps / 2, (d.rows - 1) * stride + kTaps),
                              .dy = Band(dy, 0, d.rows),
                              .stride = as_int(stride),
                              .items = as_int(items),
                              .by_bands = Divider(d.bands)};
  launch(shared_image_weight_kernel<Element<T>, kTaps, kChannels>, static_cast<unsigned>(blocks),
         kWeightThreads, d.bytes, stream, problem, device_data<T>(dy), device_data<T>(x),
         parts.data<float>());
  return parts;
}

}  // namespace

Tensor weight_parts_shared_image(Stream stream, const Tensor& dw, const Tensor& dy, const Tensor& x,
                                 const Conv2dOptions& options) {
  const ConvProblem p = conv_problem(ConvPass::BackwardWeight, x, dw, dy, options);
  Tensor parts;
  visit_half(x.dtype(), [&]<class T>() {
    const auto run = [&]<int kTaps, int kChannels>() {
      parts = run_weight<T, kTaps, kChannels>(stream, p, dy, x);
    };
    const bool wide = p.w[2] == 5;
    switch (p.w[1]) {
      case 16: wide ? run.template operator()<5, 16>() : run.template operator()<3, 16>(); break;
      case 32: wide ? run.template operator()<5, 32>() : run.template operator()<3, 32>(); break;
      default: run.template operator()<3, 64>(); break;
    }
  });
  return parts;
}

}  // namespace ringgrad::cuda
