#include "ringgrad/core/kernels/conv_plan.h"

namespace ringgrad {

static const char* name(ConvMethod method) {
  switch (method) {
    case ConvMethod::MatrixProduct: return "one matrix product";
    case ConvMethod::WinogradF43: return "Winograd F(4, 3)";
    case ConvMethod::WinogradF25: return "Winograd F(2, 5)";
    case ConvMethod::WinogradF45: return "Winograd F(4, 5)";
    case ConvMethod::WinogradStride2: return "Winograd, stride 2";
    case ConvMethod::Direct: return "direct";
    case ConvMethod::Tiles: return "direct, on tiles";
    case ConvMethod::FirstLayer: return "direct, first layer";
    case ConvMethod::Planes: return "planes";
    case ConvMethod::Depthwise: return "depthwise";
    case ConvMethod::DepthwiseBlocked: return "depthwise, blocked";
    case ConvMethod::Im2col: return "im2col, float64";
    case ConvMethod::CudaCores: return "implicit product";
    case ConvMethod::TensorCores: return "tensor cores";
  }
  return "";
}

std::string name(const ConvPlan& plan) {
  return std::string(name(plan.method)) + (plan.sub_images ? " of sub-images" : "");
}

}  // namespace ringgrad
