// Chooses how a convolution is computed: the layout of its images and the algorithm of each pass. A
// device registers one pure function for these choices. Its kernels and the operation call it.
#pragma once

#include <optional>
#include <string>

#include "ringgrad/core/kernels/geometry.h"
#include "ringgrad/core/tensor.h"

namespace ringgrad {

enum class ConvPass : uint8_t {
  Forward,
  BackwardInput,
  BackwardWeight,
};

// Everything that a plan depends on.
struct ConvProblem {
  ConvPass pass = ConvPass::Forward;
  DType dtype = DType::Float32;  // the images' dtype
  Shape x;                       // [N, C, H, W]; dx in BackwardInput
  Shape w;                       // [K, C / groups, R, S]; dw in BackwardWeight
  Conv2dOptions options;
  Layout x_layout = Layout::Strided;  // the present layout of x
  std::optional<Layout> layout = {};  // the layout of y if it exists; else the plan chooses
  ConvAlgorithm wanted = ConvAlgorithm::Auto;

  Pair output() const { return {options.out_h(x[2], w[2]), options.out_w(x[3], w[3])}; }
};

enum class ConvMethod : uint8_t {
  MatrixProduct,     // the filter covers the whole image
  WinogradF43,       // F(4, 3): filters of 3 x 3
  WinogradF25,       // F(2, 5): filters of 5 x 5
  WinogradF45,       // F(4, 5): also for 5 x 5, if its tiles are not mostly empty
  WinogradStride2,   // filters of 3 x 3 with stride 2
  Direct,            // register tiles over blocks of channels
  Tiles,             // like Direct, on the processor's tiles for bfloat16
  FirstLayer,        // like Direct, for contiguous images with few channels
  Planes,            // register tiles over contiguous images
  Depthwise,         // one channel in each group, contiguous images
  DepthwiseBlocked,  // the same for channel-blocked images
  Im2col,            // matrix products in float64
  CudaCores,         // an implicit matrix product
  TensorCores,       // the same on tensor cores
};

struct ConvPlan {
  // The layout of y and dy.
  Layout layout = Layout::Strided;
  // The layout of x.
  Layout x_layout = Layout::Strided;
  ConvMethod method = ConvMethod::Direct;
  // True if a dilated convolution is composed of ordinary ones.
  bool sub_images = false;
  // x and w are first extended with zeros to this many channels, unless it is 0.
  int64_t padded_channels = 0;
};

// Returns a name for the user, such as "Winograd F(4, 3) of sub-images".
std::string name(const ConvPlan& plan);

// Describes a pass over these tensors with the algorithm that the process requests. In the backward
// passes x and w stand for dx and dw.
ConvProblem conv_problem(ConvPass pass, const Tensor& x, const Tensor& w,
                         const Conv2dOptions& options);
// Does the same if y (or dy) already exists.
ConvProblem conv_problem(ConvPass pass, const Tensor& x, const Tensor& w, const Tensor& y,
                         const Conv2dOptions& options);

// Returns true if each filter sees each image once and whole, so that y has one pixel.
bool covers_image(const ConvProblem& problem);

// The choices of one device. Each function is pure and thread-safe.
struct LayoutPolicy {
  ConvPlan (*conv2d)(const ConvProblem& problem);
  // Returns w in the layout in which the device's convolutions of x read it. This is w itself, or a
  // copy that serves both y and dx.
  Tensor (*conv2d_filters)(const Tensor& x, const Tensor& w);
  // These return x's own layout if the device has kernels for it, and otherwise strided.
  Layout (*pool2d)(const Tensor& x);
  Layout (*batch_norm)(const Tensor& x);
  // Returns space for one bit per element of x, or an undefined tensor if the kernels that this
  // thread would use have no such bits: see kernels::batch_norm_apply.
  Tensor (*batch_norm_positive)(const Tensor& x);
};
// Registers a policy before main, as kernels register. Returns true.
bool register_layout_policy(DeviceType device, const LayoutPolicy& policy);
// Returns the device's policy. If none is registered, everything is strided.
const LayoutPolicy& layout_policy(Device device);

}  // namespace ringgrad
