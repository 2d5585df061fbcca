#include "ringgrad/data/formats/cifar.h"

#include <algorithm>
#include <memory>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/data/formats/byte_reader.h"

namespace ringgrad {

// Neither files nor records have an identifying header. Only lengths and the range of labels can be
// checked, so both are checked before the data is used.
const CifarFormat kCifar10{1,
                           {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                            "data_batch_4.bin", "data_batch_5.bin"},
                           {"test_batch.bin"}};
const CifarFormat kCifar100{2, {"train.bin"}, {"test.bin"}};

ImageDataset read_cifar(const CifarFormat& format, const std::string& name,
                        const std::filesystem::path& folder, Split split,
                        const std::vector<std::string>& classes) {
  const auto& files = split == Split::Train ? format.train_files : format.test_files;
  const auto record = static_cast<uint64_t>(format.record_bytes());
  std::vector<std::unique_ptr<ByteReader>> readers;
  int64_t count = 0;
  for (const std::string& file : files) {
    readers.push_back(std::make_unique<ByteReader>(folder / file, ByteReader::Raw));
    const uint64_t bytes = readers.back()->file_size();
    const uint64_t whole = bytes / record;
    CHECK_AS(DataError, bytes > 0 && bytes % record == 0,
             "cifar: ", readers.back()->at(whole * record), ": found ", bytes % record,
             " bytes, expected whole records of ", record, bytes ? "" : ", at least one");
    // A file cut off between two records is noticed only by comparison with the others.
    CHECK_AS(DataError, whole * record == readers.front()->file_size(),
             "cifar: ", readers.back()->at(bytes), ": holds ", whole, " images, expected ",
             readers.front()->file_size() / record, " as in ", files.front());
    count += static_cast<int64_t>(whole);
  }
  OpScope scope("cifar");
  ImageDataset dataset{name, empty({count, 3, 32, 32}, {.dtype = DType::UInt8}),
                       empty({count}, {.dtype = DType::Int64}), classes};
  uint8_t* pixels = dataset.images.data<uint8_t>();
  int64_t* label = dataset.labels.data<int64_t>();
  std::vector<uint8_t> records(64 * record);  // several records at a time, which fit the cache
  for (auto& reader : readers) {
    for (uint64_t at = 0; at < reader->file_size();) {
      const std::span chunk(records.data(),
                            std::min<uint64_t>(records.size(), reader->file_size() - at));
      reader->read_exactly(chunk, "records");
      for (const uint8_t* r = chunk.data(); r < chunk.data() + chunk.size();
           r += record, at += record) {
        const uint8_t value = r[format.label_bytes - 1];
        CHECK_AS(DataError, value < classes.size(),
                 "cifar: ", reader->at(at + static_cast<uint64_t>(format.label_bytes) - 1),
                 ": label ", int{value}, ", expected 0 to ", classes.size() - 1);
        *label++ = value;
        pixels = std::copy_n(r + format.label_bytes, kCifarPixels, pixels);
      }
    }
  }
  return dataset;
}

void write_cifar(const CifarFormat& format, const std::filesystem::path& file,
                 std::span<const uint8_t> labels, std::span<const uint8_t> pixels) {
  const auto label_bytes = static_cast<size_t>(format.label_bytes);
  const size_t count = labels.size() / label_bytes;
  CHECK_AS(ShapeError,
           labels.size() == count * label_bytes && pixels.size() == count * kCifarPixels,
           "write_cifar: ", labels.size(), " label bytes and ", pixels.size(), " pixels, expected ",
           label_bytes, " and ", kCifarPixels, " per image");
  AtomicFile out(file);
  std::vector<uint8_t> bytes;
  bytes.reserve(count * static_cast<size_t>(format.record_bytes()));
  for (size_t i = 0; i < count; ++i) {
    const auto label = labels.subspan(i * label_bytes, label_bytes);
    const auto image = pixels.subspan(i * kCifarPixels, kCifarPixels);
    bytes.insert(bytes.end(), label.begin(), label.end());
    bytes.insert(bytes.end(), image.begin(), image.end());
  }
  out.write(bytes);
  out.commit();
}

}  // namespace ringgrad
