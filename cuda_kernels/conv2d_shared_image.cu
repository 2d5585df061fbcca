// Convolutions of few channels, such as ResNet-20's: one block for each image, which lies in shared
// memory beside all filters. In float16 or bfloat16, with filters of 3 × 3 or 5 × 5.
//
// A block loads the filters once, and then its images, one after another. A pixel lies there once,
// with a border of zeros, and is read from there for each tap: to begin at another pixel is to add
// a number to an address. So strides and taps cost nothing, and no operand is gathered twice.
//
//   shared memory   [filter][tap × channel] and [row][column][channel]; 16 bytes follow each filter
//                   and each pixel, so that 8 neighbours are in different banks
//   y               result [pixels, filters]: b is the filters as they lie
//   dx              the same of dy with the taps mirrored; b is the filters transposed by ldmatrix.
//                   With stride 2 the pixels of each parity form a part, with its own taps
//   dw              [filters, tap × channel], summed over the pixels: dy and x, both transposed
//
// Each byte of an image is read from global memory once, and those of filters once per block. For
// y and dx a warp multiplies 32 pixels × 32 columns at a time: it reads 4 KB of shared memory for 8
// products. An image with too little room is divided into bands of rows, as are few large images.
//
// Predicted for ResNet-20 with a batch of 128, on an H200: y and dx 3.5 µs, dw 4 µs and 2 µs for
// the sum of its parts, in each stage. Not yet run on a GPU.
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels/conv_plan.h"
#include "ringgrad/cuda_kernels/common/conv_operands.cuh"
#include "ringgrad/cuda_kernels/ladders.h"

namespace ringgrad::cuda {
namespace {

// Two blocks of this size share a multiprocessor of Hopper; one fits any card from sm_80 on.
constexpr size_t kMostShared = 99 * 1024;
constexpr int64_t kMostBands = 4;  // of an image; else too many rows would be loaded twice

// A band of rows of an NHWC image, and how it lies in shared memory.
struct Band {
  int H;
  int W;
  int channels;
  int padding;        // columns of zeros on either side
  int rows;           // that lie in shared memory
  Divider by_chunks;  // divides by the chunks of a pixel
  Divider by_width;   // and by the pixels of a row

  Band(const Tensor& x, int64_t padding, int64_t rows)
      : H(static_cast<int>(x.shape()[2])),
        W(static_cast<int>(x.shape()[3])),
        channels(static_cast<int>(x.shape()[1])),
        padding(static_cast<int>(padding)),
        rows(static_cast<int>(rows)),
        by_chunks(x.shape()[1] / kChunk),
        by_width(x.shape()[3] + 2 * padding) {}

  __host__ __device__ int width() const { return W + 2 * padding; }
  __host__ __device__ int pitch() const { return channels + kChunk; }
  __host__ __device__ int elements() const { return rows * width() * pitch(); }

  // Starts copying the rows from `first` on. What is outside the image becomes zero.
  template <class T>
  __device__ __forceinline__ void load(T* shared, const T* images, int64_t image, int first) const {
    const T* const from = images + image * H * W * channels;
    const auto chunks = static_cast<unsigned>(rows * width() * (channels / kChunk));
    for (unsigned e = threadIdx.x; e < chunks; e += blockDim.x) {
      const auto [pixel, chunk] = by_chunks(e);
      const auto [row, column] = by_width(pixel);
      const int h = first + static_cast<int>(row);
      const int w = static_cast<int>(column) - padding;
      const bool inside = static_cast<unsigned>(h) < static_cast<unsigned>(H) &&
                          static_cast<unsigned>(w) < static_cast<unsigned>(W);
      copy_16_async(shared + pixel * pitch() + chunk * kChunk,
                    inside ? from + (h * W + w) * channels + chunk * kChunk : from,
                    inside ? kVectorBytes : 0);
    }
  }
};

// ---- y and dx -----------------------------------------------------------------------------------

constexpr int kTileRows = 2;  // fragments of 16 pixels
constexpr int kWarps = kThreads / kWarp;

struct ImageProblem {
  Band source;  // x, or dy
  // of the result
  int H;
  int W;
  int columns;  // channels
  // of the convolution
  int taps;  // of each dimension
  int stride;
  int filters;
  int of_tap;  // the channels of a filter
  // the division of the result
  int parities;  // of dx, in each dimension; 1 for y
  int rows;      // of a band, of one parity
  int tiles;     // of 32 pixels of a band
  int items;     // bands of all images
  Divider by_bands;
  Divider by_width;  // divides by the pixels of a row, of one parity

