#include "ringgrad/core/tensor.h"

#include <sstream>

#include "ringgrad/core/device/allocator.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/random.h"
#include "ringgrad/core/sequences.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test::tensor_test {

TEST_CASE("tensors name arrays: copies are handles, detach and as_strided share the storage",
          "[tensor][quick]") {
  const Tensor x = tensor<float>({0, 1, 2, 3, 4, 5}, {2, 3});
  const Tensor same = x;
  const Tensor alias = x.detach();
  const Tensor column = x.as_strided({2}, {3}, 1);
  CHECK(x.shares_memory_with(same));
  CHECK(x.shares_memory_with(alias));
  CHECK(to_vector<float>(column) == std::vector<float>{1, 4});
  fill_(column, 9);
  CHECK(to_vector<float>(x) == std::vector<float>{0, 9, 2, 3, 9, 5});
  CHECK(to_vector<float>(alias) == to_vector<float>(same));
}

TEST_CASE("a sole owner is a handle that nobody else's writes can reach", "[tensor][quick]") {
  Tensor x = zeros({2, 3});
  CHECK(x.is_sole_owner());
  {
    const Tensor same = x;
    CHECK(!x.is_sole_owner());
  }
  {
    const Tensor view = x.as_strided({2}, {3}, 0);
    CHECK(!x.is_sole_owner());
    CHECK(!view.is_sole_owner());
  }
  CHECK(x.is_sole_owner());
}

TEST_CASE("memory order: contiguous, channels-last, flat and gaps", "[tensor][quick]") {
  const Tensor x = zeros({2, 3, 4, 5});
  CHECK(x.is_contiguous());
  CHECK(!x.is_channels_last());
  CHECK(x.flat_numel() == 120);

  const Tensor nhwc = empty({2, 3, 4, 5}, {.layout = Layout::ChannelsLast});
  CHECK(!nhwc.is_contiguous());
  CHECK(nhwc.is_channels_last());
  CHECK(nhwc.flat_numel() == 120);
  CHECK(empty_like(nhwc).is_channels_last());

  CHECK(x.as_strided({3, 2}, {1, 3}, 0).flat_numel() == 6);  // transposed: dense in another order
  CHECK(x.as_strided({2, 2}, {3, 1}, 0).flat_numel() == 0);  // a gap
  CHECK(x.as_strided({2, 3}, {0, 1}, 0).flat_numel() == 0);  // rows share their place
  CHECK(x.as_strided({1, 3}, {77, 1}, 0).is_contiguous());   // the stride of a size 1 says nothing
  CHECK(empty_like(x.as_strided({2, 2}, {3, 1}, 0)).is_contiguous());
  CHECK(zeros({2, 0, 3}).is_contiguous());

  const Tensor blocked = empty({2, 17, 4, 5}, {.layout = Layout::ChannelBlocked});
  CHECK(!blocked.is_contiguous());
  CHECK(blocked.flat_numel() == 2 * 32 * 4 * 5);  // the padding to whole blocks counts
  CHECK(blocked.storage()->nbytes() == 2 * 32 * 4 * 5 * sizeof(float));
  CHECK(blocked.nbytes() == static_cast<size_t>(blocked.numel()) * sizeof(float));
  CHECK(empty_like(blocked).layout() == Layout::ChannelBlocked);
}

TEST_CASE("elements are reached as their own type only, and single ones with item()",
          "[tensor][quick]") {
  const Tensor x = tensor<double>({1.5});
  CHECK(x.data<double>()[0] == 1.5);
  CHECK(x.item<float>() == 1.5f);
  CHECK(x.item<int64_t>() == 1);
  CHECK(x.item<bool>());
  CHECK(x.item<bfloat16>() == bfloat16(1.5f));
  require_error<DTypeError>(
      "data: the tensor has dtype float64, and its elements were asked for as float32",
      [&] { x.data<float>(); });
  require_error<ShapeError>("item: the tensor has shape [2, 1], expected one element", [] {
    zeros({2, 1}).item<float>();
  });
  require_error<IndexError>(
      "size: dimension 2 is out of range for a tensor of 2 dimensions, expected -2 to 1", [] {
        zeros({2, 1}).size(2);
      });
  CHECK(zeros({2, 5}).size(-1) == 5);
  CHECK(zeros({2, 5}).stride(0) == 5);
}

