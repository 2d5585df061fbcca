// ImageFolder: pictures in folders, one for each class, as torchvision's: FOLDER/cat/1.jpg,
// FOLDER/cat/more/2.png, FOLDER/dog/1.ppm. In a program of one's own it wants the target
// ringgrad::images beside ringgrad::ringgrad.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "ringgrad/data/dataset.h"
#include "ringgrad/data/formats/picture_files.h"
#include "ringgrad/data/image_dataset.h"

namespace ringgrad {

struct ImageFolderOptions {
  // Pixels on each side, to which every picture is resized, whatever its shape.
  int64_t size = 224;
  // One channel is gray.
  int64_t channels = 3;
  // As those of an ImageTransform: y = (pixel / 255 - mean) / std.
  std::vector<float> mean = {};
  std::vector<float> std = {};
};

// Example: float32 [channels, size, size], and the number of its class, int64 []. Classes and
// pictures are in the order of their names. The constructor only lists names, with the errors of
// pictures_in_folders(). get() reads a picture, on whichever thread, and throws DataError naming
// the file that is damaged.
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