  __device__ __forceinline__ int filter_pitch() const { return taps * taps * of_tap + kChunk; }
};

// What a warp computes at a time: 32 pixels × kColumns channels of the result.
struct Unit {
  int64_t image;
  int first_row;  // of the band, of this parity
  int pixel;      // of the band, of this parity
  int column;
  int parity_h;
  int parity_w;
};
template <int kColumns>
using Sums = float[kTileRows][kColumns / kFragmentN][4];

// Adds one tap's products: `image` and `filters` are this lane's rows for ldmatrix.
template <class T, int kColumns, bool kGradient>
__device__ __forceinline__ void add_tap(Sums<kColumns>& total, const T* const (&image)[kTileRows],
                                        const T* filters, int channels, int pitch) {
  for (int k = 0; k < channels; k += kFragmentK) {
    unsigned a[kTileRows][4];
#pragma unroll
    for (int i = 0; i < kTileRows; ++i) ldmatrix_x4<false>(a[i], image[i] + k);
#pragma unroll
    for (int j = 0; j < kColumns / kFragmentN; j += 2) {
      unsigned b[4];
      ldmatrix_x4<kGradient>(
          b, filters + (kGradient ? k * pitch + j * kFragmentN : k + j * kFragmentN * pitch));
#pragma unroll
      for (int i = 0; i < kTileRows; ++i) {
        mma_16816<T>(total[i][j], a[i], {b[0], b[1]});
        mma_16816<T>(total[i][j + 1], a[i], {b[2], b[3]});
      }
    }
  }
}

// Adds the products of all taps.
template <class T, int kColumns, bool kGradient>
__device__ __forceinline__ void add_taps(Sums<kColumns>& total, const ImageProblem& g,
                                         const Unit& unit, const T* band, const T* filters) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int pitch = g.filter_pitch();
  const int padding = g.taps / 2;
  const int last = g.rows * static_cast<int>(g.by_width.divisor) - 1;
  const T* corner[kTileRows];
#pragma unroll
  for (int i = 0; i < kTileRows; ++i) {
    const int pixel = min(unit.pixel + i * kFragmentM + lane % kFragmentM, last);
    const auto [row, column] = g.by_width(static_cast<unsigned>(pixel));
    const auto at = static_cast<int>(row) * g.source.width() + static_cast<int>(column);
    corner[i] = band + at * (kGradient ? 1 : g.stride) * g.source.pitch() + lane / 16 * kChunk;
  }
  const int across = unit.column + lane / 16 * 8;
  const int along = lane / 8 % 2 * 8;
  filters += kGradient ? (along + lane % 8) * pitch + across : (across + lane % 8) * pitch + along;
  // A tap of dx sees the pixel of dy at h + padding - r, if the stride divides that.
  const int up = unit.parity_h + padding;
  const int left = unit.parity_w + padding;
  for (int r = kGradient ? up % g.stride : 0; r < g.taps; r += g.parities)
    for (int s = kGradient ? left % g.stride : 0; s < g.taps; s += g.parities) {
      const int row = kGradient ? padding + (up - r) / g.stride : r;
      const int column = kGradient ? padding + (left - s) / g.stride : s;
      const int offset = (row * g.source.width() + column) * g.source.pitch();
      add_tap<T, kColumns, kGradient>(total, {corner[0] + offset, corner[1] + offset},
                                      filters + (r * g.taps + s) * g.of_tap, g.source.channels,
                                      pitch);
    }
}

// Writes the sums, plus the bias and the addend unless these are nullptr.
//
// Of two fragments a lane has two neighbouring channels each. It exchanges one pair with its
// neighbour, so that it has four of one fragment, and four lanes write 32 bytes.
template <class T, int kColumns>
__device__ __forceinline__ void write(const Sums<kColumns>& total, const ImageProblem& g,
                                      const Unit& unit, T* y, const float* bias, const T* addend) {
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int odd = lane % 2;
#pragma unroll
  for (int i = 0; i < 2 * kTileRows; ++i) {
    const int pixel = unit.pixel + i * 8 + lane / 4;
    const auto [row, across] = g.by_width(static_cast<unsigned>(pixel));
    const int h = (unit.first_row + static_cast<int>(row)) * g.parities + unit.parity_h;
    const int w = static_cast<int>(across) * g.parities + unit.parity_w;
    const bool inside = static_cast<int>(row) < g.rows && h < g.H && w < g.W;
    const int64_t at = ((unit.image * g.H + h) * g.W + w) * g.columns;
#pragma unroll
    for (int j = 0; j < kColumns / kFragmentN; j += 2) {
      const int column = unit.column + (j + odd) * kFragmentN + lane / 2 % 2 * 4;
      const auto added =
          addend && inside ? load_vector<4>(addend + at + column, 0) : Vector<T, 4>{};
      float four[4];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float first = total[i / 2][j][i % 2 * 2 + e];
        const float second = total[i / 2][j + 1][i % 2 * 2 + e];
        const float got = __shfl_xor_sync(kFullMask, odd ? first : second, 1);
        four[e] = odd ? got : first;
        four[2 + e] = odd ? second : got;
      }
      Vector<T, 4> out;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        if (bias) four[e] += bias[column + e];
        if (addend) four[e] += widen(added.element[e]);
        out.element[e] = narrow<T>(four[e]);
      }
      if (inside) store_vector<4>(y + at + column, 0, out);
    }
  }
}

