#include "ringgrad/data/formats/idx.h"

#include <fmt/format.h>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/data/formats/byte_reader.h"

namespace ringgrad {
namespace {

constexpr uint8_t kUnsignedByte = 8;

uint32_t big_endian(const uint8_t* bytes) {
  return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | bytes[3];
}

// Reads the header and checks its sizes against what the file can hold, before anything is
// allocated for it.
Shape read_header(ByteReader& reader) {
  uint8_t magic[4];
  reader.read_exactly(magic, "IDX magic number");
  const int dims = magic[3];
  CHECK_AS(
      DataError,
      magic[0] == 0 && magic[1] == 0 && magic[2] == kUnsignedByte && dims >= 1 && dims <= kMaxDims,
      "idx: ", reader.at(0), ": magic number ", fmt::format("0x{:08x}", big_endian(magic)),
      ", expected 0x000008 and a number of dimensions from 1 to ", kMaxDims);

  Shape shape;
  uint64_t elements = 1;
  const uint64_t header = 4 + 4 * static_cast<uint64_t>(dims);
  for (int d = 0; d < dims; ++d) {
    uint8_t size[4];
    reader.read_exactly(size, "IDX dimension sizes");
    shape.push_back(big_endian(size));
    const bool overflow = __builtin_mul_overflow(elements, uint64_t{big_endian(size)}, &elements);
    CHECK_AS(DataError, !overflow && elements <= INT64_MAX - header, "idx: ", reader.at(4),
             ": the header says ", shape, " …, more bytes than any file has");
  }
  if (reader.packed()) {
    const uint64_t limit = reader.file_size() + kUnpackAllowance;
    CHECK_AS(DataError, header + elements <= limit, "idx: ", reader.at(4), ": the header says ",
             shape, ", ", elements, " bytes, more than the ", limit, " that a .gz of ",
             reader.file_size(), " bytes may hold; if it is genuine, unpack it with gunzip first");
  } else {
    CHECK_AS(DataError, header + elements == reader.file_size(), "idx: ", reader.at(4),
             ": the header says ", shape, ", so expected a file of ", header + elements,
             " bytes, found ", reader.file_size(),
             reader.file_size() < header + elements ? "; it was cut off" : "");
  }
  return shape;
}

Tensor read_elements(ByteReader& reader, const Shape& shape) {
  OpScope scope("idx");
  Tensor x = empty(shape, {.dtype = DType::UInt8});
  reader.read_exactly({x.data<uint8_t>(), static_cast<size_t>(x.numel())},
                      str("elements of shape ", shape));
  reader.expect_end();
  return x;
}

}  // namespace

Tensor read_idx(const std::filesystem::path& file) {
  ByteReader reader(file);
  const Shape shape = read_header(reader);
  return read_elements(reader, shape);
}

ImageDataset read_idx_dataset(const std::string& name, const std::filesystem::path& images,
                              const std::filesystem::path& labels,
                              const std::vector<std::string>& classes) {
  ByteReader image_reader(images);
  ByteReader label_reader(labels);
  const Shape image_shape = read_header(image_reader);
  const Shape label_shape = read_header(label_reader);
  CHECK_AS(DataError, image_shape.dim() == 3 && image_shape.numel() > 0,
           "idx: ", image_reader.at(3), ": holds an array of shape ", image_shape,
           ", expected images: [N, height, width], none of them 0");
  CHECK_AS(DataError, label_shape.dim() == 1, "idx: ", label_reader.at(3),
           ": holds an array of shape ", label_shape, ", expected labels: [N]");
  const int64_t count = image_shape[0];
  CHECK_AS(DataError, label_shape[0] == count, "idx: ", label_reader.at(4), ": ", label_shape[0],
           " labels, expected ", count, ", the number of images in ", images.string());

  const Tensor bytes = read_elements(label_reader, label_shape);
  ImageDataset dataset{name, {}, empty({count}, {.dtype = DType::Int64}), classes};
  for (int64_t i = 0; i < count; ++i) {
    const uint8_t label = bytes.data<uint8_t>()[i];
    CHECK_AS(DataError, label < classes.size(),
             "idx: ", label_reader.at(8 + static_cast<uint64_t>(i)), ": label ", int{label},
             ", expected 0 to ", classes.size() - 1);
    dataset.labels.data<int64_t>()[i] = label;
  }
  const Shape nchw{count, 1, image_shape[1], image_shape[2]};
  dataset.images =
      read_elements(image_reader, image_shape).as_strided(nchw, contiguous_strides(nchw), 0);
  return dataset;
}

void write_idx(const std::filesystem::path& file, const Shape& shape,
               std::span<const uint8_t> elements) {
  CHECK_AS(ShapeError, static_cast<uint64_t>(shape.numel()) == elements.size() && shape.dim() >= 1,
           "write_idx: shape ", shape, " does not describe ", elements.size(), " elements");
  std::vector<uint8_t> header{0, 0, kUnsignedByte, static_cast<uint8_t>(shape.dim())};
  for (int64_t size : shape)
    for (int shift = 24; shift >= 0; shift -= 8)
      header.push_back(static_cast<uint8_t>(size >> shift));
  AtomicFile out(file);
  out.write(header);
  out.write(elements);
  out.commit();
}

}  // namespace ringgrad
