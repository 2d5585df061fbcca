// cuDNN's convolutions, beside ours in conv2d.cu. Not yet run on a GPU.
//
// The algorithm for each kind of call is cuDNN's own first choice among those that give the same sums every time and
// fit into the workspace; autotune then measures it against our kernel.
#include <climits>
#include <map>
#include <mutex>

#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/cuda_kernels/runtime/stream.h"
#include "ringgrad/cuda_kernels/vendor/cudnn_call.h"

namespace ringgrad::cuda {
namespace {

constexpr size_t kLargestWorkspace = size_t{1} << 30;
constexpr int kCandidates = 8;

using FilterDescriptor = Descriptor<cudnnFilterDescriptor_t, cudnnCreateFilterDescriptor, cudnnDestroyFilterDescriptor>;
using ConvolutionDescriptor =
    Descriptor<cudnnConvolutionDescriptor_t, cudnnCreateConvolutionDescriptor, cudnnDestroyConvolutionDescriptor>;

// Everything about a call but its pass: x and w stand for dx and dw in the backward passes, y for dy.
struct Call {
  const char* operation;
  cudnnHandle_t handle;
  cudnnTensorFormat_t format;
  DType dtype;
  ImageDescriptor x, y;
  FilterDescriptor w;
  ConvolutionDescriptor convolution;