TEST_CASE("factories check the shapes they are given", "[tensor][quick]") {
  CHECK(to_vector<double>(full({3}, 2.5)) == std::vector<double>{2.5, 2.5, 2.5});
  CHECK(to_vector<int64_t>(arange(4)) == std::vector<int64_t>{0, 1, 2, 3});
  CHECK(arange(0).shape() == Shape{0});
  CHECK(scalar(3).shape() == Shape{});
  CHECK(to_vector<float>(ones_like(zeros({2}))) == std::vector<float>{1, 1});
  require_error<ShapeError>("tensor: 3 values for shape [2, 2], expected 4", [] {
    tensor<float>({1, 2, 3}, {2, 2});
  });
  require_error<ShapeError>("empty: shape [2, -1] has a negative size", [] { zeros({2, -1}); });
  require_error<ShapeError>("has too many elements", [] {
    zeros({int64_t{1} << 32, int64_t{1} << 32});
  });
  require_error<ShapeError>("the channel-blocked layout needs 4 dimensions, the shape is [2, 3]",
                            [] {
                              zeros({2, 3}, {.layout = Layout::ChannelBlocked});
                            });
  require_error<DeviceError>("does not exist", [] { zeros({2}, {.device = Device("cpu:63")}); });
  for (const int index : {-1, 100, 256}) {
    const Device device(DeviceType::CPU, index);
    require_error<DeviceError>("does not exist", [&] { zeros({2}, {.device = device}); });
    require_error<DeviceError>("does not exist", [&] { memory_stats(device); });
  }
  require_error<ShapeError>("arange: -1 numbers, expected at least 0", [] { arange(-1); });
  require_error<DTypeError>("full: the tensor is uint8, which cannot hold the number 300",
                            [] { full({2}, 300, {.dtype = DType::UInt8}); });
  require_error<DTypeError>("full: the tensor is int64, which cannot hold the number nan",
                            [] { full({2}, NAN, {.dtype = DType::Int64}); });
  require_error<DTypeError>("fill_: the tensor is int32",
                            [] { fill_(zeros({2}, {.dtype = DType::Int32}), 0x1p31); });
  CHECK(full({}, -0x1p31, {.dtype = DType::Int32}).item<int64_t>() == INT32_MIN);
  CHECK(full({}, NAN, {.dtype = DType::Bool}).item<int64_t>() == 1);
  require_error<OutOfMemoryError>("more than any machine has",
                                  [] { empty({int64_t{1} << 55}, {.dtype = DType::Float64}); });
}

TEST_CASE("set_data moves every handle to another array and keeps the shape", "[tensor][quick]") {
  const Tensor x = zeros({2, 2});
  const Tensor handle = x;
  const Tensor arena = tensor<float>({7, 1, 2, 3, 4}, {5});
  x.set_data(arena.as_strided({2, 2}, {2, 1}, 1));
  CHECK(to_vector<float>(handle) == std::vector<float>{1, 2, 3, 4});
  CHECK(handle.shares_memory_with(arena));
  CHECK(handle.is_same(x));
  x.set_data(ones({2, 2}, {.dtype = DType::Float64}));
  CHECK(handle.dtype() == DType::Float64);
  require_error<ShapeError>("set_data: the new data has shape [5], the tensor has [2, 2]",
                            [&] { x.set_data(arena); });
}

