// What our calls of cuDNN 9 share: handles, descriptors and errors. Private to this folder.
#pragma once

#include <optional>

#include <cudnn.h>

#include "ringgrad/core/tensor.h"

namespace ringgrad::cuda {

// Whether cuDNN did what it was asked for: false where it has no kernel for it, and then it has
// written nothing. Throws CudaError naming the operation, the call and the status on anything else.
bool done(cudnnStatus_t status, const char* operation, const char* call);

// The handle of this thread and device, set to the stream; nullptr where there is none
// (thread_handles.h).
cudnnHandle_t cudnn_handle(const char* operation, Stream stream);

// A descriptor for as long as it is needed. Making one takes host memory only.
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

// How the images of a call lie, those that are defined: NHWC or NCHW without gaps, all of them
// alike; nullopt otherwise. Where both are true (one channel, or one pixel) the first, for which
// the tensor cores' kernels are made.
std::optional<cudnnTensorFormat_t> common_format(std::initializer_list<Tensor> images);

// A 4-D tensor as cuDNN sees it. Strides follow from the format: those of dimensions of size 1 mean
// nothing to us.
class ImageDescriptor : public Descriptor<cudnnTensorDescriptor_t, cudnnCreateTensorDescriptor,
                                          cudnnDestroyTensorDescriptor> {
 public:
  ImageDescriptor(const Shape& nchw, DType dtype, cudnnTensorFormat_t format);
};

// `bytes` from the caching allocator. It may be given back as soon as the kernel that uses it is
// queued.
Tensor cudnn_workspace(Stream stream, size_t bytes);

}  // namespace ringgrad::cuda
