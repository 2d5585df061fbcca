#include "ringgrad/core/shape.h"

#include <sstream>

#include "ringgrad/core/device.h"
#include "ringgrad/core/dtype.h"
#include "ringgrad/core/error.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test::shape_test {

TEST_CASE("shapes hold up to eight sizes", "[shape][quick]") {
  Shape shape = {2, 3, 4};
  CHECK(shape.numel() == 24);
  CHECK(shape.back() == 4);
  shape.insert(1, 7);
  CHECK(shape == Shape{2, 7, 3, 4});
  shape.erase(0);
  CHECK(shape == Shape{7, 3, 4});
  shape.push_back(0);
  CHECK(shape.numel() == 0);
  CHECK(Shape{}.numel() == 1);
  CHECK(!(Shape{2, 1} == Shape{2}));
  CHECK(str(Shape{2, 3}) == "[2, 3]");
  CHECK(str(Shape{}) == "[]");

  Shape full = {1, 2, 3, 4, 5, 6, 7, 8};
  require_error<ShapeError>("more than 8 dimensions", [&] { full.push_back(9); });
  require_error<ShapeError>("9 dimensions, at most 8", [] { Shape(std::vector<int64_t>(9, 1)); });
  CHECK(full == Shape{1, 2, 3, 4, 5, 6, 7, 8});
}

TEST_CASE("strides of the two strided orders", "[shape][quick]") {
  CHECK(contiguous_strides({2, 3, 4}) == Strides{12, 4, 1});
  CHECK(contiguous_strides({}) == Strides{});
  CHECK(contiguous_strides({2, 0, 4}) == Strides{4, 4, 1});
  CHECK(channels_last_strides({2, 3, 4, 5}) == Strides{60, 1, 15, 3});
}

TEST_CASE("shapes are broadcast from the right", "[shape][quick]") {
  CHECK(broadcast_shapes("f", {2, 3}, {2, 3}) == Shape{2, 3});
  CHECK(broadcast_shapes("f", {2, 1, 4}, {3, 1}) == Shape{2, 3, 4});
  CHECK(broadcast_shapes("f", {}, {5}) == Shape{5});
  CHECK(broadcast_shapes("f", {5}, {2, 1}) == Shape{2, 5});
  CHECK(broadcast_shapes("f", {1}, {0}) == Shape{0});
  require_error<ShapeError>(
      "f: shapes [2, 3] and [3, 3] cannot be broadcast: dimension -2 has sizes 2 and 3", [] {
        broadcast_shapes("f", {2, 3}, {3, 3});
      });
  require_error<ShapeError>("has sizes 0 and 2", [] { broadcast_shapes("f", {0}, {2}); });
}

TEST_CASE("dimensions count from either end", "[shape][quick]") {
  CHECK(normalize_dim("f", 0, 3) == 0);
  CHECK(normalize_dim("f", -1, 3) == 2);
  CHECK(normalize_dim("f", -3, 3) == 0);
  require_error<IndexError>(
      "f: dimension 3 is out of range for a tensor of 3 dimensions, expected -3 to 2",
      [] { normalize_dim("f", 3, 3); });
  require_error<IndexError>("f: dimension -4 is out of range", [] { normalize_dim("f", -4, 3); });
  require_error<IndexError>("f: dimension 0 is out of range", [] { normalize_dim("f", 0, 0); });
}

TEST_CASE("devices are read from text and checked", "[shape][quick]") {
  CHECK(Device("cpu") == Device(DeviceType::CPU, 0));
  CHECK(Device("cuda:3") == Device(DeviceType::CUDA, 3));
  CHECK(str(Device("cpu:1")) == "cpu:1");
  for (const char* text :
       {"", "gpu", "cpu:", "cpu:x", "cpu:-1", "cpu:1x", "cpu:64", "cuda:99999999999"})
    require_error<DeviceError>(
        "device: cannot read '" + std::string(text) + "', expected cpu, cpu:1, cuda or cuda:1",
        [&] { Device{text}; });
  require_error<DeviceError>("f: device cpu:9 does not exist, expected an index below",
                             [] { check_device("f", Device("cpu:9")); });
}

TEST_CASE("dtypes know their size, name and kind", "[shape][quick]") {
  CHECK(itemsize(DType::Float64) == 8);
  CHECK(itemsize(DType::BFloat16) == 2);
  CHECK(itemsize(DType::Bool) == 1);
  CHECK(str(DType::Float16) == "float16");
  CHECK(is_floating(DType::BFloat16));
  CHECK(!is_floating(DType::Int32));
  const auto size_of = [](DType dtype) {
    return visit_dtype("f", dtype, []<class T>() { return sizeof(T); });
  };
  for (DType dtype : {DType::Float32, DType::Float64, DType::BFloat16, DType::Float16, DType::Int64,
                      DType::Int32, DType::UInt8, DType::Bool})
    CHECK(size_of(dtype) == itemsize(dtype));
  require_error<DTypeError>("f: unsupported dtype int64, expected a floating dtype",
                            [] { visit_floating("f", DType::Int64, []<class T>() {}); });
}

}  // namespace ringgrad::test::shape_test
