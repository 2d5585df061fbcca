// Copies on the CPU: between dtypes, strides, logical devices, and to and from the channel-blocked
// layout.
#include <cstring>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/cpu/blocking.h"
#include "ringgrad/core/cpu/conv/vector.h"
#include "ringgrad/core/cpu/elementwise.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels.h"

namespace ringgrad::cpu {
namespace {

template <class Y, class X>
Y convert(X value) {
  // int32 is used because a register holds fewer int64.
  using A = std::conditional_t<sizeof(X) == 1, int32_t, Accumulator<X>>;
  if constexpr (std::is_same_v<Y, bool>)
    return static_cast<A>(value) != 0;
  else
    return number<Y>(static_cast<A>(value));
}

// Copies one run of n elements.
template <class Y, class X>
void copy_run(Y* y, int64_t y_stride, const X* x, int64_t x_stride, int64_t n) {
  // g++ vectorises loops over bytes, but not over bools.
  if constexpr (std::is_same_v<X, bool> && !std::is_same_v<Y, bool>)
    copy_run(y, y_stride, reinterpret_cast<const uint8_t*>(x), x_stride, n);
  else if (y_stride == 1 && x_stride == 0)  // the gradient of a sum
    std::fill_n(y, n, convert<Y>(*x));
  else if (y_stride != 1 || x_stride != 1)
    for (int64_t i = 0; i < n; ++i) y[i * y_stride] = convert<Y>(x[i * x_stride]);
  else if constexpr (std::is_same_v<Y, X>)
    std::memcpy(y, x, n * sizeof(Y));
  else if constexpr ((std::is_same_v<Y, float> && kIs16Bit<X>) ||
                     (std::is_same_v<X, float> && kIs16Bit<Y>))
    conv::convert(y, x, n);
  else
    for (int64_t i = 0; i < n; ++i) y[i] = convert<Y>(x[i]);
}

constexpr int64_t kTile = kChannelBlock;  // one cache line of float32

// Rows of elements, and the distances between them in elements.
struct Part {
  char* data;
  int64_t row;
  int64_t column;
};

// Copies a part of `rows` by n elements. Only this is compiled for each pair of types; the loops
// around it know the sizes of elements.
template <class Y, class X>
void copy_part(const Part& to, const Part& from, int64_t rows, int64_t n) {
  Y* const y = reinterpret_cast<Y*>(to.data);
  const X* const x = reinterpret_cast<const X*>(from.data);
  if constexpr (std::is_same_v<Y, X> &&
                (sizeof(Y) == sizeof(float) || sizeof(Y) == sizeof(uint16_t))) {
    using Bits = std::conditional_t<sizeof(Y) == sizeof(float), float, uint16_t>;
    if (rows == kTile && n == kTile && from.row == 1 && to.column == 1)
      return conv::transpose_block(reinterpret_cast<const Bits*>(x), from.column,
                                   reinterpret_cast<Bits*>(y), to.row);
  }
  for (int64_t i = 0; i < rows; ++i)
    copy_run(y + i * to.row, to.column, x + i * from.row, from.column, n);
}
using CopyPart = void (*)(const Part& to, const Part& from, int64_t rows, int64_t n);

// Rows up to this size are copied without memcpy. It takes longer for short rows because of the
// call, and for rows of some kilobytes because of its instruction.
constexpr int64_t kShortRow = 1 << 14;  // bytes

// The last kBytes of a row end with it, and repeat some of those before.
template <int64_t kBytes>
void copy_rows(char* y, int64_t y_pitch, const char* x, int64_t x_pitch, int64_t rows,
               int64_t bytes) {
  for (int64_t row = 0; row < rows; ++row, y += y_pitch, x += x_pitch) {
    for (int64_t i = 0; i < bytes - kBytes; i += kBytes) std::memcpy(y + i, x + i, kBytes);
    std::memcpy(y + bytes - kBytes, x + bytes - kBytes, kBytes);
  }
}

// The innermost loop of the plan is over rows of at most kShortRow bytes, without gaps.
void copy_short_rows(Stream stream, const LoopPlan& plan, int64_t size, char* y, const char* x) {
  const int64_t row = plan.inner_size();
  LoopPlan rows = plan;
  --rows.dims;
  rows.numel /= row;
  const int64_t bytes = row * size;
  const auto copy = bytes >= 64   ? copy_rows<64>
                    : bytes >= 32 ? copy_rows<32>
                    : bytes >= 16 ? copy_rows<16>
                    : bytes >= 8  ? copy_rows<8>
                    : bytes >= 4  ? copy_rows<4>
                    : bytes >= 2  ? copy_rows<2>
                                  : copy_rows<1>;
  parallel_for(stream, rows.numel, grain(row), [&](int64_t begin, int64_t end) {
    rows.for_each_run<2>(begin, end, [&](const auto& offsets, int64_t n) {
      copy(y + offsets[0] * size, rows.inner_stride(0) * size, x + offsets[1] * size,
           rows.inner_stride(1) * size, n, bytes);
    });
  });
}

// Used if neighbours in x are neighbours in y along another loop, `across`. Those two loops are
// walked in tiles, so that a cache line is read, and written, as a whole.
void copy_transposed(Stream stream, const LoopPlan& plan, int across, CopyPart copy, char* y,
                     int64_t y_size, char* x, int64_t x_size) {
  const int inner = plan.dims - 1;
  const int64_t rows = plan.sizes[across];
  const int64_t columns = plan.sizes[inner];  // the columns of y
  const int64_t tile_rows = ceil_div(rows, kTile);
  const int64_t tile_columns = ceil_div(columns, kTile);
  const int64_t y_row = plan.strides[0][across];
  const int64_t x_row = plan.strides[1][across];
  const int64_t y_column = plan.strides[0][inner];
  const int64_t x_column = plan.strides[1][inner];
  LoopPlan around = plan;  // the loops around those two
  around.sizes[across] = around.sizes[inner] = 1;
  const auto copy_tile = [&](int64_t tile) {
    const int64_t column = tile % tile_columns * kTile;
    const int64_t row = tile / tile_columns % tile_rows * kTile;
    const auto offsets = around.offsets(tile / (tile_columns * tile_rows));
    const int64_t to = offsets[0] + row * y_row + column * y_column;
    const int64_t from = offsets[1] + row * x_row + column * x_column;
    copy({y + to * y_size, y_row, y_column}, {x + from * x_size, x_row, x_column},
         std::min(kTile, rows - row), std::min(kTile, columns - column));
  };
  parallel_for(stream, plan.numel / (rows * columns) * tile_rows * tile_columns,
               grain(kTile * kTile), [&](int64_t begin, int64_t end) {
                 for (int64_t tile = begin; tile < end; ++tile) copy_tile(tile);
               });
}

void copy_elements(Stream stream, const Tensor& y, const Tensor& x, CopyPart copy) {
  const LoopPlan plan = plan_loops({&y, &x});
  if (plan.dims == 0) return;
  const auto y_size = static_cast<int64_t>(itemsize(y.dtype()));
  const auto x_size = static_cast<int64_t>(itemsize(x.dtype()));
  char* const y_data = static_cast<char*>(y.raw_data());
  char* const x_data = static_cast<char*>(x.raw_data());
  int nearest = plan.dims - 1;  // the loop along which x's neighbours lie
  for (int d = 0; d < plan.dims; ++d)
    if (plan.strides[1][d] > 0 && plan.strides[1][d] < plan.strides[1][nearest]) nearest = d;
  if (nearest != plan.dims - 1)
    return copy_transposed(stream, plan, nearest, copy, y_data, y_size, x_data, x_size);
  if (y.dtype() == x.dtype() && plan.dims > 1 && plan.inner_stride(0) == 1 &&
      plan.inner_stride(1) == 1 && plan.inner_size() * y_size <= kShortRow)
    return copy_short_rows(stream, plan, y_size, y_data, x_data);
  parallel_for(stream, plan.numel, kElementwiseGrain, [&](int64_t begin, int64_t end) {
    plan.for_each_run<2>(begin, end, [&](const auto& offsets, int64_t n) {
      copy({y_data + offsets[0] * y_size, 0, plan.inner_stride(0)},
           {x_data + offsets[1] * x_size, 0, plan.inner_stride(1)}, 1, n);
    });
  });
}

// Copies between a strided tensor (any strides) and a channel-blocked one of the same dtype. A unit
// is one block of 16 channels of one image, which is 16 planes on the strided side. T is any type
// of an element's size.
template <class T, bool kToBlocked>
void reorder(Stream stream, const Tensor& strided, const Tensor& blocked) {
  const auto& shape = strided.shape();
  const auto& stride = strided.strides();
  const int64_t channels = shape[1];
  const int64_t height = shape[2];
  const int64_t width = shape[3];
  const int64_t blocks = (channels + kChannelBlock - 1) / kChannelBlock;
  T* const plain = static_cast<T*>(strided.raw_data());
  T* const packed = static_cast<T*>(blocked.raw_data());
  // Parts of images have whole planes, too.
  const bool whole_planes = (width == 1 || stride[3] == 1) && (height == 1 || stride[2] == width);
  if constexpr (std::is_same_v<T, float> || std::is_same_v<T, uint16_t>)
    if (whole_planes) {  // by transposed registers: five times as fast
      const conv::Planes planes{shape[0], channels, height * width, stride[0], stride[1]};
      return kToBlocked ? conv::nchw_to_blocked<T>(stream, planes, plain, packed)
                        : conv::blocked_to_nchw<T>(stream, planes, packed, plain);
    }
  parallel_for(stream, shape[0] * blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t n = unit / blocks;
      const int64_t first = unit % blocks * kChannelBlock;
      const int64_t used = std::min(kChannelBlock, channels - first);
      T* pixel = packed + unit * height * width * kChannelBlock;
      for (int64_t h = 0; h < height; ++h)
        for (int64_t w = 0; w < width; ++w, pixel += kChannelBlock) {
          T* from = plain + n * stride[0] + first * stride[1] + h * stride[2] + w * stride[3];
          for (int64_t c = 0; c < used; ++c) {
            if constexpr (kToBlocked)
              pixel[c] = from[c * stride[1]];
            else
              from[c * stride[1]] = pixel[c];
          }
          if constexpr (kToBlocked)
            for (int64_t c = used; c < kChannelBlock; ++c) pixel[c] = T{};
        }
    }
  });
}

