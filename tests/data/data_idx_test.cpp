// IDX files: a written file is read back, and every damage is an error that names the file, and
// costs no memory.
#include <sys/resource.h>
#include <sys/stat.h>

#include <cstdlib>
#include <numeric>

#include "ringgrad/core/device/allocator.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/data/formats/byte_reader.h"
#include "ringgrad/data/formats/idx.h"
#include "ringgrad/data/image_dataset.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/data/data_files.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test::data_idx_test {

namespace {

const std::vector<std::string> kDigits{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"};

// Three images of 2 x 4 with pixels 0 … 23, and labels 7, 0, 9, spelled out byte by byte.
const Bytes kImages{0, 0, 8, 3, 0, 0, 0,  3,  0,  0,  0,  2,  0,  0,  0,  4,  0,  1,  2,  3,
                    4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23};
const Bytes kLabels{0, 0, 8, 1, 0, 0, 0, 3, 7, 0, 9};

struct Pair {
  TempFolder folder;
  std::filesystem::path images = folder / "images";
  std::filesystem::path labels = folder / "labels";

  Pair() {
    write_bytes(images, kImages);
    write_bytes(labels, kLabels);
  }
  ImageDataset read() const { return read_idx_dataset("tiny", images, labels, kDigits); }
};

void require_tiny(const ImageDataset& dataset) {
  std::vector<int> pixels(24);
  std::iota(pixels.begin(), pixels.end(), 0);
  REQUIRE(dataset.images.shape() == Shape{3, 1, 2, 4});
  REQUIRE(to_vector<int>(dataset.images) == pixels);
  REQUIRE(to_vector<int64_t>(dataset.labels) == std::vector<int64_t>{7, 0, 9});
  REQUIRE_NOTHROW(check_dataset_invariants(dataset));
}

int64_t peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return int64_t{usage.ru_maxrss} * 1024;
}

}  // namespace

TEST_CASE("a data set of other shapes, dtypes or labels is none", "[quick]") {
  const Tensor images = zeros({2, 1, 3, 3}, {.dtype = DType::UInt8});
  const Tensor labels = tensor<int64_t>({0, 1});
  const auto check = [&](const Tensor& x, const Tensor& y) {
    return [=] {
      check_dataset_invariants({.name = "own", .images = x, .labels = y, .classes = {"a", "b"}});
    };
  };
  check(images, labels)();
  const Tensor turned = images.as_strided({2, 1, 3, 3}, {9, 9, 1, 3}, 0);
  for (const Tensor& wrong : {Tensor(), zeros({2, 3, 3}, {.dtype = DType::UInt8}), turned})
    require_error<ShapeError>("dataset own: images must be contiguous [N, C, H, W]",
                              check(wrong, labels));
  require_error<DTypeError>("dataset own: images are float32, expected uint8",
                            check(zeros({2, 1, 3, 3}), labels));
  for (const Tensor& wrong : {Tensor(), tensor<int64_t>({0}), tensor<int64_t>({0, 1}, {2, 1}),
                              tensor<int64_t>({0, 1, 1, 0}).as_strided({2}, {2}, 0)})
    require_error<ShapeError>("dataset own: labels must be a contiguous [N]", check(images, wrong));
  for (const int64_t label : {-1, 2})
    require_error<IndexError>("dataset own: label " + std::to_string(label) + " of image 1",
                              check(images, tensor<int64_t>({0, label})));
}

TEST_CASE("idx: plain and gzipped files of known bytes", "[quick]") {
  Pair pair;
  require_tiny(pair.read());
  write_bytes(pair.images, gzip(kImages));
  require_tiny(pair.read());
  write_bytes(pair.labels, gzip(kLabels));
  require_tiny(pair.read());

  // Two gzip members, one after the other, are one stream (RFC 1952, section 2.2).
  Bytes members = gzip(std::span(kImages).first(20));
  const Bytes second = gzip(std::span(kImages).subspan(20));
  members.insert(members.end(), second.begin(), second.end());
  write_bytes(pair.images, members);
  require_tiny(pair.read());
}

