// Each of Hopper's instructions against plain loops.
#include "ringgrad/tests/cuda/emulator_hopper.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/cuda/emulator_hopper_kernels.cu"

namespace ringgrad::test::emulator_hopper_test {

namespace {

std::vector<uint16_t> numbers(size_t n) {
  std::vector<uint16_t> values(n);
  for (size_t i = 0; i < n; ++i) values[i] = static_cast<uint16_t>(i + 1);
  return values;
}

// Returns the byte of a tile at which TMA puts byte `at` of a box. In the PTX ISA's pictures chunks
// of 16 bytes change places by bit 7 of the address, by bits 7 and 8, or by bits 7 to 9.
size_t swizzled_place(size_t at, CUtensorMapSwizzle swizzle) {
  const size_t mask = swizzle == CU_TENSOR_MAP_SWIZZLE_NONE  ? 0
                      : swizzle == CU_TENSOR_MAP_SWIZZLE_32B ? 1
                      : swizzle == CU_TENSOR_MAP_SWIZZLE_64B ? 3
                                                             : 7;
  return at ^ (at / 128 % 8 & mask) * 16;
}

struct BoxCase {
  std::vector<cuuint64_t> sizes;
  std::vector<cuuint32_t> box;
  std::vector<cuuint32_t> steps;
  Place place;
  CUtensorMapSwizzle swizzle;
};

// The index in the tensor of each element of the box in its order, or -1 outside.
std::vector<int64_t> elements_of(const BoxCase& c) {
  std::vector<int64_t> found;
  const size_t rank = c.sizes.size();
  std::vector<int64_t> counts(rank, 1);
  int64_t all = 1;
  for (size_t d = 0; d < rank; ++d) all *= counts[d] = (c.box[d] + c.steps[d] - 1) / c.steps[d];
  for (int64_t i = 0; i < all; ++i) {
    int64_t rest = i;
    int64_t index = 0;
    int64_t stride = 1;
    bool inside = true;
    for (size_t d = 0; d < rank; ++d) {
      const int64_t x = c.place.at[d] + rest % counts[d] * c.steps[d];
      rest /= counts[d];
      inside = inside && x >= 0 && x < static_cast<int64_t>(c.sizes[d]);
      index += x * stride;
      stride *= static_cast<int64_t>(c.sizes[d]);
    }
    found.push_back(inside ? index : -1);
  }
  return found;
}

size_t count_of(const std::vector<cuuint64_t>& sizes) {
  size_t n = 1;
  for (const cuuint64_t size : sizes) n *= size;
  return n;
}

MapOf map_of(const BoxCase& c, void* address) {
  return {.address = address,
          .type = CU_TENSOR_MAP_DATA_TYPE_UINT16,
          .element_bytes = 2,
          .sizes = c.sizes,
          .box = c.box,
          .swizzle = c.swizzle,
          .steps = c.steps};
}

const std::vector<BoxCase> kBoxes = {
    {{512}, {256}, {1}, {1, {300}}, CU_TENSOR_MAP_SWIZZLE_NONE},
    {{64, 20}, {32, 8}, {1, 1}, {2, {16, 3}}, CU_TENSOR_MAP_SWIZZLE_NONE},
    {{64, 20}, {64, 16}, {1, 1}, {2, {0, 0}}, CU_TENSOR_MAP_SWIZZLE_128B},
    {{72, 20}, {64, 24}, {1, 1}, {2, {-5, -3}}, CU_TENSOR_MAP_SWIZZLE_128B},
    {{72, 20}, {64, 24}, {1, 1}, {2, {41, 3}}, CU_TENSOR_MAP_SWIZZLE_128B},
    {{32, 9, 5}, {32, 4, 3}, {1, 1, 1}, {3, {0, 7, 3}}, CU_TENSOR_MAP_SWIZZLE_64B},
    {{16, 9, 5}, {16, 9, 2}, {1, 1, 1}, {3, {0, -1, 4}}, CU_TENSOR_MAP_SWIZZLE_32B},
    {{64, 6, 5, 3}, {64, 8, 7, 1}, {1, 1, 1, 1}, {4, {0, -1, -1, 2}}, CU_TENSOR_MAP_SWIZZLE_128B},
    {{64, 9, 8, 3}, {64, 8, 4, 2}, {1, 2, 2, 1}, {4, {0, -1, 1, 1}}, CU_TENSOR_MAP_SWIZZLE_128B},
    {{8, 3, 4, 3, 2},
     {8, 2, 3, 2, 2},
     {1, 1, 1, 1, 1},
     {5, {0, 1, -1, 2, 1}},
     CU_TENSOR_MAP_SWIZZLE_NONE},
};

size_t bytes_of_box(const BoxCase& c) { return elements_of(c).size() * 2; }

constexpr size_t kMbarrierBytes = 64;

}  // namespace

TEST_CASE("emulator: tensor copies load boxes, clipped and swizzled", "[quick][cuda]") {
  const ScheduleGuard guard(GENERATE(Schedule::Forward, Schedule::Reversed, Schedule::Random));
  for (const BoxCase& c : kBoxes) {
    const auto x = numbers(count_of(c.sizes));
    const DeviceArray<uint16_t> device_x(x);
    const size_t bytes = bytes_of_box(c);
    const DeviceArray<uint16_t> out(bytes / 2);
    run(load_kernel, 1, 64, bytes + kMbarrierBytes + kSharedSlack,
        tiled_map(map_of(c, device_x.get())), c.place, static_cast<int>(bytes), out.get());
    const auto tile = out.values();
    const auto elements = elements_of(c);
    for (size_t i = 0; i < elements.size(); ++i) {
      const size_t at = swizzled_place(2 * i, c.swizzle) / 2;
      REQUIRE(tile[at] == (elements[i] < 0 ? 0 : x[static_cast<size_t>(elements[i])]));
    }
  }
}

TEST_CASE("emulator: tensor copies store what is inside of the tensor", "[quick][cuda]") {
  const ScheduleGuard guard(GENERATE(Schedule::Forward, Schedule::Reversed, Schedule::Random));
  for (const BoxCase& c : kBoxes) {
    const size_t bytes = bytes_of_box(c);
    const auto tile = numbers(bytes / 2);
    const DeviceArray<uint16_t> device_tile(tile);
    const DeviceArray<uint16_t> y(std::vector<uint16_t>(count_of(c.sizes), 0));
    run(store_kernel, 1, 32, bytes + kMbarrierBytes + kSharedSlack, tiled_map(map_of(c, y.get())),
        c.place, static_cast<int>(bytes), device_tile.get(), false);
    std::vector<uint16_t> expected(count_of(c.sizes), 0);
    const auto elements = elements_of(c);
    for (size_t i = 0; i < elements.size(); ++i)
      if (elements[i] >= 0)
        expected[static_cast<size_t>(elements[i])] = tile[swizzled_place(2 * i, c.swizzle) / 2];
    REQUIRE(y.values() == expected);
  }
}

TEST_CASE("emulator: a tensor copy adds to what is there", "[quick][cuda]") {
  const auto x = noise(64 * 8, 1);
  const auto y = noise(64 * 8, 2);
  const DeviceArray<__nv_bfloat16> device_x(rounded<__nv_bfloat16>(x));
  const DeviceArray<__nv_bfloat16> device_y(rounded<__nv_bfloat16>(y));
  const CUtensorMap map = tiled_map({.address = device_y.get(),
                                     .sizes = {64, 8},
                                     .box = {64, 8},
                                     .swizzle = CU_TENSOR_MAP_SWIZZLE_NONE});
  run(store_kernel, 1, 32, 1024 + kMbarrierBytes + kSharedSlack, map, Place{2, {0, 0}}, 1024,
      reinterpret_cast<const uint16_t*>(device_x.get()), true);
  const auto sums = device_y.values();
  for (size_t i = 0; i < x.size(); ++i) REQUIRE(static_cast<float>(sums[i]) == x[i] + y[i]);
}

TEST_CASE("emulator: im2col copies walk through the pixels of a filter's tap", "[quick][cuda]") {
  struct Case {
    int width;
    int height;
    int stride;
    int pad;
    int filter;
    int pixels;
  };
  const auto c = GENERATE(Case{7, 5, 1, 1, 3, 32}, Case{8, 8, 2, 1, 3, 24}, Case{9, 6, 2, 0, 1, 30},
                          Case{6, 6, 1, 0, 3, 40});
  const ScheduleGuard guard(GENERATE(Schedule::Forward, Schedule::Random));
  constexpr int kImages = 3;
  constexpr int kChannels = 16;
  const auto x = numbers(static_cast<size_t>(kChannels * c.width * c.height * kImages));
  const DeviceArray<uint16_t> device_x(x);
  const auto size = [](int n) { return static_cast<cuuint64_t>(n); };
  const cuuint64_t sizes[] = {kChannels, size(c.width), size(c.height), kImages};
  const cuuint64_t strides[] = {2 * kChannels, 2 * kChannels * size(c.width),
                                2 * kChannels * size(c.width) * size(c.height)};
  const int lower[] = {-c.pad, -c.pad};
  const int upper[] = {c.pad - c.filter + 1, c.pad - c.filter + 1};
  const cuuint32_t steps[] = {1, static_cast<cuuint32_t>(c.stride),
                              static_cast<cuuint32_t>(c.stride), 1};
  CUtensorMap map;
  expect_map(
      cuTensorMapEncodeIm2col(&map, CU_TENSOR_MAP_DATA_TYPE_UINT16, 4, device_x.get(), sizes,
                              strides, lower, upper, kChannels, static_cast<cuuint32_t>(c.pixels),
                              steps, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_32B,
                              CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE));
  const int out_width = (c.width + 2 * c.pad - c.filter) / c.stride + 1;
  const int out_height = (c.height + 2 * c.pad - c.filter) / c.stride + 1;
  const size_t bytes = static_cast<size_t>(c.pixels) * kChannels * 2;
  const DeviceArray<uint16_t> out(bytes / 2);
  for (int tap = 0; tap < c.filter * c.filter; ++tap) {
    const int first = 5;  // an output pixel in the middle of a row
    Place place{4,
                {0, first % out_width * c.stride - c.pad, first / out_width * c.stride - c.pad, 1}};
    place.offset_w = tap % c.filter;
    place.offset_h = tap / c.filter;
    run(load_kernel, 1, 32, bytes + kMbarrierBytes + kSharedSlack, map, place,
        static_cast<int>(bytes), out.get());
    const auto tile = out.values();
    for (int pixel = 0; pixel < c.pixels; ++pixel) {
      const int number = first + pixel;
      const int image = 1 + number / (out_width * out_height);
      const int row = number / out_width % out_height * c.stride - c.pad + place.offset_h;
      const int column = number % out_width * c.stride - c.pad + place.offset_w;
      const bool inside =
          image < kImages && row >= 0 && row < c.height && column >= 0 && column < c.width;
      for (int channel = 0; channel < kChannels; ++channel) {
        const auto at = static_cast<size_t>(pixel * kChannels + channel);
        const auto from = static_cast<size_t>(
            inside ? ((image * c.height + row) * c.width + column) * kChannels + channel : 0);
        REQUIRE(tile[swizzled_place(2 * at, CU_TENSOR_MAP_SWIZZLE_32B) / 2] ==
                (inside ? x[from] : 0));
      }
    }
  }
}

// ---- products -----------------------------------------------------------------------------------

namespace {

struct OperandMap {
  CUtensorMap map;
  OperandBoxes boxes;
  int elements;
};

// An operand of `rows` of M or N and K elements, which lies [rows, K], or [K, rows] transposed.
template <class T>
OperandMap operand(void* data, int rows, bool transposed, Swizzle swizzle) {
  const int size = sizeof(T);
  const int depth = 32 / size;
  const int span = swizzle == Swizzle::None ? 16 : 256 >> static_cast<int>(swizzle);
  const int per_span = span / size;
  const int inner = transposed ? rows : std::max(depth, per_span);
  const int outer = transposed ? depth : rows;
  OperandBoxes o{.boxes = (inner + per_span - 1) / per_span,
                 .rows = outer,
                 .bytes = outer * span,
                 .leading = static_cast<unsigned>(outer * span),
                 .stride = static_cast<unsigned>(8 * span),
                 .swizzle = swizzle};
  if (transposed && swizzle == Swizzle::None) std::swap(o.leading, o.stride);
  const CUtensorMapSwizzle swizzles[] = {CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                         CU_TENSOR_MAP_SWIZZLE_64B, CU_TENSOR_MAP_SWIZZLE_32B};
  const MapOf of{
      .address = data,
      .type = size == 4 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT32 : CU_TENSOR_MAP_DATA_TYPE_UINT16,
      .element_bytes = size,
      .sizes = {static_cast<cuuint64_t>(inner), static_cast<cuuint64_t>(outer)},
      .box = {static_cast<cuuint32_t>(per_span), static_cast<cuuint32_t>(outer)},
      .swizzle = swizzles[static_cast<int>(swizzle)]};
  return {tiled_map(of), o, per_span};
}

template <class T, int kColumns, int kTransA, int kTransB>
void check_product(Swizzle swizzle_a, Swizzle swizzle_b, bool accumulate) {
  const int depth = 32 / static_cast<int>(sizeof(T));
  const auto span_of = [](Swizzle s) {
    return s == Swizzle::None ? 16 : 256 >> static_cast<int>(s);
  };
  const int pitch_a = std::max(depth, span_of(swizzle_a) / static_cast<int>(sizeof(T)));
  const int pitch_b = std::max(depth, span_of(swizzle_b) / static_cast<int>(sizeof(T)));
  const auto a = noise(static_cast<size_t>(64 * std::max(depth, pitch_a)), 5);
  const auto b = noise(static_cast<size_t>(kColumns * std::max(depth, pitch_b)), 6);
  const DeviceArray<T> device_a(rounded<T>(a));
  const DeviceArray<T> device_b(rounded<T>(b));
  const DeviceArray<float> out(64 * kColumns);
  const auto map_a = operand<T>(device_a.get(), 64, kTransA != 0, swizzle_a);
  const auto map_b = operand<T>(device_b.get(), kColumns, kTransB != 0, swizzle_b);
  run(wgmma_kernel<T, kColumns, kTransA, kTransB>, 1, 128,
      16384 * 4 + kMbarrierBytes + kSharedSlack, map_a.map, map_b.map, map_a.boxes, map_b.boxes,
      map_a.elements, map_b.elements, out.get(), accumulate ? 1 : 0);
  const auto d = out.values();
  for (int m = 0; m < 64; ++m)
    for (int n = 0; n < kColumns; ++n) {
      double sum = accumulate ? 1 : 0;
      for (int k = 0; k < depth; ++k)
        sum += double{a[static_cast<size_t>(kTransA ? k * 64 + m : m * pitch_a + k)]} *
               b[static_cast<size_t>(kTransB ? k * kColumns + n : n * pitch_b + k)];
      REQUIRE(d[static_cast<size_t>(m * kColumns + n)] == static_cast<float>(sum));
    }
}

template <class T, int kColumns>
void check_layouts() {
  const ScheduleGuard guard(GENERATE(Schedule::Forward, Schedule::Reversed, Schedule::Random));
  for (const auto swizzle :
       {Swizzle::None, Swizzle::Bytes32, Swizzle::Bytes64, Swizzle::Bytes128}) {
    INFO("swizzle " << static_cast<int>(swizzle));
    check_product<T, kColumns, 0, 0>(swizzle, Swizzle::Bytes128, false);
    check_product<T, kColumns, 0, 0>(Swizzle::Bytes128, swizzle, true);
    if constexpr (sizeof(T) == 2) {
      check_product<T, kColumns, 1, 0>(swizzle, Swizzle::Bytes32, false);
      check_product<T, kColumns, 0, 1>(Swizzle::Bytes64, swizzle, true);
      check_product<T, kColumns, 1, 1>(swizzle, swizzle, false);
    }
  }
}

}  // namespace

TEST_CASE("emulator: wgmma of every layout: bfloat16, 64 columns", "[quick][cuda]") {
  check_layouts<__nv_bfloat16, 64>();
}
TEST_CASE("emulator: wgmma of every layout: float16, 136 columns", "[quick][cuda]") {
  check_layouts<__half, 136>();
}
TEST_CASE("emulator: wgmma of every layout: tf32, 8 columns", "[quick][cuda]") {
  check_layouts<float, 8>();
}
TEST_CASE("emulator: wgmma of 256 columns", "[quick][cuda]") {
  check_product<__half, 256, 0, 1>(Swizzle::Bytes128, Swizzle::Bytes128, false);
}

TEST_CASE("emulator: wgmma with a in registers", "[quick][cuda]") {
  constexpr int kColumns = 24;
  const auto a = noise(64 * 16, 7);
  const auto b = noise(kColumns * 16, 8);
  const DeviceArray<__half> device_a(rounded<__half>(a));
  const DeviceArray<__half> device_b(rounded<__half>(b));
  const DeviceArray<float> out(64 * kColumns);
  const auto map = operand<__half>(device_b.get(), kColumns, false, Swizzle::Bytes32);
  run(wgmma_registers_kernel<__half, kColumns>, 1, 128, 16384 + kMbarrierBytes + kSharedSlack,
      map.map, reinterpret_cast<const uint16_t*>(device_a.get()), out.get());
  const auto d = out.values();
  for (int m = 0; m < 64; ++m)
    for (int n = 0; n < kColumns; ++n) {
      double sum = 0;
      for (int k = 0; k < 16; ++k)
        sum += double{a[static_cast<size_t>(m * 16 + k)]} * b[static_cast<size_t>(n * 16 + k)];
      REQUIRE(d[static_cast<size_t>(m * kColumns + n)] == static_cast<float>(sum));
    }
}

// ---- warps, blocks, clusters --------------------------------------------------------------------

TEST_CASE("emulator: stmatrix is the reverse of ldmatrix", "[quick][cuda]") {
  for (const int matrices : {2, 4})
    for (const bool transpose : {false, true}) {
      const DeviceArray<uint16_t> out(static_cast<size_t>(matrices) * 64);
      run(transpose ? stmatrix_kernel<true> : stmatrix_kernel<false>, 1, 32, 512 + kSharedSlack,
          out.get(), matrices);
      const auto values = out.values();
      for (int matrix = 0; matrix < matrices; ++matrix)
        for (int row = 0; row < 8; ++row)
          for (int column = 0; column < 8; ++column) {
            const int r = transpose ? column : row;
            const int c = transpose ? row : column;
            REQUIRE(values[static_cast<size_t>(matrix * 64 + row * 8 + column)] ==
                    (r * 4 + c / 2) * 8 + matrix * 2 + c % 2);
          }
    }
}

TEST_CASE("emulator: barriers of roles, and one elected lane", "[quick][cuda]") {
  const ScheduleGuard guard(GENERATE(Schedule::Forward, Schedule::Reversed, Schedule::Random));
  const DeviceArray<int> counts(std::vector<int>(2, 0));
  run(elect_kernel, 1, 64, 0, counts.get());
  REQUIRE(counts.values() == std::vector<int>{1, 1});
  const DeviceArray<int> out(32);
  run(arrive_kernel, 1, 128, 512, out.get(), true);
  REQUIRE(out.values() == std::vector<int>(32, (32 + 127) * 96 / 2));
  run(roles_kernel, 1, 64, 0, out.get());
  REQUIRE(out.values() == std::vector<int>(32, 7));
  run(try_wait_kernel, 1, 64, 64 + kSharedSlack, out.get());
  REQUIRE(out.values() == std::vector<int>(32, 1));
}

TEST_CASE("emulator: a thread that does not wait at a named barrier reads too early",
          "[quick][cuda][unchecked]") {
  const DeviceArray<int> out(32);
  run(arrive_kernel, 1, 128, 512, out.get(), false);
  REQUIRE(out.values() != std::vector<int>(32, (32 + 127) * 96 / 2));
}

TEST_CASE("emulator: dynamic shared memory is aligned to 16 bytes and no more", "[quick][cuda]") {
  const DeviceArray<unsigned> out(3);
  run(alignment_kernel, 1, 1, 16 + kSharedSlack, out.get());
  REQUIRE(out.values() == std::vector<unsigned>{16, 0, 0});
}

TEST_CASE("emulator: bulk copies", "[quick][cuda]") {
  const DeviceArray<float> x(noise(256, 1));
  const DeviceArray<float> y(256);
  run(bulk_kernel, 1, 32, 1024 + kMbarrierBytes + kSharedSlack, x.get(), y.get(), 1024u);
  REQUIRE(y.values() == x.values());
}

TEST_CASE("emulator: the blocks of a cluster reach each other's shared memory", "[quick][cuda]") {
  const ScheduleGuard guard(GENERATE(Schedule::Forward, Schedule::Reversed, Schedule::Random));
  const auto stream = current_stream(Device(DeviceType::CUDA));
  for (const unsigned size : {1u, 2u, 4u, 8u, 16u}) {
    const DeviceArray<int> out(16);
    launch_with({.cluster = size}, cluster_kernel, 16, 96, 64, stream, out.get());
    const auto values = out.values();
    for (unsigned i = 0; i < 16; ++i) {
      const unsigned next = i / size * size + (i + 1) % size;
      REQUIRE(values[i] == static_cast<int>((next + 1) * 100 + i + 1));
    }
    const DeviceArray<int> counts(std::vector<int>(2, 0));
    launch_with({.cluster = size}, remote_arrival_kernel, size, 64, 64 + kSharedSlack, stream,
                counts.get());
    REQUIRE(counts.values() == std::vector<int>(2, static_cast<int>(size)));
  }
  REQUIRE(contains(failure([&] {
                     const DeviceArray<int> out(16);
                     launch_with({.cluster = 3}, cluster_kernel, 16, 32, 64, stream, out.get());
                   }),
                   "is no multiple of the cluster"));
}

}  // namespace ringgrad::test::emulator_hopper_test
