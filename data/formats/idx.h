// IDX, the format of MNIST (LeCun, Cortes and Burges 1998): two zero bytes, an element type (8:
// unsigned byte), the number of dimensions, each size as a big-endian 32-bit number, then the
// elements, row-major. Plain or gzipped.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

#include "ringgrad/data/image_dataset.h"

namespace ringgrad {

// A .gz may unpack to at most its own size and this many bytes more; larger sets are read from
// unpacked files. So no file makes us allocate more than it is large, and this.
inline constexpr uint64_t kUnpackAllowance = uint64_t{64} << 20;

// One file of unsigned bytes as a uint8 tensor of the shape in its header. Nothing is allocated
// before the header has been checked against the size of the file. Throws IoError when the file
// cannot be read; DataError, naming file, byte, expected and found, when it is not IDX, is cut off,
// damaged, or holds more or less than its header says.
Tensor read_idx(const std::filesystem::path& file);

// The pair of files of one split. Throws as read_idx, and DataError when they hold different
// numbers of items, have other than 3 and 1 dimensions, hold nothing, or a label lies outside the
// classes.
ImageDataset read_idx_dataset(const std::string& name, const std::filesystem::path& images,
                              const std::filesystem::path& labels,
                              const std::vector<std::string>& classes);

// Writes a plain IDX file, atomically. Throws IoError; ShapeError unless there are shape.numel()
// elements.
void write_idx(const std::filesystem::path& file, const Shape& shape,
               std::span<const uint8_t> elements);

}  // namespace ringgrad