  Call(const char* operation, cudnnHandle_t handle, cudnnTensorFormat_t format, const Tensor& x_, const Shape& filters,
       const Tensor& y_, const Conv2dOptions& o)
      : operation(operation),
        handle(handle),
        format(format),
        dtype(x_.dtype()),
        x(x_.shape(), x_.dtype(), format),
        y(y_.shape(), y_.dtype(), format) {
    const auto size = [](int64_t value) { return static_cast<int>(value); };
    const cudnnDataType_t sums = dtype == DType::Float64 ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT;
    done(cudnnSetFilter4dDescriptor(w, cudnn_type(dtype), format, size(filters[0]), size(filters[1]), size(filters[2]),
                                    size(filters[3])),
         operation, "cudnnSetFilter4dDescriptor");
    done(cudnnSetConvolution2dDescriptor(convolution, size(o.padding.h), size(o.padding.w), size(o.stride.h),
                                         size(o.stride.w), size(o.dilation.h), size(o.dilation.w),
                                         CUDNN_CROSS_CORRELATION, sums),
         operation, "cudnnSetConvolution2dDescriptor");
    done(cudnnSetConvolutionGroupCount(convolution, size(o.groups)), operation, "cudnnSetConvolutionGroupCount");
    const bool wide = dtype == DType::Float32 || dtype == DType::Float64;
    set_math(wide ? CUDNN_FMA_MATH : CUDNN_TENSOR_OP_MATH);
  }
  void set_math(cudnnMathType_t math) const {
    done(cudnnSetConvolutionMathType(convolution, math), operation, "cudnnSetConvolutionMathType");
  }
};

// The three passes, as cuDNN names their parts.
struct Forward {
  using Found = cudnnConvolutionFwdAlgoPerf_t;
  static cudnnStatus_t candidates(const Call& c, int* count, Found* found) {
    return cudnnGetConvolutionForwardAlgorithm_v7(c.handle, c.x, c.w, c.convolution, c.y, kCandidates, count, found);
  }
  static cudnnStatus_t workspace(const Call& c, const Found& use, size_t* bytes) {
    return cudnnGetConvolutionForwardWorkspaceSize(c.handle, c.x, c.w, c.convolution, c.y, use.algo, bytes);
  }
};
struct BackwardInput {
  using Found = cudnnConvolutionBwdDataAlgoPerf_t;
  static cudnnStatus_t candidates(const Call& c, int* count, Found* found) {
    return cudnnGetConvolutionBackwardDataAlgorithm_v7(c.handle, c.w, c.y, c.convolution, c.x, kCandidates, count,
                                                       found);
  }
  static cudnnStatus_t workspace(const Call& c, const Found& use, size_t* bytes) {
    return cudnnGetConvolutionBackwardDataWorkspaceSize(c.handle, c.w, c.y, c.convolution, c.x, use.algo, bytes);
  }
};
struct BackwardWeight {
  using Found = cudnnConvolutionBwdFilterAlgoPerf_t;
  static cudnnStatus_t candidates(const Call& c, int* count, Found* found) {
    return cudnnGetConvolutionBackwardFilterAlgorithm_v7(c.handle, c.x, c.y, c.convolution, c.w, kCandidates, count,
                                                         found);
  }
  static cudnnStatus_t workspace(const Call& c, const Found& use, size_t* bytes) {
    return cudnnGetConvolutionBackwardFilterWorkspaceSize(c.handle, c.x, c.y, c.convolution, c.w, use.algo, bytes);
  }
};

template <class Pass>
struct Plan {
  typename Pass::Found use;
  size_t workspace;
};

template <class Pass>
std::optional<Plan<Pass>> choose(const Call& c) {
  typename Pass::Found found[kCandidates];
  int count = 0;
  if (!done(Pass::candidates(c, &count, found), c.operation, "cudnnGetConvolution…Algorithm_v7")) return {};
  for (int i = 0; i < count; ++i) {
    if (found[i].status != CUDNN_STATUS_SUCCESS || found[i].determinism != CUDNN_DETERMINISTIC) continue;
    // float32 means float32: any other kind of arithmetic may take it by way of TF32, or of 16 bits. A candidate may
    // report another kind although FMA was asked for; it is what the descriptor says that counts when it runs.
    if (c.dtype == DType::Float32) found[i].mathType = CUDNN_FMA_MATH;
    c.set_math(found[i].mathType);
    size_t bytes = 0;
    if (!done(Pass::workspace(c, found[i], &bytes), c.operation, "cudnnGetConvolution…WorkspaceSize")) continue;
    if (bytes <= kLargestWorkspace) return Plan<Pass>{found[i], bytes};
  }
  return {};
}

// Asking takes cuDNN tens of microseconds, so each kind of call asks once; nullopt where cuDNN has nothing.
template <class Pass>
std::optional<Plan<Pass>> plan(Device device, const std::string& signature, const Call& c) {
  static std::mutex mutex;
  static auto* const known = new std::map<std::pair<int, std::string>, std::optional<Plan<Pass>>>;
  std::lock_guard lock(mutex);
  const auto [at, is_new] = known->try_emplace({device.index, signature});
  if (is_new) at->second = choose<Pass>(c);
  return at->second;
}

// Filters in the dtype and format of the images; where they are not so already, a copy or room for one.
Tensor filters_for(const Tensor& w, DType dtype, cudnnTensorFormat_t format) {
  const bool nhwc = format == CUDNN_TENSOR_NHWC;
  if (w.dtype() == dtype && (nhwc ? w.is_channels_last() : w.is_contiguous())) return w;
  return empty(w.shape(), {dtype, w.device(), nhwc ? Layout::ChannelsLast : Layout::Strided});
}

bool fits_int(const Tensor& x) { return x.numel() > 0 && x.numel() <= INT_MAX; }

// Calls run(call, plan, filters, workspace) where cuDNN has an algorithm for the pass.
template <class Pass, class Run>
bool with_plan(Stream stream, const char* operation, const std::string& signature, const Tensor& x, const Tensor& w,
               const Tensor& y, const Conv2dOptions& o, Run&& run) {
  const auto format = common_format({x, y});
  if (!format || !fits_int(x) || !fits_int(y) || !fits_int(w)) return false;
  const DeviceGuard guard(stream.device);
  const cudnnHandle_t handle = cudnn_handle(operation, stream);
  if (!handle) return false;
  const Call call(operation, handle, *format, x, w.shape(), y, o);
  const auto known = plan<Pass>(stream.device, signature, call);
  if (!known) return false;
  call.set_math(known->use.mathType);
  const Tensor workspace = cudnn_workspace(stream, known->workspace);
  return run(call, *known, filters_for(w, x.dtype(), *format), workspace.raw_data());
}

// Scale factors are float64 for float64 and float32 for all else.
struct Factor {
  double wide;
  float narrow;
  explicit Factor(double value) : wide(value), narrow(static_cast<float>(value)) {}
  const void* of(const Tensor& x) const {
    return x.dtype() == DType::Float64 ? static_cast<const void*>(&wide) : &narrow;
  }
};
const Factor kOne(1), kNone(0);

bool conv2d_cudnn(Stream stream, const Tensor& y, const Tensor& x, const Tensor& w, const Tensor& b,
                  const Conv2dOptions& o) {
  return with_plan<Forward>(
      stream, "conv2d", call_signature("conv2d", y, x, w, o), x, w, y, o,
      [&](const Call& c, const Plan<Forward>& plan, const Tensor& filters, void* workspace) {
        if (!filters.is_same(w)) kernels::copy(filters, w);
        if (!done(
                cudnnConvolutionForward(c.handle, kOne.of(x), c.x, x.raw_data(), c.w, filters.raw_data(), c.convolution,
                                        plan.use.algo, workspace, plan.workspace, kNone.of(x), c.y, y.raw_data()),
                "conv2d", "cudnnConvolutionForward"))
          return false;
        if (b) {
          const Tensor bias = in_dtype(b, y.dtype());
          kernels::add(y, y, bias.as_strided(y.shape(), {0, bias.strides()[0], 0, 0}, bias.storage_offset()));
        }
        return true;
      });
}

bool conv2d_backward_input_cudnn(Stream stream, const Tensor& dx, const Tensor& dy, const Tensor& w,
                                 const Conv2dOptions& o) {
  return with_plan<BackwardInput>(
      stream, "conv2d_backward_input", call_signature("conv2d_backward_input", dx, dy, w, o), dx, w, dy, o,
      [&](const Call& c, const Plan<BackwardInput>& plan, const Tensor& filters, void* workspace) {
        if (!filters.is_same(w)) kernels::copy(filters, w);
        return done(cudnnConvolutionBackwardData(c.handle, kOne.of(dx), c.w, filters.raw_data(), c.y, dy.raw_data(),
                                                 c.convolution, plan.use.algo, workspace, plan.workspace, kNone.of(dx),
                                                 c.x, dx.raw_data()),
                    "conv2d_backward_input", "cudnnConvolutionBackwardData");
      });
}

bool conv2d_backward_weight_cudnn(Stream stream, const Tensor& dw, const Tensor& dy, const Tensor& x,
                                  const Conv2dOptions& o) {
  return with_plan<BackwardWeight>(
      stream, "conv2d_backward_weight", call_signature("conv2d_backward_weight", dw, dy, x, o), x, dw, dy, o,
      [&](const Call& c, const Plan<BackwardWeight>& plan, const Tensor& filters, void* workspace) {
        if (!done(cudnnConvolutionBackwardFilter(c.handle, kOne.of(x), c.x, x.raw_data(), c.y, dy.raw_data(),
                                                 c.convolution, plan.use.algo, workspace, plan.workspace, kNone.of(x),
                                                 c.w, filters.raw_data()),
                  "conv2d_backward_weight", "cudnnConvolutionBackwardFilter"))
          return false;
        if (!filters.is_same(dw)) kernels::copy(dw, filters);
        return true;
      });
}

REGISTER_KERNEL(conv2d, DeviceType::CUDA, Provider::Vendor, conv2d_cudnn);
REGISTER_KERNEL(conv2d_backward_input, DeviceType::CUDA, Provider::Vendor, conv2d_backward_input_cudnn);
REGISTER_KERNEL(conv2d_backward_weight, DeviceType::CUDA, Provider::Vendor, conv2d_backward_weight_cudnn);

}  // namespace
}  // namespace ringgrad::cuda
