// CIFAR's binary files: a written file is read back, and every damage is an error that names the
// file.
#include <cstdlib>

#include "ringgrad/core/device/allocator.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/data/formats/cifar.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/data/data_files.h"

namespace ringgrad::test::data_cifar_test {

namespace {

const std::vector<std::string> kTen(10, "thing");

// Record i of a file: its label bytes, then pixels that depend on i and their place.
uint8_t pixel(int64_t i, int64_t place) { return static_cast<uint8_t>(7 * i + place % 251); }

Bytes file_of(const CifarFormat& format, int64_t first, int64_t count) {
  Bytes bytes;
  for (int64_t i = first; i < first + count; ++i) {
    for (int b = 0; b < format.label_bytes; ++b)
      bytes.push_back(static_cast<uint8_t>((i + 3 * b) % 10));
    for (int64_t place = 0; place < kCifarPixels; ++place) bytes.push_back(pixel(i, place));
  }
  return bytes;
}

// Two records per training file, counted through.
void write_all(const TempFolder& folder, const CifarFormat& format) {
  int64_t first = 0;
  for (const auto& file : format.train_files) {
    write_bytes(folder / file, file_of(format, first, 2));
    first += 2;
  }
  for (const auto& file : format.test_files) write_bytes(folder / file, file_of(format, first, 2));
}

}  // namespace

TEST_CASE("cifar: files of known bytes, both formats", "[quick]") {
  const CifarFormat& format = GENERATE(0, 1) ? kCifar10 : kCifar100;
  TempFolder folder;
  write_all(folder, format);
  const ImageDataset train = read_cifar(format, "tiny", folder.path(), Split::Train, kTen);
  REQUIRE(train.images.shape() ==
          Shape{2 * static_cast<int64_t>(format.train_files.size()), 3, 32, 32});
  const std::vector<int> pixels = to_vector<int>(train.images);
  const std::vector<int64_t> labels = to_vector<int64_t>(train.labels);
  for (int64_t i = 0; i < train.size(); ++i) {
    // CIFAR-100: the fine label is the second byte.
    REQUIRE(labels[i] == (i + 3 * (format.label_bytes - 1)) % 10);
    for (int64_t place = 0; place < kCifarPixels; ++place)
      if (pixels[i * kCifarPixels + place] != pixel(i, place))
        FAIL("image " << i << ", byte " << place);
  }
  REQUIRE(read_cifar(format, "tiny", folder.path(), Split::Test, kTen).size() == 2);
}

TEST_CASE("cifar: write_cifar writes what read_cifar reads", "[quick]") {
  const CifarFormat& format = GENERATE(0, 1) ? kCifar10 : kCifar100;
  TempFolder folder;
  const Bytes expected = file_of(format, 5, 3);
  Bytes labels;
  Bytes pixels;
  for (size_t at = 0; at < expected.size(); at += static_cast<size_t>(format.record_bytes())) {
    const auto record = expected.begin() + static_cast<std::ptrdiff_t>(at);
    labels.insert(labels.end(), record, record + format.label_bytes);
    pixels.insert(pixels.end(), record + format.label_bytes, record + format.record_bytes());
  }
  write_cifar(format, folder / "x.bin", labels, pixels);
  REQUIRE(read_bytes(folder / "x.bin") == expected);
  labels.push_back(0);
  REQUIRE_THROWS_AS(write_cifar(format, folder / "y.bin", labels, pixels), ShapeError);
  REQUIRE(folder.names() == std::vector<std::string>{"x.bin"});
}

TEST_CASE("cifar: a file cut off anywhere is refused, between two records too", "[quick]") {
  TempFolder folder;
  write_all(folder, kCifar10);
  const Bytes whole = file_of(kCifar10, 4, 2);
  const std::filesystem::path file = folder / kCifar10.train_files[2];
  const int64_t live = memory_stats({}).live_bytes;
  reset_peak_memory({});
  for (size_t length = 0; length < whole.size();
       length += length < 4 || length % 3073 > 3070 ? 1 : 37) {
    write_bytes(file, std::span(whole).first(length));
    const std::string error = error_of<DataError>(
        [&] { read_cifar(kCifar10, "tiny", folder.path(), Split::Train, kTen); });
    INFO(length << " bytes: " << error);
    REQUIRE(contains(error, file.string() + ": byte "));
    REQUIRE(contains(error, "expected"));
  }
  REQUIRE(memory_stats({}).peak_bytes == live);  // refused before anything was allocated
}

TEST_CASE("cifar: labels out of range and missing files are named", "[quick]") {
  TempFolder folder;
  write_all(folder, kCifar10);
  auto error = [&] {
    return error_of<IoError>(
        [&] { read_cifar(kCifar10, "tiny", folder.path(), Split::Train, kTen); });
  };
  const std::filesystem::path file = folder / kCifar10.train_files[3];
  Bytes bytes = file_of(kCifar10, 6, 2);
  bytes[3073] = 10;
  write_bytes(file, bytes);
  REQUIRE(contains(error(), file.string() + ": byte 3073: label 10, expected 0 to 9"));
  std::filesystem::remove(file);
  REQUIRE(contains(error(), file.string() + ": No such file"));

  write_all(folder, kCifar100);
  Bytes fine = file_of(kCifar100, 0, 2);
  fine[0] = 255;  // the coarse label is not used
  write_bytes(folder / "train.bin", fine);
  REQUIRE(read_cifar(kCifar100, "tiny", folder.path(), Split::Train, kTen).size() == 2);
  fine[3075] = 10;
  write_bytes(folder / "train.bin", fine);
  REQUIRE(contains(error_of<DataError>(
                       [&] { read_cifar(kCifar100, "tiny", folder.path(), Split::Train, kTen); }),
                   "byte 3075: label 10"));
}

TEST_CASE("cifar: real CIFAR-10", "[quick]") {
  const char* root = std::getenv("RINGGRAD_DATA_DIR");
  const std::filesystem::path folder =
      std::filesystem::path(root ? root : "") / "cifar-10-batches-bin";
  if (!root || !std::filesystem::exists(folder / "test_batch.bin")) {
    WARN("RINGGRAD_DATA_DIR has no cifar-10-batches-bin: skipped");
    return;
  }
  const ImageDataset test = read_cifar(kCifar10, "cifar10", folder, Split::Test, kTen);
  std::vector<int> of_class(10, 0);
  for (int64_t label : to_vector<int64_t>(test.labels)) ++of_class[label];
  REQUIRE(of_class == std::vector<int>(10, 1000));
}

}  // namespace ringgrad::test::data_cifar_test
