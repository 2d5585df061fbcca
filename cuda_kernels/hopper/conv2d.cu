// The convolutions on Hopper: the choice of the algorithm, and the launchers. The kernels are in
// the conv2d_*.cuh beside this file.
#include "ringgrad/cuda_kernels/hopper/conv2d.h"

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/cuda_kernels/hopper/conv2d_border_128.cuh"
#include "ringgrad/cuda_kernels/hopper/conv2d_border_64.cuh"
#include "ringgrad/cuda_kernels/hopper/conv2d_im2col.cuh"
#include "ringgrad/cuda_kernels/hopper/conv2d_weight.cuh"
#include "ringgrad/cuda_kernels/hopper/conv2d_weight_border.cuh"
#include "ringgrad/cuda_kernels/launch.h"
#include "ringgrad/cuda_kernels/runtime/tensor_map.h"

namespace ringgrad::cuda {
namespace {

// The multiprocessors of an H100 and an H200. Decisions that change a result's bits use it in place
// of the device's own number.
constexpr int64_t kMultiprocessors = 132;

int64_t tiles_of(int64_t n, int64_t tile) { return (n + tile - 1) / tile; }
int as_int(int64_t n) { return static_cast<int>(n); }

// ---- parts of dx --------------------------------------------------------------------------------

// One dimension of a convolution, and the output positions that one part computes.
struct Axis {
  int64_t in;  // positions of the image that is read
  int64_t out;
  int64_t taps;
  int64_t first;   // tap of the filter
  int64_t step;    // to the next tap
  int64_t corner;  // the position that output 0 sees through the first tap
  int64_t dilation;
  int64_t stride;
};

Axis forward_axis(int64_t in, int64_t out, int64_t taps, int64_t stride, int64_t padding,
                  int64_t dilation) {
  return {in, out, taps, 0, 1, -padding, dilation, stride};
}

// The positions of dx that are `parity` modulo the stride. They are seen by the taps r for which
// parity + padding - r dilation is a multiple of the stride, from the last such tap to the first.
Axis gradient_axis(int64_t x, int64_t y, int64_t taps, int64_t stride, int64_t padding,
                   int64_t dilation, int64_t parity) {
  const int64_t first = stride == 1 ? 0 : (parity + padding) % stride;
  const int64_t count = first < taps ? (taps - first - 1) / stride + 1 : 0;
  const int64_t farthest = std::max<int64_t>(count - 1, 0);
  return {y,        (x - parity + stride - 1) / stride,
          count,    first + stride * farthest,
          -stride,  (parity + padding - first * dilation) / stride - farthest * dilation,
          dilation, 1};
}

// The end of the positions that output pixels may begin at, relative to the last of the image.
int64_t upper_corner(const Axis& a) { return a.corner + (a.out - 1) * a.stride - (a.in - 1); }

// Returns true if TMA can express it.
bool fits_im2col(const Axis& a) {
  const auto fits = [](int64_t corner) { return corner >= -128 && corner <= 127; };
  return a.in > 0 && fits(a.corner) && fits(upper_corner(a)) && a.stride <= 8 &&
         (a.taps - 1) * a.dilation <= 255;
}

// Returns true if 64 output pixels are always a box: whole rows of one image, or whole images.
bool stored_as_box(const Axis& h, const Axis& w) {
  if (w.out == 0 || 64 % w.out != 0) return w.out == 0;
  const int64_t rows = 64 / w.out;
  return h.out == 0 || rows % h.out == 0 || h.out % rows == 0;
}

struct Axes {
  Axis h;
  Axis w;
};
std::vector<Axes> parts_of(const ConvProblem& p) {
  const Conv2dOptions& o = p.options;
  const Pair y = p.output();
  if (p.pass != ConvPass::BackwardInput)
    return {{forward_axis(p.x[2], y.h, p.w[2], o.stride.h, o.padding.h, o.dilation.h),
             forward_axis(p.x[3], y.w, p.w[3], o.stride.w, o.padding.w, o.dilation.w)}};
  std::vector<Axes> parts;
  for (int64_t h = 0; h < std::min(o.stride.h, p.x[2]); ++h)
    for (int64_t w = 0; w < std::min(o.stride.w, p.x[3]); ++w)
      parts.push_back(
          {gradient_axis(p.x[2], y.h, p.w[2], o.stride.h, o.padding.h, o.dilation.h, h),
           gradient_axis(p.x[3], y.w, p.w[3], o.stride.w, o.padding.w, o.dilation.w, w)});
  return parts;
}

// ---- tensor maps --------------------------------------------------------------------------------

constexpr int64_t kElement = 2;  // bytes

// An NHWC tensor as TMA sees it, in boxes of 64 channels.
TensorMap image_map(const Tensor& x, int64_t width, int64_t height, int64_t images = 1) {
  const int64_t C = x.shape()[1];
  const int64_t H = x.shape()[2];
  const int64_t W = x.shape()[3];
  return tiled_map({x.dtype(),
                    x.raw_data(),
                    {C, W, H, x.shape()[0]},
                    {C * kElement, W * C * kElement, H * W * C * kElement},
                    {64, width, height, images}});
}
// KRSC weights, in boxes of 64 filters × 64 channels of one tap.
TensorMap weight_map(const Tensor& w) {
  const int64_t C = w.shape()[1];
  const int64_t taps = w.shape()[2] * w.shape()[3];
  return tiled_map({w.dtype(),
                    w.raw_data(),
                    {C, taps, w.shape()[0]},
                    {C * kElement, taps * C * kElement},
                    {64, 1, 64}});
}
TensorMap patch_map(const Tensor& x, const Axes& axes, int64_t pixels) {
  return im2col_map({x.dtype(),
                     x.raw_data(),
                     {x.shape()[1], x.shape()[3], x.shape()[2], x.shape()[0]},
                     {axes.w.corner, axes.h.corner},
                     {upper_corner(axes.w), upper_corner(axes.h)},
                     {axes.w.stride, axes.h.stride},
                     64,
                     pixels});
}

// A convolution's results pass these on their way to memory; all may be undefined. With sums the
// launch makes their parts.
struct Epilogue {
  Tensor bias = {};
  Tensor addend = {};
  bool sums = false;
  NormBefore norm = {};
  Tensor parts = {};