template <class T, int kColumns, bool kGradient>
__global__ void __launch_bounds__(kThreads, 2)
    shared_image_kernel(ImageProblem g, T* y, const T* x, const T* w, const float* bias,
                        const T* addend) {
  DYNAMIC_SHARED(T, filters);
  const int length = g.filter_pitch() - kChunk;
  for (int e = static_cast<int>(threadIdx.x) * kChunk; e < g.filters * length;
       e += kThreads * kChunk)
    copy_16_async(filters + e / length * g.filter_pitch() + e % length, w + e, kVectorBytes);

  T* const band = filters + g.filters * g.filter_pitch();
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int across = g.columns / kColumns;
  for (int item = static_cast<int>(blockIdx.x); item < g.items; item += gridDim.x) {
    const auto [image, number] = g.by_bands(static_cast<unsigned>(item));
    const int first_row = static_cast<int>(number) * g.rows;
    g.source.load(band, x, image, first_row * (kGradient ? 1 : g.stride) - g.taps / 2);
    __pipeline_commit();
    __pipeline_wait_prior(0);
    __syncthreads();
    for (int i = warp; i < g.tiles * across * g.parities * g.parities; i += kWarps) {
      const int parity = i / across / g.tiles;
      const Unit unit{.image = image,
                      .first_row = first_row,
                      .pixel = i / across % g.tiles * kTileRows * kFragmentM,
                      .column = i % across * kColumns,
                      .parity_h = parity / g.parities,
                      .parity_w = parity % g.parities};
      Sums<kColumns> total = {};
      add_taps<T, kColumns, kGradient>(total, g, unit, band, filters);
      write<T, kColumns>(total, g, unit, y, bias, addend);
    }
    __syncthreads();  // all warps have read the band
  }
}

// ---- dw -----------------------------------------------------------------------------------------

