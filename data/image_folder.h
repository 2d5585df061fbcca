// ImageFolder: pictures in folders, one for each class, like torchvision's: FOLDER/cat/1.jpg,
// FOLDER/cat/more/2.png, FOLDER/dog/1.ppm. A user's program must link the target ringgrad::images
// besides ringgrad::ringgrad.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "ringgrad/data/dataset.h"
#include "ringgrad/data/formats/picture_files.h"
#include "ringgrad/data/image_dataset.h"

namespace ringgrad {

struct ImageFolderOptions {
  // The number of pixels on each side to which every picture is resized, whatever its shape.
  int64_t size = 224;
  // One channel is gray.
  int64_t channels = 3;
  // As in ImageTransform: y = (pixel / 255 - mean) / std.
  std::vector<float> mean = {};
  std::vector<float> std = {};
};

// An example is float32 [channels, size, size] and the number of its class, int64 []. Classes and
// pictures are sorted by name. The constructor only lists names, and throws what
// pictures_in_folders() throws. get() reads a picture on the calling thread, and throws DataError
// that names a damaged file.
class ImageFolder : public Dataset {
 public:
  explicit ImageFolder(const std::filesystem::path& folder, const ImageFolderOptions& options = {});
  Example get(int64_t i) const override;
  int64_t size() const override { return static_cast<int64_t>(found_.pictures.size()); }
  const std::vector<std::string>& classes() const { return found_.classes; }
  const std::filesystem::path& file(int64_t i) const;

 private:
  int64_t size_;
  int64_t channels_;
  Normalization normalization_;
  LabelledPictures found_;
};

}  // namespace ringgrad