  // Makes space for the parts of each channel of y, and returns it as kernels see it.
  template <class T>
  ColumnSums<T> summed(int64_t number, const Tensor& y) {
    if (!sums) return {};
    const int64_t channels = y.shape()[1];
    parts = empty({number, channels, norm.x ? 2 : 3}, {DType::Float32, y.device()});
    return {parts.raw_data(), as_int(channels),
            norm.x ? static_cast<const T*>(norm.x.raw_data()) : nullptr,
            optional_data<float>(norm.mean), optional_data<uint8_t>(norm.positive)};
  }
  // The number of blocks of a wave: with sums it decides bits.
  int64_t wave(Device device) const { return sums ? kMultiprocessors : multiprocessors(device); }
};

Tensor float_bias(const Tensor& bias) { return in_dtype(bias, DType::Float32); }

// ---- border tiles -------------------------------------------------------------------------------

template <class Tile>
BorderTiles border_tiles(const Tensor& x) {
  return {as_int(x.shape()[0]), as_int(tiles_of(x.shape()[2], Tile::kRows)), as_int(x.shape()[2]),
          as_int(x.shape()[3])};
}

// `parts` is the number of warps of a block that sum the same channels.
template <class T, class Tile, class Kernel>
void launch_border(Kernel kernel, size_t shared, int64_t parts, Stream stream, const Tensor& y,
                   const Tensor& x, const Tensor& w, Epilogue& epilogue) {
  const TensorMap to = image_map(y, Tile::kPitch, Tile::kRows);
  const BorderMaps maps{
      image_map(x, Tile::kPitch, Tile::kRows + 2), weight_map(w), to,
      epilogue.addend ? image_map(epilogue.addend, Tile::kPitch, Tile::kRows) : to};
  const BorderTiles tiles = border_tiles<Tile>(x);
  const Tensor wide = float_bias(epilogue.bias);
  const int64_t blocks = std::min<int64_t>(epilogue.wave(stream.device), tiles.count());
  launch(kernel, static_cast<unsigned>(blocks), kBorderThreads, shared, stream, tiles, maps,
         optional_data<float>(wide), epilogue.addend.defined(),
         epilogue.summed<T>(blocks * parts, y));
}

// ---- im2col -------------------------------------------------------------------------------------

template <class T, class Tile, bool kGradient>
void launch_im2col(Stream stream, const ConvProblem& p, const Tensor& y, const Tensor& x,
                   const Tensor& w, Epilogue& epilogue) {
  const Tensor& addend = epilogue.addend;
  Im2colProblem problem;
  Im2colMaps maps;
  maps.w = weight_map(w);
  problem.columns = as_int(y.shape()[1]);
  problem.column_tiles = as_int(tiles_of(problem.columns, Tile::kColumns));
  problem.chunks = as_int(tiles_of(x.shape()[1], 64));
  problem.filter_width = as_int(w.shape()[3]);
  const int64_t N = y.shape()[0];
  const int64_t C = y.shape()[1];
  const int64_t W = y.shape()[3];
  const int64_t H = y.shape()[2];
  int64_t clusters = 0;
  const Pair parities = kGradient ? p.options.stride : Pair(1);
  problem.pixel_step = as_int(parities.w);
  problem.pixel_row = as_int(parities.h * W);
  problem.pixel_image = as_int(H * W);
  int64_t number = 0;
  for (const Axes& axes : parts_of(p)) {
    const int64_t parity_h = number / std::min(parities.w, W);
    const int64_t parity_w = number % std::min(parities.w, W);
    ++number;
    const int64_t pixels = N * axes.h.out * axes.w.out;
    if (pixels == 0) continue;
    Im2colPart& part = problem.part[problem.parts];
    part.tiles = as_int(tiles_of(tiles_of(pixels, Tile::kRows), Tile::kCluster) * Tile::kCluster);
    part.pixels = as_int(pixels);
    part.first_pixel = as_int(parity_h * W + parity_w);
    part.taps_h = as_int(axes.h.taps);
    part.taps_w = as_int(axes.w.taps);
    part.first_h = as_int(axes.h.first);
    part.first_w = as_int(axes.w.first);
    part.corner_h = as_int(axes.h.corner);
    part.corner_w = as_int(axes.w.corner);
    part.by_height = Divider(axes.h.out);
    part.by_width = Divider(axes.w.out);
    problem.step_h = as_int(axes.h.step);
    problem.step_w = as_int(axes.w.step);
    problem.stride_h = as_int(axes.h.stride);
    problem.stride_w = as_int(axes.w.stride);
    problem.dilation_h = as_int(axes.h.dilation);
    problem.dilation_w = as_int(axes.w.dilation);
    maps.x[problem.parts] = patch_map(x, axes, Tile::kRows);
    const auto stored = [&](const Tensor& image) {
      if (parities == Pair(1))
        return tiled_map({image.dtype(),
                          image.raw_data(),
                          {C, pixels, 1, 1},
                          {C * kElement, pixels * C * kElement, pixels * C * kElement},
                          {64, 64, 1, 1}});
      const int64_t rows = 64 / axes.w.out;
      return tiled_map(
          {image.dtype(),
           static_cast<const char*>(image.raw_data()) + part.first_pixel * C * kElement,
           {C, axes.w.out, axes.h.out, N},
           {parities.w * C * kElement, parities.h * W * C * kElement, H * W * C * kElement},
           {64, axes.w.out, std::min(rows, axes.h.out), std::max<int64_t>(rows / axes.h.out, 1)}});
    };
    part.by_stored_width = Divider(parities == Pair(1) ? pixels + 4 * Tile::kRows : axes.w.out);
    part.by_stored_height = Divider(axes.h.out);
    maps.y[problem.parts] = stored(y);
    maps.added[problem.parts] = stored(addend ? addend : y);
    clusters += part.tiles / Tile::kCluster * problem.column_tiles;
    ++problem.parts;
  }
  const Tensor wide = float_bias(epilogue.bias);
  const int64_t most = std::max<int64_t>(epilogue.wave(stream.device) / Tile::kCluster, 1);
  int64_t used = std::min(clusters, most);
  // With sums each block keeps its columns.
  const int64_t of_columns = used / problem.column_tiles;
  if (epilogue.sums) used = of_columns * problem.column_tiles;
  launch_with({.cluster = Tile::kCluster}, conv2d_im2col_kernel<T, Tile, kGradient>,
              static_cast<unsigned>(used * Tile::kCluster), kBorderThreads, Tile::kShared, stream,
              problem, maps, optional_data<float>(wide), addend.defined(),
              epilogue.summed<T>(of_columns * Tile::kCluster * 2 * SummedSlice<Tile>::kParts, y));
}

// The fewest columns that hold the result's, of 64, 128 and 256.
template <class T, bool kGradient>
void run_im2col(Stream stream, const ConvProblem& p, const Tensor& y, const Tensor& x,
                const Tensor& w, Epilogue& epilogue) {
  const int64_t columns = y.shape()[1];
  const auto run = [&]<int kColumns>() {
    launch_im2col<T, Im2colTile<kColumns>, kGradient>(stream, p, y, x, w, epilogue);
  };
  if (columns <= 64)
    run.template operator()<64>();
  else if (columns <= 128)
    run.template operator()<128>();
  else
    run.template operator()<256>();
}

// ---- dw -----------------------------------------------------------------------------------------

// The tiles of dw: 128 filters × `wide` chunks of 64 channels of a tap, and the parts of the
// pixels.
struct WeightDivision {
  int64_t wide;
  int64_t filter_tiles;
  int64_t column_tiles;
  int64_t slices;
  int64_t splits;
};

// Takes the number of parts that needs the least time by a model, in units of a slice's products.
// Each wave of blocks costs its slices, and eight to begin and to end. Each part is written and
// read.
WeightDivision divide_weight(const Shape& w, int64_t pixels) {
  constexpr int64_t kStart = 8;
  constexpr double kFloatsPerUnit = 250'000;  // written and read, by the whole device
  WeightDivision d{};
  const int64_t columns = w[2] * w[3] * tiles_of(w[1], 64);
  d.wide = columns % 4 == 0 || columns > 32 ? 4 : std::min<int64_t>(columns, 3);
  d.filter_tiles = tiles_of(w[0], 128);
  d.column_tiles = tiles_of(columns, d.wide);
  d.slices = tiles_of(pixels, 64);
  const int64_t tiles = d.filter_tiles * d.column_tiles;
  double least = 0;
  for (int64_t splits = 1; splits <= std::min(d.slices, 4 * kMultiprocessors); ++splits) {
    const auto waves = static_cast<double>(tiles_of(tiles * splits, kMultiprocessors));
    const double time = waves * static_cast<double>(tiles_of(d.slices, splits) + kStart) +
                        static_cast<double>(splits * w.numel()) / kFloatsPerUnit;
    if (splits > 1 && time >= least) continue;
    least = time;
    d.splits = splits;
  }
  return d;
}

Tensor empty_parts(int64_t parts, const Shape& w, Device device) {
  return empty({parts, w[0], w[2] * w[3], w[1]}, {DType::Float32, device});
}

template <class T>
Tensor run_weight_border(Stream stream, const Shape& w, const Tensor& dy, const Tensor& x) {
  using Tile = WeightBorderTile;
  const BorderTiles tiles = border_tiles<Tile>(x);
  const int64_t blocks = std::min<int64_t>(kMultiprocessors, tiles.count());
  const Tensor parts = empty_parts(blocks, w, x.device());
  launch(conv2d_weight_border_kernel<T>, static_cast<unsigned>(blocks), kWeightBorderThreads,
         kWeightBorderShared, stream, tiles,
         WeightBorderMaps{image_map(x, Tile::kPitch, Tile::kRows + 2),
                          image_map(dy, Tile::kPitch, Tile::kRows)},
         parts.data<float>());
  return parts;
}

template <class T, int kWide>
void launch_weight(Stream stream, const WeightProblem& problem, const WeightMaps& maps,
                   const Tensor& parts) {
  launch(conv2d_weight_kernel<T, kWide>,
         static_cast<unsigned>(problem.splits * problem.filter_tiles * problem.column_tiles),
         kBorderThreads, WeightTile<kWide>::kShared, stream, problem, maps, parts.data<float>());
}

template <class T>
Tensor run_weight(Stream stream, const ConvProblem& p, const Shape& w, const Tensor& dy,
                  const Tensor& x) {
  const int64_t K = w[0];
  const int64_t pixels = dy.numel() / K;
  const WeightDivision d = divide_weight(w, pixels);
  const WeightProblem problem{.filters = as_int(K),
                              .channels = as_int(w[1]),
                              .taps = as_int(w[2] * w[3]),
                              .filter_width = as_int(w[3]),
                              .filter_tiles = as_int(d.filter_tiles),
                              .column_tiles = as_int(d.column_tiles),
                              .splits = as_int(d.splits),
                              .slices = as_int(d.slices),
                              .stride_h = as_int(p.options.stride.h),
                              .stride_w = as_int(p.options.stride.w),
                              .padding_h = as_int(p.options.padding.h),
                              .padding_w = as_int(p.options.padding.w),
                              .dilation_h = as_int(p.options.dilation.h),
                              .dilation_w = as_int(p.options.dilation.w),
                              .by_y_height = Divider(dy.shape()[2]),
                              .by_y_width = Divider(dy.shape()[3])};
  const WeightMaps maps{
      tiled_map({dy.dtype(), dy.raw_data(), {K, pixels}, {K * kElement}, {64, 64}}),
      patch_map(x, parts_of(p)[0], 64)};
  const Tensor parts = empty_parts(d.splits, w, x.device());
  switch (d.wide) {
    case 1: launch_weight<T, 1>(stream, problem, maps, parts); break;
    case 2: launch_weight<T, 2>(stream, problem, maps, parts); break;
    case 3: launch_weight<T, 3>(stream, problem, maps, parts); break;
    default: launch_weight<T, 4>(stream, problem, maps, parts); break;
  }
  return parts;
}

// Calls body.operator()<__half>() or that of __nv_bfloat16.
template <class Body>
auto visit_half(DType dtype, const Body& body) {
  ASSERT(dtype == DType::Float16 || dtype == DType::BFloat16);
  return dtype == DType::Float16 ? body.template operator()<__half>()
                                 : body.template operator()<__nv_bfloat16>();
}

template <bool kGradient>
void run_images(HopperConv algorithm, Stream stream, const ConvProblem& p, const Tensor& y,
                const Tensor& x, const Tensor& w, Epilogue& epilogue) {
  visit_half(x.dtype(), [&]<class T>() {
    switch (algorithm) {
      case HopperConv::Border64:
        return launch_border<T, BorderTile64>(conv2d_border_64_kernel<T, kGradient>,
                                              kBorder64Shared, 8, stream, y, x, w, epilogue);
      case HopperConv::Border128:
        return launch_border<T, BorderTile128>(conv2d_border_128_kernel<T, kGradient>,
                                               kBorder128Shared, 4, stream, y, x, w, epilogue);
      default: return run_im2col<T, kGradient>(stream, p, y, x, w, epilogue);
    }
  });
}

void forward(HopperConv algorithm, Stream stream, const Tensor& y, const Tensor& x, const Tensor& w,
             Epilogue& epilogue, const Conv2dOptions& options) {
  run_images<false>(algorithm, stream, conv_problem(ConvPass::Forward, x, w, y, options), y, x, w,
                    epilogue);
}
void gradient(HopperConv algorithm, Stream stream, const Tensor& dx, const Tensor& dy,
              const Tensor& w, Epilogue& epilogue, const Conv2dOptions& options) {
  run_images<true>(algorithm, stream, conv_problem(ConvPass::BackwardInput, dx, w, dy, options), dx,
                   dy, w, epilogue);
}

}  // namespace

HopperConv hopper_conv(const ConvProblem& p) {
  const Conv2dOptions& o = p.options;
  const Pair y = p.output();
  const int64_t most = (int64_t{1} << 31) - 4096;
  if (p.dtype != DType::Float16 && p.dtype != DType::BFloat16) return HopperConv::None;
  if (o.groups != 1 || p.w[0] % 8 != 0 || p.w[1] % 8 != 0) return HopperConv::None;
  if (p.x.numel() == 0 || p.w.numel() == 0 || y.h <= 0 || y.w <= 0) return HopperConv::None;
  if (p.x[0] * p.x[2] * p.x[3] >= most || p.x[0] * y.h * y.w >= most || p.w.numel() >= most)
    return HopperConv::None;

  // The widths of the images for which most positions of a border tile mean something.
  const bool same = p.w[2] == 3 && p.w[3] == 3 && o.stride == Pair(1) && o.padding == Pair(1) &&
                    o.dilation == Pair(1) && p.w[0] == p.w[1];
  const bool wide = p.x[3] > 16 && p.x[3] <= BorderTile64::kWidth;
  const bool narrow = p.x[3] > 8 && p.x[3] <= BorderTile128::kWidth;
  if (same && wide && p.w[0] == 64)
    return p.pass == ConvPass::BackwardWeight ? HopperConv::WeightBorder : HopperConv::Border64;
  if (same && narrow && p.w[0] == 128 && p.pass != ConvPass::BackwardWeight)
    return HopperConv::Border128;

  if (p.pass == ConvPass::BackwardInput) {
    if (o.stride.h > 2 || o.stride.w > 2) return HopperConv::None;
    // Taps of one parity are neighbours only without dilation.
    if ((o.stride.h == 2 && o.dilation.h > 1) || (o.stride.w == 2 && o.dilation.w > 1))
      return HopperConv::None;
  }
  for (const Axes& part : parts_of(p)) {
    if (!fits_im2col(part.h) || !fits_im2col(part.w)) return HopperConv::None;
    if (p.pass == ConvPass::BackwardInput && o.stride != Pair(1) && !stored_as_box(part.h, part.w))
      return HopperConv::None;
  }
  return p.pass == ConvPass::BackwardWeight ? HopperConv::Weight : HopperConv::Im2col;
}

bool prefers_hopper(const ConvProblem& p) {
  if (hopper_conv(p) == HopperConv::None) return false;
  const int64_t padded = tiles_of(p.w[0], 64) * tiles_of(p.w[1], 64) * 64 * 64;
  if (padded > 2 * p.w[0] * p.w[1]) return false;
  if (p.pass == ConvPass::BackwardWeight) return true;
  const bool input = p.pass == ConvPass::BackwardInput;
  const Pair y = p.output();
  const int64_t pixels = p.x[0] * (input ? p.x[2] * p.x[3] : y.h * y.w);
  return pixels * (input ? p.w[1] : p.w[0]) >= kMultiprocessors / 4 * 128 * 256;
}

void conv2d_hopper(HopperConv algorithm, Stream stream, const Tensor& y, const Tensor& x,
                   const Tensor& w, const Tensor& bias, const Conv2dOptions& options) {
  Epilogue epilogue{.bias = bias};
  forward(algorithm, stream, y, x, w, epilogue, options);
}
void conv2d_backward_input_hopper(HopperConv algorithm, Stream stream, const Tensor& dx,
                                  const Tensor& dy, const Tensor& w, const Tensor& addend,
                                  const Conv2dOptions& options) {
  Epilogue epilogue{.addend = addend};
  gradient(algorithm, stream, dx, dy, w, epilogue, options);
}

Tensor conv2d_moments_hopper(HopperConv algorithm, Stream stream, const Tensor& y, const Tensor& x,
                             const Tensor& w, const Conv2dOptions& options) {
  Epilogue epilogue{.sums = true};
  forward(algorithm, stream, y, x, w, epilogue, options);
  return epilogue.parts;
}
Tensor conv2d_gradient_sums_hopper(HopperConv algorithm, Stream stream, const Tensor& dx,
                                   const Tensor& dy, const Tensor& w, const Tensor& addend,
                                   const NormBefore& norm, const Conv2dOptions& options) {
  Epilogue epilogue{.addend = addend, .sums = true, .norm = norm};
  gradient(algorithm, stream, dx, dy, w, epilogue, options);
  return epilogue.parts;
}

Tensor weight_parts_hopper(HopperConv algorithm, Stream stream, const Shape& w, const Tensor& dy,
                           const Tensor& x, const Conv2dOptions& options) {
  const ConvProblem p{.pass = ConvPass::BackwardWeight,
                      .dtype = x.dtype(),
                      .x = x.shape(),
                      .w = w,
                      .options = options};
  return visit_half(x.dtype(), [&]<class T>() {
    return algorithm == HopperConv::WeightBorder ? run_weight_border<T>(stream, w, dy, x)
                                                 : run_weight<T>(stream, p, w, dy, x);
  });
}

}  // namespace ringgrad::cuda