constexpr int kWeightThreads = 384;
constexpr int kWeightWarps = kWeightThreads / kWarp;
// One part of dw for each block. Both are constant, so that every card computes the same bits.
constexpr int64_t kMostParts = 264;
constexpr int64_t kMostFloats = int64_t{1} << 21;  // of all parts, which are written and read

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
  const int shares = kWeightWarps / units;
  const int share = warp / units;
  const int tap_row = warp % units % kTaps;
  const int first_filter = warp % units / kTaps * kFragmentM;
  const int pixels = g.dy.rows * g.dy.W;
  float total[kTaps][kFragments][4] = {};
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
          mma_16816<T>(total[s][j], a, {b[0], b[1]});
          mma_16816<T>(total[s][j + 1], a, {b[2], b[3]});
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
      for (int i = 0; i < kSums; ++i)
        sums[i * kWarp] = total[i / 4 / kFragments][i / 4 % kFragments][i % 4];
    __syncthreads();
    if (share == 0)
#pragma unroll
      for (int i = 0; i < kSums; ++i)
        total[i / 4 / kFragments][i / 4 % kFragments][i % 4] += sums[i * kWarp];
    __syncthreads();
  }
  if (share != 0) return;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t filter = int64_t{blockIdx.x} * g.dy.channels + first_filter + half * 8 + lane / 4;
    float* const part = parts + (filter * kTaps + tap_row) * kTaps * kChannels + lane % 4 * 2;
#pragma unroll
    for (int s = 0; s < kTaps; ++s)
#pragma unroll
      for (int j = 0; j < kFragments; ++j)
        store_vector<2>(part + s * kChannels + j * kFragmentN, 0,
                        {total[s][j][half * 2], total[s][j][half * 2 + 1]});
  }
}

// ---- launchers ----------------------------------------------------------------------------------

int as_int(int64_t n) { return static_cast<int>(n); }
int64_t tiles_of(int64_t n, int64_t tile) { return (n + tile - 1) / tile; }

// The rows of dy (of one parity of dx) in a band, the bands of an image, and the bytes of a block.
struct Division {
  int64_t rows;
  int64_t bands;
  size_t bytes;
};

int64_t band_elements(const Shape& image, int64_t padding, int64_t rows) {
  return rows * (image[3] + 2 * padding) * (image[1] + kChunk);
}

// The bytes of shared memory for bands of `rows` rows.
size_t shared_bytes(const ConvProblem& p, int64_t rows) {
  const int64_t taps = p.w[2];
  const int64_t stride = p.options.stride.h;
  const Pair out = p.output();
  const Shape y{p.x[0], p.w[0], out.h, out.w};
  const int64_t x_band = band_elements(p.x, taps / 2, (rows - 1) * stride + taps);
  const int64_t filters = p.w[0] * (taps * taps * p.w[1] + kChunk);
  switch (p.pass) {
    case ConvPass::Forward: return static_cast<size_t>(2 * (x_band + filters));
    case ConvPass::BackwardInput:
      return static_cast<size_t>(2 * (band_elements(y, taps / 2, rows + taps - 1) + filters));
    default:
      // Its end adds the sums of several warps.
      return static_cast<size_t>(
          std::max(2 * (x_band + band_elements(y, 0, rows)),
                   p.w[0] / kFragmentM * taps * 2 > kWeightWarps ? 0 : 4 * p.w.numel()));
  }
}

// Takes the fewest bands, from `least` on, whose rows fit into shared memory.
Division divide(const ConvProblem& p, int64_t least) {
  const bool input = p.pass == ConvPass::BackwardInput;
  const int64_t rows = input ? tiles_of(p.x[2], p.options.stride.h) : p.output().h;
  Division d{};
  for (int64_t bands = std::min(least, kMostBands); bands <= kMostBands; ++bands) {
    d.rows = tiles_of(rows, bands);
    d.bands = tiles_of(rows, d.rows);
    d.bytes = shared_bytes(p, d.rows);
    if (d.bytes <= kMostShared) break;
  }
  return d;
}

bool is_few(int64_t channels) { return channels == 16 || channels == 32 || channels == 64; }

template <class Body>
void visit_half(DType dtype, const Body& body) {
  if (dtype == DType::Float16)
    body.template operator()<float16>();
  else
    body.template operator()<bfloat16>();
}