void copy_cpu(Stream stream, const Tensor& y, const Tensor& x) {
  ASSERT(y.shape() == x.shape() && x.device().is_cpu());
  if (y.is_channel_blocked() != x.is_channel_blocked()) {
    Tensor source = x;
    if (x.dtype() != y.dtype()) {
      source = empty(x.shape(), {y.dtype(), y.device(), x.layout()});
      copy_cpu(stream, source, x);
    }
    const auto reorder_as = [&]<class T>(T) {
      if (y.is_channel_blocked())
        reorder<T, true>(stream, source, y);
      else
        reorder<T, false>(stream, y, source);
    };
    switch (itemsize(y.dtype())) {
      case sizeof(uint8_t): return reorder_as(uint8_t{});
      case sizeof(uint16_t): return reorder_as(uint16_t{});
      case sizeof(float): return reorder_as(float{});
      default: return reorder_as(int64_t{});
    }
  }
  visit_dtype("copy", y.dtype(), [&]<class Y>() {
    visit_dtype("copy", x.dtype(),
                [&]<class X>() { copy_elements(stream, y, x, copy_part<Y, X>); });
  });
}

void copy_to_host_cpu(Stream stream, const Tensor& x, const Tensor& host_y) {
  copy_cpu(stream, host_y, x);
}

REGISTER_KERNEL(copy, CPU, Native, copy_cpu);
REGISTER_KERNEL(copy_to_host, CPU, Native, copy_to_host_cpu);

}  // namespace
}  // namespace ringgrad::cpu
