// The steps from the obvious matrix product, and the obvious convolution, to the fast one, by name.
// Tests call them with operands of any layout. kernels::matmul, kernels::conv2d and its gradients
// choose the highest step that applies. The ladders (core/kernels/ladder.h) in matmul.cu and
// conv2d.cu describe each step in one line.
#pragma once

#include "ringgrad/core/kernels/conv_plan.h"
#include "ringgrad/core/tensor.h"

namespace ringgrad::cuda {

// ---- matrix products ----------------------------------------------------------------------------

enum class MatmulStep {
  Naive,
  Coalesced,
  SharedTile,
  RegisterTile,
  Vectorised,
  Fragments,
  Ldmatrix,
  PaddedRows,
  Stages,
  TensorCores,
  WarpTiles,
  Warpgroup,
  Producer,
  Clusters,
  Hopper,
};
const char* name(MatmulStep step);

// Returns true if a step can compute c = a · b + bias. core/kernels.h has the shapes.
bool supports(MatmulStep step, const Tensor& c, const Tensor& a, const Tensor& b);
// REQUIRES: supports(step, c, a, b).
void matmul(MatmulStep step, Stream stream, const Tensor& c, const Tensor& a, const Tensor& b,
            const Tensor& bias);

// The steps from Fragments to Stages, in ladders/matmul_fragments.cu. They take 16-bit types if a
// and b are contiguous, M and N are multiples of 64, and K is a multiple of 32.
bool fragments_support(const Tensor& c, const Tensor& a, const Tensor& b);
void matmul_fragments(MatmulStep step, Stream stream, const Tensor& c, const Tensor& a,
                      const Tensor& b, const Tensor& bias);

// It has its own file (matmul_tensor_cores.cu), because it takes as long to compile as all the
// others. It takes 16-bit types if one dimension of a and one of b have stride 1.
bool tensor_cores_support(const Tensor& c, const Tensor& a, const Tensor& b);
void matmul_tensor_cores(Stream stream, const Tensor& c, const Tensor& a, const Tensor& b,
                         const Tensor& bias);

// The steps from WarpTiles to Clusters, which serve only for teaching. They take operands as the
// steps before, if tiles of 128 × 128 (Producer, Clusters: 128 × 256) and slices of 64 are whole.
// The last three need Hopper. A producer's blocks are in clusters of 1 or 2.
bool warp_tiles_support(const Tensor& c, const Tensor& a, const Tensor& b);
void matmul_warp_tiles(Stream stream, const Tensor& c, const Tensor& a, const Tensor& b,
                       const Tensor& bias);
bool warpgroups_support(const Tensor& c, const Tensor& a, const Tensor& b);
void matmul_warpgroup(Stream stream, const Tensor& c, const Tensor& a, const Tensor& b,
                      const Tensor& bias);
bool producer_supports(int cluster, const Tensor& c, const Tensor& a, const Tensor& b);
void matmul_producer(int cluster, Stream stream, const Tensor& c, const Tensor& a, const Tensor& b,
                     const Tensor& bias);

// The last step, in hopper/matmul.cu. It takes 16-bit types on Hopper if TMA can read a and b and
// write c. They begin at multiples of 16 bytes, one dimension has stride 1, and the other strides
// are multiples of 8. K is not zero, and c has at least 64 × 64 elements.
bool hopper_supports(const Tensor& c, const Tensor& a, const Tensor& b);
void matmul_hopper(Stream stream, const Tensor& c, const Tensor& a, const Tensor& b,
                   const Tensor& bias);

// ---- convolutions -------------------------------------------------------------------------------

enum class ConvStep {
  Direct,
  ImplicitGemm,
  TensorCores,  // 16-bit types in NHWC and KRSC
  SharedImage,  // the same for few channels; see shared_image_supports()
  Hopper,       // the same as TensorCores on a device of compute capability 9: see hopper/conv2d.h
  FirstLayer,   // few channels in any layout, no dx; see first_layer_supports()
};
const char* name(ConvStep step);

// Returns true if a step can compute with these tensors in their present layout. For gradients dx,
// dw and dy stand for x, w and y. core/kernels.h has the shapes. Here w has the dtype of the
// images, but dw and the bias may have any floating one.
bool supports(ConvStep step, const Tensor& x, const Tensor& w, const Tensor& y,
              const Conv2dOptions& options);
// REQUIRES for all three: supports(step, …) for their operands. Results may have any strides. An
// addend has the images' alignment.
void conv2d(ConvStep step, Stream stream, const Tensor& y, const Tensor& x, const Tensor& w,
            const Tensor& bias, const Conv2dOptions& options);
void conv2d_backward_input(ConvStep step, Stream stream, const Tensor& dx, const Tensor& dy,
                           const Tensor& w, const Tensor& addend, const Conv2dOptions& options);
void conv2d_backward_weight(ConvStep step, Stream stream, const Tensor& dw, const Tensor& dy,
                            const Tensor& x, const Conv2dOptions& options);

// The step FirstLayer, in conv2d_first_layer.cu: y and dy are NHWC and begin at multiples of 16
// bytes. dw comes in parts of float32, [part, K, R × S, C], which are to be added in order.
bool first_layer_supports(const Shape& x, const Shape& w, DType dtype,
                          const Conv2dOptions& options);
void conv2d_first_layer(Stream stream, const Tensor& y, const Tensor& x, const Tensor& w,
                        const Tensor& bias, const Conv2dOptions& options);
Tensor weight_parts_first_layer(Stream stream, const Tensor& dw, const Tensor& dy, const Tensor& x,
                                const Conv2dOptions& options);

// The step SharedImage, in conv2d_shared_image.cu: images and w as TensorCores has them. It takes
// all three passes or none. dw comes in parts as above, whose number follows from the shapes.
bool shared_image_supports(const ConvProblem& problem);
void conv2d_shared_image(Stream stream, const Tensor& y, const Tensor& x, const Tensor& w,
                         const Tensor& bias, const Conv2dOptions& options);
void conv2d_backward_input_shared_image(Stream stream, const Tensor& dx, const Tensor& dy,
                                        const Tensor& w, const Tensor& addend,
                                        const Conv2dOptions& options);
Tensor weight_parts_shared_image(Stream stream, const Tensor& dw, const Tensor& dy, const Tensor& x,
                                 const Conv2dOptions& options);

}  // namespace ringgrad::cuda
