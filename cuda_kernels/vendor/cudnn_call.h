// Code that our calls of cuDNN 9 share: handles, descriptors and errors. Private to this folder.
#pragma once

#include <optional>

#include <cudnn.h>

#include "ringgrad/core/tensor.h"

namespace ringgrad::cuda {

// Returns true if cuDNN has done its work, and false if it has no kernel for it; then it has
// written nothing. Any other status throws CudaError that names the operation, the call and the
// status.
bool done(cudnnStatus_t status, const char* operation, const char* call);

// Returns the handle of this thread and device, set to the stream, or nullptr if there is none
// (thread_handles.h).
cudnnHandle_t cudnn_handle(const char* operation, Stream stream);

// Owns a descriptor. Creating one takes host memory only.
template <class T, cudnnStatus_t (*create)(T*), cudnnStatus_t (*destroy)(T)>
class Descriptor {
 public:
  Descriptor() { done(create(&descriptor_), "cudnn", "cudnnCreate…Descriptor"); }
  ~Descriptor() { destroy(descriptor_); }
  Descriptor(const Descriptor&) = delete;
  operator T() const { return descriptor_; }

 private:
  T descriptor_ = nullptr;
};

cudnnDataType_t cudnn_type(DType dtype);

// Returns the common format of a call's images, apart from undefined ones: NHWC or NCHW without
// gaps; nullopt if they differ. If both apply (one channel, or one pixel), it is NHWC, for which
// the tensor cores' kernels are made.
std::optional<cudnnTensorFormat_t> common_format(std::initializer_list<Tensor> images);

// A 4-D tensor for cuDNN. Strides follow from the format, because those of dimensions of size 1
// have no meaning here.
class ImageDescriptor : public Descriptor<cudnnTensorDescriptor_t, cudnnCreateTensorDescriptor,
                                          cudnnDestroyTensorDescriptor> {
 public:
  ImageDescriptor(const Shape& nchw, DType dtype, cudnnTensorFormat_t format);
};

// Returns `bytes` from the caching allocator. They may be freed as soon as the kernel that uses
// them is queued.
Tensor cudnn_workspace(Stream stream, size_t bytes);

}  // namespace ringgrad::cuda
