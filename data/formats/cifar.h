// The binary format of CIFAR-10 and CIFAR-100 (Krizhevsky 2009): records of label bytes and 3 x 32
// x 32 pixels, red plane first. CIFAR-10 has one label byte. CIFAR-100 has a coarse label (20
// superclasses) and a fine one (100), which is the one used here.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

#include "ringgrad/data/image_dataset.h"
#include "ringgrad/data/split.h"

namespace ringgrad {

inline constexpr int64_t kCifarPixels = 3 * 32 * 32;

struct CifarFormat {
  int label_bytes;  // before a record's pixels; the last one is the label
  std::vector<std::string> train_files;
  std::vector<std::string> test_files;

  int64_t record_bytes() const { return label_bytes + kCifarPixels; }
};
extern const CifarFormat kCifar10;   // data_batch_1.bin … data_batch_5.bin, test_batch.bin
extern const CifarFormat kCifar100;  // train.bin, test.bin

// Reads one split: all its files in `folder`, one after the other. Nothing is allocated before the
// sizes of all files have been checked. Throws IoError if a file is missing or cannot be read.
// Throws DataError if a file does not consist of whole records, if the files hold different numbers
// of them, or if a label lies outside the classes. It names file, byte, expected and found.
ImageDataset read_cifar(const CifarFormat& format, const std::string& name,
                        const std::filesystem::path& folder, Split split,
                        const std::vector<std::string>& classes);

// Writes one file atomically. `labels` holds format.label_bytes per image, and `pixels`
// kCifarPixels. Throws IoError, and ShapeError unless both hold the same number of images.
void write_cifar(const CifarFormat& format, const std::filesystem::path& file,
                 std::span<const uint8_t> labels, std::span<const uint8_t> pixels);

}  // namespace ringgrad
