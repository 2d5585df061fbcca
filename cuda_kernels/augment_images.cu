// Batches of augmented images from a data set of bytes on the device.
//
// Mapping: one block per image. Its threads walk over the output, so writes are coalesced, and so
// are the reads of a row, mirrored or not. Each thread draws the image's augmentation itself, which
// costs three Philox blocks instead of a barrier.
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/cuda_kernels/common/device_types.cuh"
#include "ringgrad/cuda_kernels/launch.h"

namespace ringgrad::cuda {
namespace {

struct ImageSet {
  const uint8_t* bytes;  // [size, channels, height, width]
  int64_t size;
  int channels;
  int height;
  int width;
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    augment_kernel(T* y, ImageSet images, const int64_t* index, const int64_t* epoch,
                   const float* scale, const float* shift, AugmentOptions options) {
  const int64_t number = index[blockIdx.x];
  if (number < 0 || number >= images.size) return;
  const int height = images.height;
  const int width = images.width;
  const int pixels = images.channels * height * width;
  const Augmentation a = draw_augmentation(options, height, width, *epoch, number);
  const uint8_t* const image = images.bytes + number * pixels;
  T* const out = y + int64_t{blockIdx.x} * pixels;
  for (int e = static_cast<int>(threadIdx.x); e < pixels; e += kThreads) {
    const int column = e % width;
    const int row = e / width % height;
    const int channel = e / width / height;
    int from_row = row + a.dy;
    int from_column = (a.flip ? width - 1 - column : column) + a.dx;
    if (options.reflect) {
      from_row = reflected(from_row, height);
      from_column = reflected(from_column, width);
    }
    Compute<T> value = shift[channel];  // black
    if (from_row >= 0 && from_row < height && from_column >= 0 && from_column < width)
      value += static_cast<Compute<T>>(image[(channel * height + from_row) * width + from_column]) *
               scale[channel];
    if (row >= a.cut_top && row < a.cut_bottom && column >= a.cut_left && column < a.cut_right)
      value = 0;
    out[e] = narrow<T>(value);
  }
}

void augment_images_cuda(Stream stream, const Tensor& y, const Tensor& images, const Tensor& index,
                         const Tensor& epoch, const Tensor& scale, const Tensor& shift,
                         const AugmentOptions& options) {
  ASSERT(y.is_contiguous() && images.is_contiguous() && index.is_contiguous() && y.dim() == 4);
  const ImageSet set{images.data<uint8_t>(), images.size(0), static_cast<int>(images.size(1)),
                     static_cast<int>(images.size(2)), static_cast<int>(images.size(3))};
  visit_floating("augment_images", y.dtype(), [&]<class T>() {
    launch(augment_kernel<Element<T>>, grid_of(y.size(0)), kThreads, 0, stream, device_data<T>(y),
           set, index.data<int64_t>(), epoch.data<int64_t>(), scale.data<float>(),
           shift.data<float>(), options);
  });
}

REGISTER_KERNEL(augment_images, CUDA, Native, augment_images_cuda);

}  // namespace
}  // namespace ringgrad::cuda