TEST_CASE("idx: write_idx writes what read_idx reads", "[quick]") {
  TempFolder folder;
  write_bytes(folder / "expected", kImages);
  write_idx(folder / "x", {3, 2, 4}, std::span(kImages).subspan(16));
  REQUIRE(read_bytes(folder / "x") == kImages);
  const Tensor x = read_idx(folder / "x");
  REQUIRE(x.shape() == Shape{3, 2, 4});
  REQUIRE(x.dtype() == DType::UInt8);
  REQUIRE_THROWS_AS(write_idx(folder / "y", {3, 2}, Bytes(5)), ShapeError);
  REQUIRE_THROWS_AS(write_idx(folder / "no/such/y", {2}, Bytes(2)), IoError);
  REQUIRE(folder.names().size() == 2);
}

TEST_CASE("idx: every proper prefix of every file is refused", "[quick]") {
  Pair pair;
  const bool packed = GENERATE(false, true);
  for (const auto& [file, whole] : {std::pair{pair.images, packed ? gzip(kImages) : kImages},
                                    std::pair{pair.labels, packed ? gzip(kLabels) : kLabels}}) {
    for (size_t length = 0; length < whole.size(); ++length) {
      write_bytes(file, std::span(whole).first(length));
      const std::string error = error_of<DataError>([&] { pair.read(); });
      INFO("prefix of " << length << " bytes of " << file << ": " << error);
      REQUIRE(contains(error, file.string()));
    }
    write_bytes(file, whole);
  }
  require_tiny(pair.read());
}

TEST_CASE("idx: any other byte in a header, or one more at the end, is refused", "[quick]") {
  Pair pair;
  for (const auto& [file, whole, header] :
       {std::tuple{pair.images, kImages, 16}, std::tuple{pair.labels, kLabels, 8}}) {
    for (int at = 0; at < header; ++at) {
      for (int flip = 1; flip < 256; ++flip) {
        Bytes damaged = whole;
        damaged[at] ^= static_cast<uint8_t>(flip);
        write_bytes(file, damaged);
        REQUIRE(contains(error_of<DataError>([&] { pair.read(); }), file.string()));
      }
    }
    Bytes longer = whole;
    longer.push_back(0);
    write_bytes(file, longer);
    REQUIRE(contains(error_of<DataError>([&] { pair.read(); }), file.string()));
    write_bytes(file, gzip(longer));
    REQUIRE(contains(error_of<DataError>([&] { pair.read(); }), "expected the end"));
    write_bytes(file, whole);
  }
}

