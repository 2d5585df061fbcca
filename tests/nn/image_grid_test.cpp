// make_grid and save_image, by the rule of torchvision.utils in plain loops.
#include <filesystem>

#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/random.h"
#include "ringgrad/core/random_tensors.h"
#include "ringgrad/data/formats/image_file.h"
#include "ringgrad/data/image_grid.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/data/data_files.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test::image_grid_test {

namespace {

// Pixel (c, y, x) of the grid: of the image that lies there, or the padding.
double pixel_of(const std::vector<double>& images, const Shape& shape, int64_t c, int64_t y,
                int64_t x, const ImageGridOptions& o) {
  const int64_t step_h = shape[2] + o.padding;
  const int64_t step_w = shape[3] + o.padding;
  const int64_t row = y / step_h;
  const int64_t column = x / step_w;
  const int64_t in_y = y % step_h - o.padding;
  const int64_t in_x = x % step_w - o.padding;
  const int64_t n = row * o.nrow + column;
  if (in_y < 0 || in_x < 0 || column >= o.nrow || n >= shape[0]) return o.pad_value;
  const int64_t channel = shape[1] == 1 ? 0 : c;
  return images[((n * shape[1] + channel) * shape[2] + in_y) * shape[3] + in_x];
}

}  // namespace

TEST_CASE("make_grid: images lie in rows, with padding around each", "[quick]") {
  for (const Shape& shape : {Shape{5, 3, 2, 4}, Shape{4, 1, 3, 2}, Shape{2, 3, 1, 1}}) {
    const ImageGridOptions o = {.nrow = 2, .padding = 3, .pad_value = 0.25};
    const Tensor images = rand(shape);
    const Tensor grid = make_grid(images, o);
    const int64_t rows = (shape[0] + 1) / 2;
    REQUIRE(grid.shape() == Shape{3, rows * (shape[2] + 3) + 3, 2 * (shape[3] + 3) + 3});
    std::vector<double> want;
    const auto values = to_vector<double>(images);
    for (int64_t c = 0; c < 3; ++c)
      for (int64_t y = 0; y < grid.size(1); ++y)
        for (int64_t x = 0; x < grid.size(2); ++x)
          want.push_back(pixel_of(values, shape, c, y, x, o));
    CHECK(to_vector<double>(grid) == want);
  }
  const Tensor one = rand({3, 4, 5});
  CHECK(to_vector<float>(make_grid(one)) == to_vector<float>(one));
  CHECK(make_grid(rand({4, 5})).shape() == Shape{3, 4, 5});
}

TEST_CASE("make_grid: normalize moves a range to [0, 1]", "[quick]") {
  const Tensor images = tensor<float>({-1, 3, 1, 0, 2, 5}, {3, 1, 1, 2});
  const auto first_rows = [&](const ImageGridOptions& o) {
    ImageGridOptions bare = o;
    bare.padding = 0;
    bare.nrow = 3;
    const auto grid = to_vector<double>(make_grid(images, bare));
    return std::vector<double>(grid.begin(), grid.begin() + 6);
  };
  const Tolerance exact = {DType::Float32};
  CHECK(difference(first_rows({.normalize = true}), {0, 4 / 6.0, 2 / 6.0, 1 / 6.0, 0.5, 1},
                   exact) == "");
  CHECK(difference(first_rows({.normalize = true, .scale_each = true}), {0, 1, 1, 0, 0, 1},
                   exact) == "");
  const ImageGridOptions given = {.normalize = true, .value_range = std::pair(0.0, 2.0)};
  CHECK(difference(first_rows(given), {0, 1, 0.5, 0, 1, 1}, exact) == "");
  CHECK(to_vector<float>(images) == std::vector<float>{-1, 3, 1, 0, 2, 5});
  const Tensor bytes = make_grid(tensor<uint8_t>({10, 30}, {1, 1, 1, 2}), {.normalize = true});
  CHECK(bytes.dtype() == DType::Float32);
  CHECK(to_vector<float>(bytes)[0] == 0);
  CHECK(difference(std::vector<double>{to_vector<float>(bytes)[1]}, {1}, exact) == "");
}

TEST_CASE("save_image: a file has the grid's bytes", "[quick]") {
  const TempFolder directory;
  const Tensor images =
      tensor<float>({-1, 0, 0.25, 0.5, 1, 7, 0.998, 0.999, 0.1, 0, 0, 1}, {1, 3, 2, 2});
  const std::vector<int64_t> want = {0, 0, 64, 128, 255, 255, 254, 255, 26, 0, 0, 255};
  for (const std::string name : {"a.ppm", "a.png"}) {
    if (name == "a.png" && !reads_pictures("PNG")) continue;
    const auto path = directory / name;
    save_image(images, path);
    const Tensor read = read_image(path.string());
    CHECK(read.shape() == Shape{3, 2, 2});
    CHECK(to_vector<int64_t>(read) == want);
    save_image(read, path);  // bytes stay
    CHECK(to_vector<int64_t>(read_image(path.string())) == want);
  }
}

TEST_CASE("save_image: a PNG's chunks have what their lengths say, and no more", "[quick]") {
  const TempFolder directory;
  save_image(rand({2, 3, 5, 7}), directory / "a.png");
  const Bytes read = read_bytes(directory / "a.png");
  const std::string file(read.begin(), read.end());
  const auto number = [&](size_t at) {
    uint32_t value = 0;
    for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<uint8_t>(file.at(at + i));
    return value;
  };
  std::string names;
  std::string pixels(1 << 16, '\0');
  size_t at = 8;
  while (at < file.size()) {
    const uint32_t length = number(at);
    const auto* content = reinterpret_cast<const Bytef*>(file.data() + at + 4);
    names += file.substr(at + 4, 4) + " ";
    CHECK(crc32(0, content, length + 4) == number(at + 8 + length));
    if (file.substr(at + 4, 4) == "IDAT") {
      uLongf size = pixels.size();
      uLong used = length;
      CHECK(uncompress2(reinterpret_cast<Bytef*>(pixels.data()), &size, content + 4, &used) ==
            Z_OK);
      CHECK(used == length);
      CHECK(size == number(20) * (3 * number(16) + 1));
    }
    at += 12 + length;
  }
  CHECK(at == file.size());
  CHECK(names == "IHDR IDAT IEND ");
}

TEST_CASE("make_grid and save_image refuse what is no image", "[quick]") {
  require_error<ShapeError>("make_grid: shape [2, 2, 3, 3], expected at least one image, of 1 or 3",
                            [] {
                              make_grid(zeros({2, 2, 3, 3}));
                            });
  require_error<ShapeError>("make_grid: shape [0, 3, 2, 2]", [] {
    make_grid(zeros({0, 3, 2, 2}));
  });
  require_error<ShapeError>("make_grid: shape [3], expected", [] { make_grid(zeros({3})); });
  require_error<DTypeError>("make_grid: the images are int64", [] {
    make_grid(zeros({2, 2}, {.dtype = DType::Int64}));
  });
  require_error<Error>("make_grid: nrow is 0", [] { make_grid(zeros({2, 2}), {.nrow = 0}); });
  require_error<Error>("expected a name that ends in .png or .ppm", [] {
    save_image(zeros({2, 2}), "picture.jpg");
  });
}

}  // namespace ringgrad::test::image_grid_test
