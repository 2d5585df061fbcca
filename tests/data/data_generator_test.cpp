// The drawn data sets: the same bytes on every machine, balanced, and as hard as they say.
#include <array>
#include <cmath>
#include <set>

#include "ringgrad/core/base/sha256.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/data/datasets/catalog.h"
#include "ringgrad/data/datasets/dataset_files.h"
#include "ringgrad/data/image_dataset.h"
#include "ringgrad/data/registry.h"
#include "ringgrad/data/synthetic/digits.h"
#include "ringgrad/data/synthetic/shapes.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/data/data_files.h"
#include "ringgrad/tests/kernels/channel_statistics.h"

namespace ringgrad::test::data_generator_test {

namespace {

// The share of `test` images whose nearest training image, by Euclidean distance, is of their
// class.
double nearest_neighbour_accuracy(const ImageDataset& train, int64_t train_size,
                                  const ImageDataset& test, int64_t test_size) {
  const int64_t pixels = train.images.numel() / train.size();
  int64_t right = 0;
  for (int64_t i = 0; i < test_size; ++i) {
    int64_t best = -1;
    int64_t nearest = INT64_MAX;
    for (int64_t j = 0; j < train_size; ++j) {
      const uint8_t* a = test.images.data<uint8_t>() + i * pixels;
      const uint8_t* b = train.images.data<uint8_t>() + j * pixels;
      int32_t distance = 0;
      for (int64_t p = 0; p < pixels; ++p) distance += (a[p] - b[p]) * (a[p] - b[p]);
      if (distance < nearest) {
        nearest = distance;
        best = j;
      }
    }
    right += train.labels.data<int64_t>()[best] == test.labels.data<int64_t>()[i];
  }
  return static_cast<double>(right) / static_cast<double>(test_size);
}

}  // namespace

TEST_CASE("digits and shapes: the files have the known SHA-256", "[quick]") {
  const DatasetInfo& info = dataset_info(GENERATE("digits", "shapes"));
  TempFolder folder;
  const std::filesystem::path made = make_dataset(info, folder.path());
  REQUIRE(made == folder / info.name);
  for (const DatasetFile& file : info.files) {
    INFO(file.name);
    REQUIRE(std::filesystem::file_size(made / file.name) == file.bytes);
    REQUIRE(sha256_file(made / file.name) == file.sha256);
  }
  REQUIRE(std::distance(std::filesystem::directory_iterator(made), {}) ==
          static_cast<std::ptrdiff_t>(info.files.size()));

  // The facts in the catalog must be true: sizes, balance, constants for normalisation.
  const ImageDataset train = load_dataset(info.name, Split::Train, folder.path());
  const ImageDataset test = load_dataset(info.name, Split::Test, folder.path());
  REQUIRE(train.images.shape() ==
          Shape{info.train_size, info.channels, info.image_size, info.image_size});
  REQUIRE(test.images.shape() ==
          Shape{info.test_size, info.channels, info.image_size, info.image_size});
  std::vector<int64_t> of_class(10, 0);
  for (int64_t label : to_vector<int64_t>(train.labels)) ++of_class[label];
  REQUIRE(of_class == std::vector<int64_t>(10, info.train_size / 10));
  const ChannelStatistics statistics = channel_statistics(train);
  for (size_t c = 0; c < info.mean.size(); ++c) {
    REQUIRE(std::abs(statistics.mean[c] - info.mean[c]) < 6e-5);
    REQUIRE(std::abs(statistics.std[c] - info.std[c]) < 6e-5);
  }
}

TEST_CASE("digits and shapes: neither easy nor noise") {
  const std::string name = GENERATE("digits", "shapes");
  TempFolder folder;
  const ImageDataset train = load_dataset(name, Split::Train, folder.path());
  const ImageDataset test = load_dataset(name, Split::Test, folder.path());
  // Remembering pictures does not solve it, but does far better than chance.
  const double accuracy = nearest_neighbour_accuracy(train, 1000, test, 200);
  INFO("nearest neighbour: " << accuracy);
  REQUIRE(accuracy > (name == "digits" ? 0.5 : 0.12));
  REQUIRE(accuracy < 0.9);
}

TEST_CASE("digits and shapes: a picture is a function of its class and number", "[quick]") {
  std::array<uint8_t, 784> digit{};
  std::array<uint8_t, 784> again{};
  std::array<uint8_t, kCifarPixels> shape{};
  std::array<uint8_t, kCifarPixels> shape_again{};
  std::set<std::string> different;
  for (int k = 0; k < 10; ++k) {
    for (uint64_t number : {0u, 1u, 99999u}) {
      draw_digit(k, number, digit);
      draw_digit(k, number, again);
      REQUIRE(digit == again);
      different.insert(sha256_hex(digit));
      draw_shape(k, number, shape);
      draw_shape(k, number, shape_again);
      REQUIRE(shape == shape_again);
      different.insert(sha256_hex(shape));
    }
  }
  REQUIRE(different.size() == 60);
}

TEST_CASE("fixed-point sine and square root", "[quick]") {
  for (int32_t angle = -kTurn; angle <= kTurn; angle += 97) {
    REQUIRE(std::abs(fixed_sin(angle) - kOne * std::sin(angle * 2 * M_PI / kTurn)) < 10);
    REQUIRE(std::abs(fixed_cos(angle) - kOne * std::cos(angle * 2 * M_PI / kTurn)) < 10);
  }
  for (uint32_t x :
       {0u, 1u, 2u, 3u, 4u, 99u, 100u, 65535u, 65536u, 4294836224u, 4294836225u, UINT32_MAX}) {
    const uint64_t root = integer_sqrt(x);
    REQUIRE(root * root <= x);
    REQUIRE((root + 1) * (root + 1) > x);
  }
  // x turns towards y, which points down.
  const Point turned = Matrix2::rotation(kTurn / 4) * Point{1000, 0};
  REQUIRE(std::abs(turned.x) <= 1);
  REQUIRE(std::abs(turned.y - 1000) <= 1);
}

TEST_CASE("strokes: a spline goes through its points, a pen leaves a line of its width",
          "[quick]") {
  const std::vector<Point> control{{0, 0}, {1000, 2000}, {3000, 1500}, {0, 0}};
  const std::vector<Point> curve = spline(control, 4);
  REQUIRE(curve.size() == 13);
  for (size_t i = 0; i < control.size(); ++i) REQUIRE(curve[4 * i] == control[i]);
  REQUIRE(spline(std::vector<Point>{{0, 0}, {800, 400}}, 4)[2] == Point{400, 200});

  StrokeCanvas canvas(28, 4 * kPixel);
  canvas.add(std::vector<Point>{{5 * kPixel, 10 * kPixel}, {20 * kPixel, 10 * kPixel}});
  for (int row = 0; row < 28; ++row) {
    // 2 pixels to each side, soft by half a one.
    const int32_t ink = canvas.ink(row * 28 + 12, 2 * kPixel, kPixel / 2);
    REQUIRE(ink == (std::abs(row - 10) < 2 ? 255 : std::abs(row - 10) == 2 ? 127 : 0));
  }
  REQUIRE(canvas.ink(10 * 28 + 2, 2 * kPixel, kPixel / 2) == 0);  // 3 pixels before its beginning
}

}  // namespace ringgrad::test::data_generator_test