// Computes y of x, or dx of dy, as `to` of `from`.
template <class T, bool kGradient>
void run(Stream stream, const ConvProblem& p, const Tensor& to, const Tensor& from, const Tensor& w,
         const Tensor& bias, const Tensor& addend) {
  const int64_t taps = p.w[2];
  const int64_t stride = p.options.stride.h;
  const int64_t images = p.x[0];
  const int64_t blocks = multiprocessors(stream.device);
  // If images are few, they are divided, so that all multiprocessors have work.
  const Division d = divide(p, std::max<int64_t>(blocks / images, 1));
  const int64_t parities = kGradient ? stride : 1;
  const int64_t width = tiles_of(to.shape()[3], parities);
  const int64_t columns = to.shape()[1];
  const int64_t tiles = tiles_of(d.rows * width, kTileRows * kFragmentM);
  const ImageProblem problem{
      .source = Band(from, taps / 2, kGradient ? d.rows + taps - 1 : (d.rows - 1) * stride + taps),
      .H = as_int(to.shape()[2]),
      .W = as_int(to.shape()[3]),
      .columns = as_int(columns),
      .taps = as_int(taps),
      .stride = as_int(stride),
      .filters = as_int(p.w[0]),
      .of_tap = as_int(p.w[1]),
      .parities = as_int(parities),
      .rows = as_int(d.rows),
      .tiles = as_int(tiles),
      .items = as_int(images * d.bands),
      .by_bands = Divider(d.bands),
      .by_width = Divider(width)};
  const Tensor wide = in_dtype(bias, DType::Float32);
  const auto grid = static_cast<unsigned>(std::min(images * d.bands, 2 * blocks));
  using D = Element<T>;
  // 32 columns need fewer bytes for each product, unless warps would have nothing to do.
  const bool wider = columns % 32 == 0 && tiles * parities * parities * (columns / 32) >= kWarps;
  launch(wider ? shared_image_kernel<D, 32, kGradient> : shared_image_kernel<D, 16, kGradient>,
         grid, kThreads, d.bytes, stream, problem, device_data<T>(to), device_data<T>(from),
         device_data<T>(w), optional_data<float>(wide), optional_data<T>(addend));
}

template <class T, int kTaps, int kChannels>
Tensor run_weight(Stream stream, const ConvProblem& p, const Tensor& dy, const Tensor& x) {
  const int64_t stride = p.options.stride.h;
  const Division d = divide(p, 1);
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

bool shared_image_supports(const ConvProblem& p) {
  const Conv2dOptions& o = p.options;
  const int64_t taps = p.w[2];
  if (p.dtype != DType::Float16 && p.dtype != DType::BFloat16) return false;
  if (o.groups != 1 || !is_few(p.w[0]) || !is_few(p.w[1])) return false;
  // More sums than that would not fit into the registers of dw's warps.
  const bool few_taps = taps == 3 || (taps == 5 && p.w[0] <= 32 && p.w[1] <= 32);
  if (!few_taps || p.w[3] != taps || o.padding != Pair(taps / 2) || o.dilation != Pair(1))
    return false;
  if (o.stride != Pair(1) && o.stride != Pair(2)) return false;
  return p.x[2] > 0 && p.x[3] > 0 && divide(p, 1).bytes <= kMostShared;
}

void conv2d_shared_image(Stream stream, const Tensor& y, const Tensor& x, const Tensor& w,
                         const Tensor& bias, const Conv2dOptions& options) {
  const ConvProblem p = conv_problem(ConvPass::Forward, x, w, y, options);
  visit_half(x.dtype(), [&]<class T>() { run<T, false>(stream, p, y, x, w, bias, {}); });
}

void conv2d_backward_input_shared_image(Stream stream, const Tensor& dx, const Tensor& dy,
                                        const Tensor& w, const Tensor& addend,
                                        const Conv2dOptions& options) {
  const ConvProblem p = conv_problem(ConvPass::BackwardInput, dx, w, dy, options);
  visit_half(dy.dtype(), [&]<class T>() { run<T, true>(stream, p, dx, dy, w, {}, addend); });
}

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
