// The elements of cuDNN's graph API: descriptors with attributes. Private to this folder and its
// tests.
//
// This uses the API's C interface. NVIDIA's C++ front end would make this file unnecessary. But it
// would be one more library to find, 40,000 lines of headers to compile, and another set of names:
// too much for graphs of up to three operations.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include <cudnn.h>

#include "ringgrad/core/error.h"

#if CUDNN_VERSION < 90800
#error "ringgrad needs cuDNN 9.8 or newer; -DCUDNN_LIBRARY=CUDNN_LIBRARY-NOTFOUND builds without it"
#endif

namespace ringgrad::cuda {

// cuDNN's type constant for attributes that are given as T.
template <class T>
inline constexpr int kAttributeType = -1;
template <>
inline constexpr int kAttributeType<cudnnHandle_t> = CUDNN_TYPE_HANDLE;
template <>
inline constexpr int kAttributeType<cudnnDataType_t> = CUDNN_TYPE_DATA_TYPE;
template <>
inline constexpr int kAttributeType<bool> = CUDNN_TYPE_BOOLEAN;
template <>
inline constexpr int kAttributeType<int64_t> = CUDNN_TYPE_INT64;
template <>
inline constexpr int kAttributeType<float> = CUDNN_TYPE_FLOAT;
template <>
inline constexpr int kAttributeType<double> = CUDNN_TYPE_DOUBLE;
template <>
inline constexpr int kAttributeType<char> = CUDNN_TYPE_CHAR;
template <>
inline constexpr int kAttributeType<void*> = CUDNN_TYPE_VOID_PTR;
template <>
inline constexpr int kAttributeType<cudnnConvolutionMode_t> = CUDNN_TYPE_CONVOLUTION_MODE;
template <>
inline constexpr int kAttributeType<cudnnPointwiseMode_t> = CUDNN_TYPE_POINTWISE_MODE;
template <>
inline constexpr int kAttributeType<cudnnNanPropagation_t> = CUDNN_TYPE_NAN_PROPOGATION;
template <>
inline constexpr int kAttributeType<cudnnBackendNormMode_t> = CUDNN_TYPE_NORM_MODE;
template <>
inline constexpr int kAttributeType<cudnnBackendNormFwdPhase_t> = CUDNN_TYPE_NORM_FWD_PHASE;
template <>
inline constexpr int kAttributeType<cudnnBackendHeurMode_t> = CUDNN_TYPE_HEUR_MODE;
template <>
inline constexpr int kAttributeType<cudnnBackendNumericalNote_t> = CUDNN_TYPE_NUMERICAL_NOTE;

// A descriptor. Its attributes are set, then it is finished, and then others may refer to it; it
// must outlive them. Throws NotImplementedError with cuDNN's reason if cuDNN does not support it,
// and CudaError for any other failure.
class GraphPart {
 public:
  explicit GraphPart(cudnnBackendDescriptorType_t type) {
    check(cudnnBackendCreateDescriptor(type, &part_), "create");
  }
  ~GraphPart() {
    if (part_) cudnnBackendDestroyDescriptor(part_);
  }
  GraphPart(GraphPart&& other) noexcept : part_(std::exchange(other.part_, nullptr)) {}
  GraphPart& operator=(GraphPart&& other) noexcept { return std::swap(part_, other.part_), *this; }

  template <class T>
  GraphPart& set(cudnnBackendAttributeName_t name, const T& value) {
    return set(name, std::span<const T>(&value, 1));
  }
  template <class T>
  GraphPart& set(cudnnBackendAttributeName_t name, std::span<const T> values) {
    static_assert(kAttributeType<T> >= 0);
    return set(name, static_cast<cudnnBackendAttributeType_t>(kAttributeType<T>), values.size(),
               values.data());
  }
  GraphPart& set(cudnnBackendAttributeName_t name, const GraphPart& part) {
    return set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &part.part_);
  }
  GraphPart& set(cudnnBackendAttributeName_t name, const std::vector<const GraphPart*>& parts);
  GraphPart& finish();

  // REQUIRES: a finished part. Returns at most `most` values; the other overload returns one.
  template <class T>
  std::vector<T> get(cudnnBackendAttributeName_t name, size_t most) const {
    std::vector<T> values(most);
    const auto type = static_cast<cudnnBackendAttributeType_t>(kAttributeType<T>);
    values.resize(get(name, type, most, values.data()));
    return values;
  }
  int64_t number(cudnnBackendAttributeName_t name) const { return get<int64_t>(name, 1).at(0); }
  std::vector<GraphPart> parts(cudnnBackendAttributeName_t name, cudnnBackendDescriptorType_t type,
                               size_t most) const;

  cudnnBackendDescriptor_t native() const { return part_; }

 private:
  static void check(cudnnStatus_t status, const char* what);
  GraphPart& set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, size_t count,
                 const void* values);
  size_t get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, size_t most,
             void* values) const;

  cudnnBackendDescriptor_t part_ = nullptr;
};

}  // namespace ringgrad::cuda
