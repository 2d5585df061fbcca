// Convolution (cross-correlation) and its two gradients, in any strides; fastest in NHWC and KRSC
// memory.
//
// There are six implementations, listed in kSteps from the slowest on. Each is a matrix product
// whose operands are addressed, not built (common/conv_operands.cuh). The last three have their own
// files: conv2d_shared_image.cu, hopper/conv2d.cu and conv2d_first_layer.cu.
//
// Images arrive as NHWC (layout_policy.cu), and those of a first layer in their own layout; none
// are copied here. Weights are KCRS in their arena, as in checkpoints and in PyTorch. The operation
// copies them to KRSC (LayoutPolicy::conv2d_filters) for y and dx. For ResNet-18 in bfloat16 that
// moves 67 MB, and allows float32 parameters with 16-bit images.
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/core/kernels/conv_batch_norm.h"
#include "ringgrad/core/kernels/conv_plan.h"
#include "ringgrad/cuda_kernels/batch_norm.h"
#include "ringgrad/cuda_kernels/common/conv_operands.cuh"
#include "ringgrad/cuda_kernels/common/simt_gemm.cuh"
#include "ringgrad/cuda_kernels/hopper/conv2d.h"
#include "ringgrad/cuda_kernels/ladders.h"
#include "ringgrad/cuda_kernels/ladders/problem.h"