TEST_CASE("idx: a flipped bit of a gzipped file is noticed or changes nothing", "[quick]") {
  Pair pair;
  const Bytes whole = gzip(kImages);
  size_t noticed = 0;
  for (size_t bit = 0; bit < whole.size() * 8; ++bit) {
    Bytes damaged = whole;
    damaged[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
    write_bytes(pair.images, damaged);
    const std::string error = error_of<DataError>([&] { require_tiny(pair.read()); });
    noticed += contains(error, pair.images.string());
  }
  // The header's time stamp and system, and the unused bits of the last compressed byte, carry no
  // data.
  REQUIRE(noticed > (whole.size() - 10) * 8);
}

TEST_CASE("idx: messages name file, byte, found and expected", "[quick]") {
  Pair pair;
  auto error = [&] { return error_of<DataError>([&] { pair.read(); }); };
  SECTION("magic number") {
    write_bytes(pair.images, Bytes{0, 0, 9, 3, 0, 0, 0, 3});
    REQUIRE(contains(
        error(), pair.images.string() + ": byte 0: magic number 0x00000903, expected 0x000008"));
  }
  SECTION("cut off") {
    write_bytes(pair.images, std::span(kImages).first(30));
    REQUIRE(contains(
        error(), "byte 4: the header says [3, 2, 4], so expected a file of 40 bytes, found 30"));
  }
  SECTION("counts differ") {
    write_bytes(pair.labels, Bytes{0, 0, 8, 1, 0, 0, 0, 2, 7, 0});
    REQUIRE(contains(error(), pair.labels.string() + ": byte 4: 2 labels, expected 3"));
  }
  SECTION("a label out of range") {
    write_bytes(pair.labels, Bytes{0, 0, 8, 1, 0, 0, 0, 3, 7, 10, 9});
    REQUIRE(contains(error(), pair.labels.string() + ": byte 9: label 10, expected 0 to 9"));
  }
  SECTION("images and labels exchanged") {
    std::swap(pair.images, pair.labels);
    REQUIRE(contains(error(), "byte 3: holds an array of shape [3], expected images"));
  }
  SECTION("sizes whose product no integer holds") {
    write_bytes(pair.images, Bytes{0, 0, 8, 3, 255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 2});
    REQUIRE(contains(
        error(),
        "byte 4: the header says [4294967295, 4294967295] …, more bytes than any file has"));
    write_bytes(pair.images, Bytes{0, 0, 8, 3, 255, 255, 255, 255, 255, 255, 255, 255, 0, 0, 0, 0});
    REQUIRE(contains(error(), "more bytes than any file has"));
  }
  SECTION("nothing in it") {
    write_bytes(pair.images, Bytes{0, 0, 8, 3, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 4});
    write_bytes(pair.labels, Bytes{0, 0, 8, 1, 0, 0, 0, 0});
    REQUIRE(contains(error(), "[0, 2, 4]"));
  }
}

TEST_CASE("idx: files that cannot be read are an IoError, and a pipe does not hang", "[quick]") {
  Pair pair;
  std::filesystem::remove(pair.images);
  auto error = [&] { return error_of<IoError>([&] { pair.read(); }); };
  REQUIRE(contains(error(), pair.images.string() + ": No such file"));
  std::filesystem::create_directory(pair.images);
  REQUIRE(contains(error(), "is not a regular file"));
  std::filesystem::remove(pair.images);
  REQUIRE(::mkfifo(pair.images.c_str(), 0600) == 0);
  REQUIRE(contains(error(), "is not a regular file"));
}

TEST_CASE("idx: a file cannot make the reader allocate more than its size and 64 MiB", "[quick]") {
  Pair pair;
  const Bytes huge_claim{0,    0,    8,    3,    0xff, 0xff, 0xff, 0xff,
                         0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
  // 81920 x 1024 x 1 = 80 MiB.
  const Bytes large_claim{0, 0, 8, 3, 0, 1, 0x40, 0, 0, 0, 4, 0, 0, 0, 0, 1};
  const Bytes modest_claim{0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0, 2, 0, 0, 0, 4};
  const uint64_t zeros = uint64_t{80} << 20;

  reset_peak_memory({});
  const int64_t live = memory_stats({}).live_bytes;
  const int64_t resident = peak_resident_bytes();
  uint64_t largest = 0;
  auto refused = [&](const Bytes& bytes) {
    write_bytes(pair.images, bytes);
    largest = std::max<uint64_t>(largest, bytes.size());
    return error_of<DataError>([&] { pair.read(); });
  };
  // The product does not fit 64 bits.
  REQUIRE(contains(refused(huge_claim), "more bytes than any"));
  REQUIRE(contains(refused(large_claim), "found 16"));  // a plain file, far too short
  REQUIRE(contains(refused(gzip(huge_claim)), "more bytes than any"));
  // This bomb's header tells the truth.
  REQUIRE(contains(refused(gzip(large_claim, zeros)), "may hold"));
  // This bomb's header lies.
  REQUIRE(contains(refused(gzip(modest_claim, zeros)), "expected the end"));
  REQUIRE(memory_stats({}).peak_bytes - live < (1 << 20));
  REQUIRE(peak_resident_bytes() - resident < static_cast<int64_t>(largest) + (int64_t{64} << 20));
}

TEST_CASE("idx: real MNIST", "[quick]") {
  const char* root = std::getenv("RINGGRAD_DATA_DIR");
  if (!root ||
      !std::filesystem::exists(std::filesystem::path(root) / "mnist/t10k-images-idx3-ubyte")) {
    WARN("RINGGRAD_DATA_DIR has no mnist: skipped");
    return;
  }
  const std::filesystem::path folder = std::filesystem::path(root) / "mnist";
  const ImageDataset test = read_idx_dataset("mnist", folder / "t10k-images-idx3-ubyte",
                                             folder / "t10k-labels-idx1-ubyte", kDigits);
  REQUIRE(test.images.shape() == Shape{10000, 1, 28, 28});
  const std::vector<int64_t> labels = to_vector<int64_t>(test.labels);
  REQUIRE(std::vector(labels.begin(), labels.begin() + 10) ==
          std::vector<int64_t>{7, 2, 1, 0, 4, 1, 4, 9, 5, 9});
}

}  // namespace ringgrad::test::data_idx_test
