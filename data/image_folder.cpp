#include "ringgrad/data/image_folder.h"

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/data/formats/image_file.h"

namespace ringgrad {
namespace fs = std::filesystem;

ImageFolder::ImageFolder(const fs::path& folder, const ImageFolderOptions& options)
    : size_(options.size), channels_(options.channels) {
  CHECK(size_ > 0 && (channels_ == 1 || channels_ == 3), "ImageFolder: ", size_,
        " pixels a side and ", channels_,
        " channels, expected at least 1 pixel, and 1 or 3 channels");
  normalization_ = normalization({.mean = options.mean, .std = options.std}, channels_);
  found_ = pictures_in_folders(folder);
}

const fs::path& ImageFolder::file(int64_t i) const {
  CHECK_AS(IndexError, i >= 0 && i < size(), "ImageFolder: there is no picture ", i,
           ", expected 0 to ", size() - 1);
  return found_.pictures[i].file;
}

Example ImageFolder::get(int64_t i) const {
  const Tensor fitted = read_fitted_image(file(i).string(), channels_, size_);
  const int64_t pixels = size_ * size_;
  float* value = fitted.data<float>();
  for (int64_t c = 0; c < channels_; ++c)
    for (int64_t p = 0; p < pixels; ++p, ++value)
      *value =
          normalization_.scale.data<float>()[c] * *value + normalization_.shift.data<float>()[c];
  const Shape shape{channels_, size_, size_};
  return {fitted.as_strided(shape, contiguous_strides(shape), 0),
          tensor<int64_t>({found_.pictures[i].label}, Shape{})};
}

}  // namespace ringgrad