TEST_CASE("set_data keeps a gradient valid", "[tensor][quick]") {
  const Tensor x = zeros({2});
  const Tensor whole = tensor<int64_t>({1, 2});
  const Tensor wide = ones({2}, {.dtype = DType::Float64});
  x.set_requires_grad();
  require_error<DTypeError>(
      "set_data: the new data has dtype int64, and the tensor requires a gradient",
      [&] { x.set_data(whole); });
  x.set_grad(ones({2}));
  require_error<DTypeError>(
      "set_data: the new data has dtype float64, the tensor's gradient float32",
      [&] { x.set_data(wide); });
  CHECK(x.dtype() == DType::Float32);
  x.set_data(ones({2}));
  x.set_grad({});
  x.set_data(wide);
  CHECK(x.dtype() == DType::Float64);
}

TEST_CASE("an undefined tensor says so whatever it is asked for", "[tensor][quick]") {
  const Tensor none;
  const Tensor x = Tensor(zeros({2})).set_requires_grad();
  require_error<Error>("to_vector: the source is an undefined tensor",
                       [&] { to_vector<float>(x.grad()); });
  require_error<Error>("a gradient is undefined until backward() has reached its leaf",
                       [&] { x.grad().item<float>(); });
  require_error<Error>("item: asked of an undefined tensor", [&] { none.item<float>(); });
  require_error<Error>("dim: asked of an undefined tensor", [&] { none.dim(); });
  require_error<Error>("nbytes: asked of an undefined tensor", [&] { none.nbytes(); });
  require_error<Error>("size: asked of an undefined tensor", [&] { none.size(0); });
  require_error<Error>("data: asked of an undefined tensor", [&] { none.data<float>(); });
  require_error<Error>("detach: asked of an undefined tensor", [&] { none.detach(); });
  require_error<Error>("asked of an undefined tensor", [&] { none.requires_grad(); });
  require_error<Error>("zeros_like: the model is an undefined tensor", [&] { zeros_like(none); });
  require_error<Error>("set_data: asked of an undefined tensor", [&] { none.set_data(x); });
  require_error<Error>("set_data: the new data is an undefined tensor", [&] { x.set_data(none); });
}

TEST_CASE("a view beyond its storage is refused, at any offset", "[tensor][quick]") {
  const Tensor x = zeros({4});
  for (const int64_t offset : {int64_t{-1}, int64_t{3}, INT64_MIN, INT64_MAX})
    require_error<ShapeError>("as_strided: shape [2] with strides [1] from element",
                              [&] { x.as_strided({2}, {1}, offset); });
  const auto refuses = [&](const Shape& shape, const Strides& strides, const char* why) {
    require_error<ShapeError>(why, [&] { x.as_strided(shape, strides, 0); });
  };
  const char* outside = "expected a stride for each size and all elements inside";
  refuses({5}, {INT64_MAX / 2 + 1}, outside);  // the last element's place is 2^64
  refuses({2}, {INT64_MIN}, outside);
  refuses({2, 2}, {1}, outside);
  refuses({INT64_MAX, INT64_MAX}, {1, 1}, "too many elements");
  refuses({int64_t{1} << 32, int64_t{1} << 32}, {0, 0}, "too many elements");  // 2^64 in one place
  refuses({-1, -1}, {1, 1}, "negative size");
  CHECK(x.as_strided({0, 4}, {INT64_MAX, INT64_MAX}, 0).numel() == 0);
  CHECK(x.as_strided({2}, {1}, 2).storage_offset() == 2);
  CHECK(x.as_strided({2}, {-1}, 1).numel() == 2);
}

TEST_CASE("in-place writes raise the version that all views share", "[tensor][quick]") {
  const Tensor x = zeros({4});
  const Tensor view = x.as_strided({2}, {1}, 0);
  const uint32_t before = x.storage()->version();
  fill_(view, 1);
  CHECK(x.storage()->version() == before + 1);
  copy_(x, ones({4}));
  CHECK(view.storage()->version() == before + 2);
  require_error<ShapeError>(
      "copy_: the destination has shape [4], the source [2], expected equal shapes",
      [&] { copy_(x, zeros({2})); });
}