namespace ringgrad::cuda {
namespace {

// ---- direct -------------------------------------------------------------------------------------

// One thread per element of the product: row m, column n, every k. The operands do all the
// addressing.
template <class A, class B, class Store>
__global__ void __launch_bounds__(kThreads) direct_kernel(GemmShape shape, A a, B b, Store store) {
  using C = Compute<typename A::Value>;
  const int64_t elements = shape.batches * shape.M * shape.N;
  for (int64_t e = thread_number(); e < elements; e += thread_count()) {
    const int64_t n = e % shape.N;
    const int64_t m = e / shape.N % shape.M;
    const int64_t group = e / shape.N / shape.M;
    const auto row = a.row(group, m);
    const auto column = b.row(group, n);
    C total = first_term<C>(store, group, m, n);
    for (int64_t k = 0; k < shape.K; ++k) {
      const auto* left = a.address(row, a.term(k));
      const auto* right = b.address(column, b.term(k));
      if (left && right) total += widen(*left) * widen(*right);
    }
    *store.at(group, 0, m, n) = store.result(group, n, total);
  }
}

// ---- choosing -----------------------------------------------------------------------------------

bool is_hopper(Device device) { return compute_capability_major(device) == 9; }

bool is_aligned(const Tensor& x) {
  return reinterpret_cast<uintptr_t>(x.raw_data()) % kVectorBytes == 0;
}

// Returns true if eight neighbouring channels (filters) are in 16 aligned bytes and in one group.
bool in_chunks(const Tensor& x, int64_t channels_of_group) {
  return (x.dtype() == DType::Float16 || x.dtype() == DType::BFloat16) &&
         channels_of_group % kChunk == 0 && x.is_channels_last() && is_aligned(x);
}
bool images_in_chunks(const Tensor& x, const Tensor& w, const Tensor& y, const Conv2dOptions& o) {
  return in_chunks(x, w.shape()[1]) && in_chunks(y, w.shape()[0] / o.groups);
}

template <bool kAAlongK, bool kBAlongK, class A, class B, class Store>
void run_gemm(ConvStep step, Stream stream, const GemmShape& shape, const A& a, const B& b,
              const Store& store) {
  if (step == ConvStep::Direct) {
    launch_elements(stream, shape.batches * shape.M * shape.N, direct_kernel<A, B, Store>, shape, a,
                    b, store);
  } else if (step == ConvStep::ImplicitGemm) {
    simt_gemm<kAAlongK, kBAlongK>(stream, shape, a, b, store);
  } else {
    if constexpr (sizeof(typename A::Value) == 2)
      tensor_core_gemm<kAAlongK, kBAlongK, true>(stream, shape, a, b, store);
    else
      ASSERT(false);  // excluded by supports()
  }
}

// Pixels and tap × channel numbers are divided in 32 bits.
void check_size(const char* operation, int64_t pixels, int64_t taps) {
  constexpr int64_t kLimit = int64_t{1} << 31;
  CHECK_AS(ShapeError, pixels < kLimit && taps < kLimit, operation, ": ", pixels, " pixels and ",
           taps, " weights, expected less than 2^31 of each");
}

// ---- the three products -------------------------------------------------------------------------

template <class T>
void forward(ConvStep step, Stream stream, const Tensor& y, const Tensor& x, const Tensor& w,
             const Tensor& bias, const Conv2dOptions& o) {
  using D = Element<T>;
  const ConvGeometry g(x, w, y, o);
  const int64_t pixels = g.y.N * g.y.H * g.y.W;
  const int64_t terms = g.w.H * g.w.W * g.channels;
  const Tensor wide = in_dtype(bias, dtype_of<Accumulator<T>>);
  run_gemm<true, true>(step, stream, {o.groups, pixels, g.filters, terms},
                       PatchMatrix<D, false>{g, device_data<T>(x), pixels},
                       WeightMatrix<D, false>{{}, g, device_data<T>(w), g.filters},
                       ImageStore<D>{g.y, g.by_y_height, g.by_y_width, g.filters, device_data<T>(y),
                                     optional_data<Accumulator<T>>(wide)});
}

template <class T>
void backward_input(ConvStep step, Stream stream, const Tensor& dx, const Tensor& dy,
                    const Tensor& w, const Tensor& addend, const Conv2dOptions& o) {
  using D = Element<T>;
  const ConvGeometry g(dx, w, dy, o);
  const int64_t pixels = g.x.N * g.x.H * g.x.W;
  const int64_t terms = g.w.H * g.w.W * g.filters;
  run_gemm<true, false>(step, stream, {o.groups, pixels, g.channels, terms},
                        GradientPatchMatrix<D>{g, device_data<T>(dy), pixels},
                        WeightMatrix<D, true>{{}, g, device_data<T>(w), g.channels},
                        AddingImageStore<D>{{g.x, g.by_x_height, g.by_x_width, g.channels,
                                             device_data<T>(dx), nullptr},
                                            optional_data<T>(addend)});
}

// dw is small and the sum over pixels is long. So K is cut into parts, four blocks for each
// multiprocessor, which are summed in order afterwards.
int weight_splits(Stream stream, int64_t groups, int64_t M, int64_t N, int64_t K) {
  constexpr int64_t kTile = 64;
  constexpr int64_t kShortest = 256;
  const int64_t tiles = groups * ((M + kTile - 1) / kTile) * ((N + kTile - 1) / kTile);
  const int64_t blocks = 4 * multiprocessors(stream.device);
  return static_cast<int>(
      std::max<int64_t>(1, std::min((blocks + tiles - 1) / tiles, K / kShortest)));
}

// dw = the sum of its parts [split, filter, tap, channel], whatever its order, layout and dtype.
// One thread sums each element. Neighbouring threads take neighbouring channels, which are adjacent
// in the parts.
template <class A, class T>
__global__ void __launch_bounds__(kThreads)
    sum_weight_parts_kernel(ConvGeometry g, int splits, unsigned elements, Divider columns, T* dw,
                            const A* parts) {
  for (unsigned e = static_cast<unsigned>(thread_number()); e < elements;
       e += static_cast<unsigned>(thread_count())) {
    A total = 0;
    // The loads of 16 parts are in flight at once; they are added in order.
#pragma unroll 16
    for (int split = 0; split < splits; ++split) total += parts[int64_t{split} * elements + e];
    const auto [filter, column] = columns(e);
    const Tap tap(g, g.by_channels, column);
    dw[g.w.at(filter, tap.c, tap.r, tap.s)] = narrow<T>(total);
  }
}

template <class A>
void sum_weight_parts(Stream stream, const ConvGeometry& g, const Tensor& dw, const Tensor& parts) {
  visit_floating("conv2d_backward_weight", dw.dtype(), [&]<class W>() {
    launch_elements(stream, dw.numel(), sum_weight_parts_kernel<A, Element<W>>, g,
                    static_cast<int>(parts.shape()[0]), static_cast<unsigned>(dw.numel()),
                    Divider(parts.shape()[2] * parts.shape()[3]), device_data<W>(dw),
                    static_cast<const A*>(parts.data<A>()));
  });
}

template <class T>
void backward_weight(ConvStep step, Stream stream, const Tensor& dw, const Tensor& dy,
                     const Tensor& x, const Conv2dOptions& o) {
  using D = Element<T>;
  using A = Accumulator<T>;
  const ConvGeometry g(x, dw, dy, o);
  const int64_t pixels = g.y.N * g.y.H * g.y.W;
  const int64_t taps = g.w.H * g.w.W;
  const int64_t columns = taps * g.channels;
  const int splits =
      step == ConvStep::Direct ? 1 : weight_splits(stream, o.groups, g.filters, columns, pixels);
  const Tensor partials =
      empty({splits, o.groups * g.filters, taps, g.channels}, {dtype_of<A>, dw.device()});
  run_gemm<false, false>(step, stream, {o.groups, g.filters, columns, pixels, splits},
                         GradientMatrix<D>{{}, g, device_data<T>(dy), g.filters},
                         PatchMatrix<D, true>{g, device_data<T>(x), columns},
                         PartialStore<A>{partials.data<A>(), o.groups, g.filters, columns});
  sum_weight_parts<A>(stream, g, dw, partials);
}

// Returns the weights in the form that the products read: KRSC in the dtype of the images, and
// aligned.
Tensor krsc(const Tensor& w, DType dtype) {
  if (w.is_channels_last() && w.dtype() == dtype && is_aligned(w)) return w;
  const Tensor copy = empty(w.shape(), {dtype, w.device(), Layout::ChannelsLast});
  kernels::copy(copy, w);
  return copy;
}

Tensor aligned(const Tensor& images) {
  if (!images || is_aligned(images)) return images;
  const Tensor copy = empty_like(images);
  kernels::copy(copy, images);
  return copy;
}

// Returns true if Hopper's step is expected to be the fastest. For few channels its tiles would be
// half empty.
bool hopper_is_fastest(const ConvProblem& p) {
  return prefers_hopper(p) && !(shared_image_supports(p) && p.w[0] * p.w[1] <= 32 * 64);
}

// Returns the highest step that applies to the images' present layout.
ConvStep fastest(ConvPass pass, const Tensor& x, const Tensor& w, const Tensor& y,
                 const Conv2dOptions& o) {
  if (pass != ConvPass::BackwardInput && supports(ConvStep::FirstLayer, x, w, y, o))
    return ConvStep::FirstLayer;
  if (!images_in_chunks(x, w, y, o)) return ConvStep::ImplicitGemm;
  const ConvProblem problem = conv_problem(pass, x, w, y, o);
  if (is_hopper(x.device()) && hopper_is_fastest(problem)) return ConvStep::Hopper;
  return shared_image_supports(problem) ? ConvStep::SharedImage : ConvStep::TensorCores;
}

void conv2d_cuda(Stream stream, const Tensor& y, const Tensor& x, const Tensor& w,
                 const Tensor& bias, const Conv2dOptions& o) {
  conv2d(fastest(ConvPass::Forward, x, w, y, o), stream, y, x, krsc(w, x.dtype()), bias, o);
}
// Returns channels 0 … `channels` of images or filters.
Tensor first_channels(const Tensor& x, int64_t channels) {
  Shape shape = x.shape();
  shape[1] = channels;
  return Tensor(x.storage(), shape, x.strides(), x.storage_offset(), x.dtype(), false);
}

void conv2d_backward_input_cuda(Stream stream, const Tensor& dx, const Tensor& dy, const Tensor& w,
                                const Tensor& addend, const Conv2dOptions& o) {
  const int64_t channels = dx.shape()[1];
  if (supports(ConvStep::FirstLayer, dx, w, dy, o) && !addend) {
    // A first layer's images seldom need a gradient. Tensor cores compute it for eight channels.
    Shape x_shape = dx.shape();
    Shape w_shape = w.shape();
    x_shape[1] = w_shape[1] = kChunk;
    const TensorOptions options{dy.dtype(), dy.device(), Layout::ChannelsLast};
    const Tensor wide = empty(x_shape, options);
    const Tensor filters = empty(w_shape, options);
    kernels::fill(filters, 0);
    kernels::copy(first_channels(filters, channels), w);
    conv2d_backward_input(ConvStep::TensorCores, stream, wide, dy, filters, {}, o);
    return kernels::copy(dx, first_channels(wide, channels));
  }
  conv2d_backward_input(fastest(ConvPass::BackwardInput, dx, w, dy, o), stream, dx, dy,
                        krsc(w, dy.dtype()), aligned(addend), o);
}
void conv2d_backward_weight_cuda(Stream stream, const Tensor& dw, const Tensor& dy, const Tensor& x,
                                 const Conv2dOptions& o) {
  conv2d_backward_weight(fastest(ConvPass::BackwardWeight, x, dw, dy, o), stream, dw, dy, x, o);
}

// ---- with sums for the batch norm beside it -----------------------------------------------------

// A block sums the same channels in all its tiles, so that many channels at most.
bool few_enough_to_sum(const Shape& w) { return w[0] <= 4096 && w[1] <= 4096; }

// By a model, not yet measured (README.md has its numbers): the sums cost less than the pass over
// memory that they replace. Those of dx do so only if they hide behind that memory's traffic.
bool fuses(Device device, const ConvProblem& p) {
  if (p.pass == ConvPass::BackwardInput && p.w[1] > 64) return false;
  const Provider provider = preferred_provider(DeviceType::CUDA);
  return provider != Provider::Vendor && provider != Provider::Reference && is_hopper(device) &&
         few_enough_to_sum(p.w) && hopper_is_fastest(p);
}

bool sums(ConvPass pass, const Tensor& x, const Tensor& w, const Tensor& y,
          const Conv2dOptions& o) {
  return images_in_chunks(x, w, y, o) && few_enough_to_sum(w.shape()) && is_hopper(x.device()) &&
         hopper_conv(conv_problem(pass, x, w, y, o)) != HopperConv::None;
}

void conv2d_batch_stats_cuda(Stream stream, const Tensor& y, const Tensor& mean, const Tensor& var,
                             const Tensor& x, const Tensor& w, const Conv2dOptions& o,
                             const kernels::RunningStatistics& running) {
  if (!sums(ConvPass::Forward, x, w, y, o))
    return conv2d_batch_stats_in_steps(stream, y, mean, var, x, w, o, running);
  const HopperConv algorithm = hopper_conv(conv_problem(ConvPass::Forward, x, w, y, o));
  const Tensor parts = conv2d_moments_hopper(algorithm, stream, y, x, krsc(w, x.dtype()), o);
  batch_statistics(stream, mean, var, y, parts, running);
}

void conv2d_backward_batch_sums_cuda(Stream stream, const Tensor& g, const Tensor& sum_dy,
                                     const Tensor& sum_dy_xhat, const Tensor& dy, const Tensor& w,
                                     const Tensor& addend, const Tensor& x, const Tensor& y,
                                     const Tensor& mean, const Tensor& var, double eps,
                                     const Conv2dOptions& o) {
  const bool bits = !y || y.dtype() == DType::UInt8;
  if (!bits || !in_chunks(x, x.shape()[1]) || !sums(ConvPass::BackwardInput, g, w, dy, o))
    return conv2d_backward_batch_sums_in_steps(stream, g, sum_dy, sum_dy_xhat, dy, w, addend, x, y,
                                               mean, var, eps, o);
  const HopperConv algorithm = hopper_conv(conv_problem(ConvPass::BackwardInput, g, w, dy, o));
  const Tensor parts = conv2d_gradient_sums_hopper(algorithm, stream, g, dy, krsc(w, dy.dtype()),
                                                   aligned(addend), {x, y, mean}, o);
  merge_gradient_sums(stream, sum_dy, sum_dy_xhat, parts, var, eps);
}

// ---- the ladders --------------------------------------------------------------------------------

constexpr LadderStep kSteps[] = {
    {"direct",
     "one thread per element of the result, a loop over taps and channels: the definition"},
    {"implicit gemm", "tiles of the product in shared memory and registers"},
    {"tensor cores",
     "the same by mma.sync, ldmatrix and cp.async, for 16-bit types in NHWC and KRSC"},
    {"shared image",
     "an image with its border and all filters in shared memory, read once for all taps"},
    {"hopper",
     "tiles by TMA, products by warpgroups: borders once for nine taps, im2col by TMA for the "
     "rest"},
    {"first layer", "all terms of a sum in two products, for images of few channels in any layout"},
};

enum class Product { Forward, Input, Weight };

// Uses 3 × 3 filters and channels-last images.
template <Product kProduct>
LadderProblem problem(Device device, DType dtype, const std::vector<int64_t>& size) {
  const Conv2dOptions options{.stride = size[4], .padding = 1};
  const int64_t out = options.out_h(size[3], 3);
  const Tensor x = noise({size[0], size[1], size[3], size[3]}, dtype, device, Layout::ChannelsLast);
  const Tensor w = noise({size[2], size[1], 3, 3}, dtype, device, Layout::ChannelsLast);
  const Tensor y = noise({size[0], size[2], out, out}, dtype, device, Layout::ChannelsLast);
  std::vector<Tensor> inputs = {x, w};
  std::vector<Tensor> results = {y};
  if (kProduct == Product::Input) {
    inputs = {y, w};
    results = {x};
  }
  if (kProduct == Product::Weight) {
    inputs = {y, x};
    results = {w};
  }
  return make_problem(
      2.0 * static_cast<double>(y.numel() * size[1] * 9), inputs, results,
      [=](int step) { return supports(static_cast<ConvStep>(step), x, w, y, options); },
      [=](int number, Stream stream) {
        const auto step = static_cast<ConvStep>(number);
        if (kProduct == Product::Forward) conv2d(step, stream, y, x, w, {}, options);
        if (kProduct == Product::Input) conv2d_backward_input(step, stream, x, y, w, {}, options);
        if (kProduct == Product::Weight) conv2d_backward_weight(step, stream, w, y, x, options);
      });
}

bool register_conv_ladder(const char* kernel, const char* computes,
                          decltype(Ladder::problem) problem) {
  return register_ladder({.kernel = kernel,
                          .computes = computes,
                          // The first layer has another shape.
                          .steps = {std::begin(kSteps), std::end(kSteps) - 1},
                          .sizes = {"images", "channels", "filters", "side", "stride"},
                          .large = {512, 64, 64, 32, 1},
                          .small = {1, 32, 64, 8, 1},
                          .problem = problem});
}
[[maybe_unused]] const bool registered =
    register_conv_ladder("conv2d", "y = x * w, filters of 3 × 3, images of side × side",
                         problem<Product::Forward>) &&
    register_conv_ladder("conv2d_backward_input", "dx of dy and w, for y = x * w",
                         problem<Product::Input>) &&
    register_conv_ladder("conv2d_backward_weight", "dw of dy and x, for y = x * w",
                         problem<Product::Weight>);

REGISTER_KERNEL(conv2d, CUDA, Native, conv2d_cuda);
REGISTER_KERNEL(conv2d_backward_input, CUDA, Native, conv2d_backward_input_cuda);
REGISTER_KERNEL(conv2d_backward_weight, CUDA, Native, conv2d_backward_weight_cuda);
REGISTER_KERNEL(conv2d_batch_stats, CUDA, Native, conv2d_batch_stats_cuda);
REGISTER_KERNEL(conv2d_backward_batch_sums, CUDA, Native, conv2d_backward_batch_sums_cuda);
BEFORE_MAIN(conv_batch_norm, cuda_fuses_batch_norm = fuses);

}  // namespace

void conv2d_backward_weight_hopper(HopperConv algorithm, Stream stream, const Tensor& dw,
                                   const Tensor& dy, const Tensor& x, const Conv2dOptions& o) {
  sum_weight_parts<float>(stream, ConvGeometry(x, dw, dy, o), dw,
                          weight_parts_hopper(algorithm, stream, dw.shape(), dy, x, o));
}

const char* name(ConvStep step) { return kSteps[static_cast<int>(step)].name; }

bool supports(ConvStep step, const Tensor& x, const Tensor& w, const Tensor& y,
              const Conv2dOptions& o) {
  if (step < ConvStep::TensorCores) return true;
  if (step == ConvStep::FirstLayer)
    return first_layer_supports(x.shape(), w.shape(), x.dtype(), o) && in_chunks(y, w.shape()[0]);
  if (!images_in_chunks(x, w, y, o) || !in_chunks(w, w.shape()[1])) return false;
  if (step == ConvStep::TensorCores) return true;
  if (step == ConvStep::SharedImage)
    return shared_image_supports(conv_problem(ConvPass::Forward, x, w, y, o));
  if (!is_hopper(x.device())) return false;
  for (const ConvPass pass : {ConvPass::Forward, ConvPass::BackwardInput, ConvPass::BackwardWeight})
    if (hopper_conv(conv_problem(pass, x, w, y, o)) == HopperConv::None) return false;
  return true;
}

void conv2d(ConvStep step, Stream stream, const Tensor& y, const Tensor& x, const Tensor& w,
            const Tensor& bias, const Conv2dOptions& o) {
  if (y.numel() == 0) return;
  check_size("conv2d", y.numel() / y.shape()[1], w.numel() / w.shape()[0]);
  if (step == ConvStep::FirstLayer) return conv2d_first_layer(stream, y, x, w, bias, o);
  if (step == ConvStep::SharedImage) return conv2d_shared_image(stream, y, x, w, bias, o);
  if (step == ConvStep::Hopper)
    return conv2d_hopper(hopper_conv(conv_problem(ConvPass::Forward, x, w, y, o)), stream, y, x, w,
                         bias, o);
  visit_floating("conv2d", x.dtype(),
                 [&]<class T>() { forward<T>(step, stream, y, x, w, bias, o); });
}

void conv2d_backward_input(ConvStep step, Stream stream, const Tensor& dx, const Tensor& dy,
                           const Tensor& w, const Tensor& addend, const Conv2dOptions& o) {
  if (dx.numel() == 0) return;
  ASSERT(step != ConvStep::FirstLayer);
  check_size("conv2d", dx.numel() / dx.shape()[1], w.shape()[0] * w.shape()[2] * w.shape()[3]);
  if (step == ConvStep::SharedImage)
    return conv2d_backward_input_shared_image(stream, dx, dy, w, addend, o);
  if (step == ConvStep::Hopper)
    return conv2d_backward_input_hopper(
        hopper_conv(conv_problem(ConvPass::BackwardInput, dx, w, dy, o)), stream, dx, dy, w, addend,
        o);
  visit_floating("conv2d", dx.dtype(),
                 [&]<class T>() { backward_input<T>(step, stream, dx, dy, w, addend, o); });
}

void conv2d_backward_weight(ConvStep step, Stream stream, const Tensor& dw, const Tensor& dy,
                            const Tensor& x, const Conv2dOptions& o) {
  if (dw.numel() == 0) return;
  if (dy.numel() == 0) return kernels::fill(dw, 0);
  check_size("conv2d", dy.numel() / dy.shape()[1], dw.numel());
  if (step == ConvStep::FirstLayer)
    return sum_weight_parts<float>(stream, ConvGeometry(x, dw, dy, o), dw,
                                   weight_parts_first_layer(stream, dw, dy, x, o));
  if (step == ConvStep::SharedImage)
    return sum_weight_parts<float>(stream, ConvGeometry(x, dw, dy, o), dw,
                                   weight_parts_shared_image(stream, dw, dy, x, o));
  if (step == ConvStep::Hopper)
    return conv2d_backward_weight_hopper(
        hopper_conv(conv_problem(ConvPass::BackwardWeight, x, dw, dy, o)), stream, dw, dy, x, o);
  visit_floating("conv2d", dy.dtype(),
                 [&]<class T>() { backward_weight<T>(step, stream, dw, dy, x, o); });
}

}  // namespace ringgrad::cuda
