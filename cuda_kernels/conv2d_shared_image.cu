// The convolution of images with few channels, such as ResNet-20's, and the gradient of the images:
// in float16 or bfloat16, with filters of 3 × 3 or 5 × 5.
//
// A block loads all filters once, and then its images, one after another (common/image_band.cuh).
// A warp multiplies 32 pixels × 16 or 32 channels of the result at a time.
//
//   y    a is x's pixels, with the stride between them; b is the filters as they lie
//   dx   a is dy's pixels, with the taps mirrored; b is the filters transposed by ldmatrix. With
//        stride 2 the pixels of each parity form a part, with its own taps
//
// Each byte of an image is read from global memory once, and of the filters once per block. For 8
// products of 32 columns a warp reads 2 KB of shared memory.
//
// README.md has predictions. Not yet run on a GPU.
#include "ringgrad/core/factory.h"
#include "ringgrad/cuda_kernels/common/image_band.cuh"
#include "ringgrad/cuda_kernels/ladders.h"

namespace ringgrad::cuda {
namespace {

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
__device__ __forceinline__ void write_sums(const Sums<kColumns>& total, const ImageProblem& g,
                                           const Unit& unit, T* y, const float* bias,
                                           const T* addend) {
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
      write_sums<T, kColumns>(total, g, unit, y, bias, addend);
    }
    __syncthreads();  // all warps have read the band
  }
}

// ---- launchers ----------------------------------------------------------------------------------

bool is_few(int64_t channels) { return channels == 16 || channels == 32 || channels == 64; }

// Computes y of x, or dx of dy, as `to` of `from`.
template <class T, bool kGradient>
void run(Stream stream, const ConvProblem& p, const Tensor& to, const Tensor& from, const Tensor& w,
         const Tensor& bias, const Tensor& addend) {
  const int64_t taps = p.w[2];
  const int64_t stride = p.options.stride.h;
  const int64_t images = p.x[0];
  const int64_t blocks = multiprocessors(stream.device);
  // If images are few, they are divided, so that all multiprocessors have work.
  const Division d = divide_images(p, std::max<int64_t>(blocks / images, 1));
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
  // 32 columns need fewer bytes for each product, if each scheduler still has a warp at work.
  const bool wider = columns % 32 == 0 && tiles * parities * parities * (columns / 32) >= 4;
  launch(wider ? shared_image_kernel<D, 32, kGradient> : shared_image_kernel<D, 16, kGradient>,
         grid, kThreads, d.bytes, stream, problem, device_data<T>(to), device_data<T>(from),
         device_data<T>(w), optional_data<float>(wide), optional_data<T>(addend));
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
  if (p.x[2] == 0 || p.x[3] == 0) return false;
  for (const ConvPass pass :
       {ConvPass::Forward, ConvPass::BackwardInput, ConvPass::BackwardWeight}) {
    ConvProblem part = p;
    part.pass = pass;
    if (divide_images(part, 1).bytes > kMostShared) return false;
  }
  return true;
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

}  // namespace ringgrad::cuda