TEST_CASE("writes refuse undefined tensors", "[tensor][quick]") {
  require_error<Error>("fill_: the destination is an undefined tensor", [] { fill_({}, 1); });
  require_error<Error>("copy_: the destination is an undefined tensor", [] { copy_({}, {}); });
  require_error<Error>("copy_: the source is an undefined tensor", [] { copy_(zeros({1}), {}); });
  require_error<Error>("normal_: the destination is an undefined tensor",
                       [] { normal_({}, 0, 1); });
}

TEST_CASE("arange refuses numbers that do not fit", "[tensor][quick]") {
  CHECK(to_vector<uint8_t>(arange(256, {.dtype = DType::UInt8})).back() == 255);
  require_error<DTypeError>("arange: the tensor is uint8, which cannot hold the number 299",
                            [] { arange(300, {.dtype = DType::UInt8}); });
  require_error<ShapeError>("empty: shape [4611686018427387904] has too many elements",
                            [] { arange(int64_t{1} << 62); });
}

TEST_CASE("a storage of somebody else's bytes gives them back once", "[tensor][quick]") {
  float bytes[4] = {1, 2, 3, 4};
  int released = 0;
  {
    Tensor x(std::make_shared<Storage>(bytes, sizeof bytes, Device(), [&] { ++released; }), {2, 2},
             {2, 1}, 0, DType::Float32);
    const Tensor view = x.as_strided({2}, {1}, 2);
    x = Tensor();
    CHECK(released == 0);
    CHECK(to_vector<float>(view) == std::vector<float>{3, 4});
  }
  CHECK(released == 1);
}

TEST_CASE("tensors print their elements, shape, dtype and device", "[tensor][quick]") {
  const auto printed = [](const Tensor& x) {
    std::ostringstream out;
    out << x;
    return out.str();
  };
  CHECK(printed(tensor<float>({1, 2.5, -3, 0}, {2, 2})) ==
        "[[1, 2.5],\n [-3, 0]]\n[2, 2] float32 cpu:0");
  CHECK(printed(tensor<int64_t>({})) == "[]\n[0] int64 cpu:0");
  CHECK(printed(scalar(2)) == "2\n[] float32 cpu:0");
  CHECK(printed(Tensor()) == "undefined tensor");
  CHECK(printed(tensor<int64_t>({199997, 123456})) == "[199997, 123456]\n[2] int64 cpu:0");
  // No double.
  CHECK(printed(tensor<int64_t>({9007199254740993})) == "[9007199254740993]\n[1] int64 cpu:0");
  CHECK(printed(arange(2000)) == "[0, 1, 2, …, 1997, 1998, 1999]\n[2000] int64 cpu:0");
}

TEST_CASE("conversions between dtypes round to nearest, ties to even", "[tensor][quick]") {
  const auto through = [](DType dtype, double value) {
    const Tensor narrow = empty({1}, {.dtype = dtype});
    copy_(narrow, tensor<float>({static_cast<float>(value)}));
    return to_vector<float>(narrow)[0];
  };
  CHECK(through(DType::Float16, 2049) == 2048);  // between 2048 and 2050: to even
  CHECK(through(DType::Float16, 2051) == 2052);
  CHECK(through(DType::Float16, 65519) == 65504);
  CHECK(std::isinf(through(DType::Float16, 65520)));
  CHECK(through(DType::Float16, 0x1p-24) == 0x1p-24f);  // the smallest subnormal
  CHECK(through(DType::Float16, 0x1p-26) == 0);
  CHECK(through(DType::BFloat16, 257) == 256);
  CHECK(through(DType::BFloat16, 259) == 260);
  CHECK(std::isnan(through(DType::BFloat16, NAN)));
  CHECK(std::isnan(through(DType::Float16, NAN)));
  CHECK(through(DType::Float16, -0.1) == through(DType::Float16, 0.1) * -1);
}

}  // namespace ringgrad::test::tensor_test
