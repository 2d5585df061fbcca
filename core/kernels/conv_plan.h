// Chooses how a convolution is computed: how its images lie, and by which algorithm each of its
// passes runs. A device registers one pure function for all of that, and its kernels and the
// operation ask it.
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
  DType dtype = DType::Float32;  // of the images
  Shape x;                       // [N, C, H, W]; in BackwardInput of dx
  Shape w;                       // [K, C / groups, R, S]; in BackwardWeight of dw
  Conv2dOptions options;
  Layout x_layout = Layout::Strided;  // as x lies now
  std::optional<Layout> layout = {};  // as y lies, if it exists already; else the plan chooses
  ConvAlgorithm wanted = ConvAlgorithm::Auto;

  Pair output() const { return {options.out_h(x[2], w[2]), options.out_w(x[3], w[3])}; }
};

enum class ConvMethod : uint8_t {
  MatrixProduct,     // the filter covers the whole image
  WinogradF43,       // F(4, 3): filters of 3 x 3
  WinogradF25,       // F(2, 5): filters of 5 x 5
  WinogradF45,       // F(4, 5): the same where its tiles are not mostly empty
  WinogradStride2,   // filters of 3 x 3 with stride 2
  Direct,            // register tiles over blocks of channels
  Tiles,             // the same on the processor's tiles for bfloat16
  FirstLayer,        // direct, of contiguous images with few channels
  Planes,            // register tiles over contiguous images
  Depthwise,         // one channel in each group, contiguous images
  DepthwiseBlocked,  // the same of channel-blocked ones
  Im2col,            // products of matrices in float64
  CudaCores,         // an implicit product of matrices
  TensorCores,       // the same by tensor cores
};

struct ConvPlan {
  // The layout of y and dy.
  Layout layout = Layout::Strided;
  // The layout of x.
  Layout x_layout = Layout::Strided;
  ConvMethod method = ConvMethod::Direct;
  // A dilated convolution is made of ordinary ones.
  bool sub_images = false;
  // x and w are first extended by zeros to so many channels; 0: they are not.
  int64_t padded_channels = 0;
};

// "Winograd F(4, 3) of sub-images": for people.
std::string name(const ConvPlan& plan);

// The problem of a pass over these tensors, for the algorithm that the process wants. x and w stand
// for dx and dw in the backward passes.
ConvProblem conv_problem(ConvPass pass, const Tensor& x, const Tensor& w,
                         const Conv2dOptions& options);
// The same where y (or dy) exists.
ConvProblem conv_problem(ConvPass pass, const Tensor& x, const Tensor& w, const Tensor& y,
                         const Conv2dOptions& options);

// True if each filter sees each image once, as a whole: y has one pixel.
bool covers_image(const ConvProblem& problem);

// A device's choices. Each function is pure and thread-safe.
struct LayoutPolicy {
  ConvPlan (*conv2d)(const ConvProblem& problem);
  // Returns w as the device's convolutions of x read it: a copy that serves y and dx, or w itself.
  Tensor (*conv2d_filters)(const Tensor& x, const Tensor& w);
  // x's own layout if the device has kernels for it, else strided.
  Layout (*pool2d)(const Tensor& x);
  Layout (*batch_norm)(const Tensor& x);
  // Returns room for a bit for each number of x, or nothing if the kernels that this thread would
  // use have no such bits: see kernels::batch_norm_apply.
  Tensor (*batch_norm_positive)(const Tensor& x);
};
// Before main, as kernels register. Returns true.
bool register_layout_policy(DeviceType device, const LayoutPolicy& policy);
// Of a device that has registered none: everything is strided.
const LayoutPolicy& layout_policy(Device device);

}  // namespace ringgrad
