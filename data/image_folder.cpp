#include "ringgrad/data/image_folder.h"

#include <algorithm>
#include <cctype>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/data/formats/image_file.h"

namespace ringgrad {
namespace fs = std::filesystem;
namespace {

bool is_picture(const fs::directory_entry& entry) {
  std::string extension = entry.path().extension().string();
  for (char& c : extension) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  constexpr std::string_view kKnown[] = {".png", ".jpg", ".jpeg", ".ppm", ".pgm"};
  return entry.is_regular_file() && std::find(std::begin(kKnown), std::end(kKnown), extension) != std::end(kKnown);
}

// What lies in a folder (and with an Iterator that does so, below it), in the order of the names.
template <class Iterator, class Predicate>
std::vector<fs::path> listed(const fs::path& folder, Predicate wanted) {
  std::vector<fs::path> all;
  for (const fs::directory_entry& entry : Iterator(folder))
    if (wanted(entry)) all.push_back(entry.path());
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace

ImageFolder::ImageFolder(const fs::path& folder, const ImageFolderOptions& options)
    : size_(options.size), channels_(options.channels) {
  CHECK(size_ > 0 && (channels_ == 1 || channels_ == 3), "ImageFolder: ", size_, " pixels a side and ", channels_,
        " channels, expected at least 1 pixel, and 1 or 3 channels");
  normalization_ = normalization({.mean = options.mean, .std = options.std}, channels_);
  try {
    const auto is_class = [](const fs::directory_entry& entry) { return entry.is_directory(); };
    for (const fs::path& path : listed<fs::directory_iterator>(folder, is_class)) {
      const auto files = listed<fs::recursive_directory_iterator>(path, is_picture);
      CHECK_AS(DataError, !files.empty(), "ImageFolder: ", path.string(),
               " has no picture, expected some called .png, .jpg, .jpeg, .ppm or .pgm");
      for (const fs::path& file : files) pictures_.push_back({file, static_cast<int64_t>(classes_.size())});
      classes_.push_back(path.filename().string());
    }
  } catch (const fs::filesystem_error& error) {
    throw DataError(str("ImageFolder: ", error.path1().string(), ": ", error.code().message()));
  }
  CHECK_AS(DataError, !classes_.empty(), "ImageFolder: ", folder.string(),
           " has no folder in it, expected one for each class, with its pictures");
}

const fs::path& ImageFolder::file(int64_t i) const {
  CHECK_AS(IndexError, i >= 0 && i < size(), "ImageFolder: there is no picture ", i, ", expected 0 to ", size() - 1);
  return pictures_[i].file;
}

Example ImageFolder::get(int64_t i) const {
  const Tensor fitted = fit_image(read_image(file(i).string()), channels_, size_);
  const int64_t pixels = size_ * size_;
  float* value = fitted.data<float>();
  for (int64_t c = 0; c < channels_; ++c)
    for (int64_t p = 0; p < pixels; ++p, ++value)
      *value = normalization_.scale.data<float>()[c] * *value + normalization_.shift.data<float>()[c];
  const Shape shape{channels_, size_, size_};
  return {fitted.as_strided(shape, contiguous_strides(shape), 0), tensor<int64_t>({pictures_[i].label}, Shape{})};
}

}  // namespace ringgrad
