// IDX, the format of MNIST (LeCun, Cortes and Burges 1998): two zero bytes, an element type (8:
// unsigned byte), the number of dimensions, each size as a big-endian 32-bit number, then the
// elements, row-major. Files may be plain or gzipped.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>

#include "ringgrad/data/image_dataset.h"

namespace ringgrad {

// A .gz may unpack to at most its own size plus this many bytes; larger sets are read from unpacked
// files. So no file causes larger allocations than that.
inline constexpr uint64_t kUnpackAllowance = uint64_t{64} << 20;

// Reads a file of unsigned bytes as a uint8 tensor of the shape in its header. Nothing is allocated
// before the header has been checked against the size of the file. Throws IoError if the file
// cannot be read. Throws DataError that names file, byte, expected and found if it is not IDX, is
// cut off or damaged, or holds more or less than its header says.
Tensor read_idx(const std::filesystem::path& file);

// Reads the two files of one split. Throws as read_idx. Also throws DataError if they hold
// different numbers of items, do not have 3 and 1 dimensions, hold nothing, or have a label outside
// the classes.
ImageDataset read_idx_dataset(const std::string& name, const std::filesystem::path& images,
                              const std::filesystem::path& labels,
                              const std::vector<std::string>& classes);

// Writes a plain IDX file atomically. Throws IoError, and ShapeError unless there are shape.numel()
// elements.
void write_idx(const std::filesystem::path& file, const Shape& shape,
               std::span<const uint8_t> elements);

}  // namespace ringgrad
