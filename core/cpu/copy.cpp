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
template <class T>
void copy_short_rows(Stream stream, const LoopPlan& plan, T* y, const T* x) {
  const int64_t row = plan.inner_size();
  LoopPlan rows = plan;
  --rows.dims;
  rows.numel /= row;
  const int64_t size = sizeof(T);
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
      copy(reinterpret_cast<char*>(y + offsets[0]), rows.inner_stride(0) * size,
           reinterpret_cast<const char*>(x + offsets[1]), rows.inner_stride(1) * size, n, bytes);
    });
  });
}

constexpr int64_t kTile = kChannelBlock;  // one cache line of float32

// Used if neighbours in x are neighbours in y along another loop, `across`. Those two loops are
// walked in tiles, so that a cache line is read, and written, as a whole.
template <class Y, class X>
void copy_transposed(Stream stream, const LoopPlan& plan, int across, Y* y, const X* x) {
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
    Y* const to = y + offsets[0] + row * y_row + column * y_column;
    const X* const from = x + offsets[1] + row * x_row + column * x_column;
    const int64_t height = std::min(kTile, rows - row);
    const int64_t width = std::min(kTile, columns - column);
    if constexpr (std::is_same_v<Y, X> &&
                  (sizeof(Y) == sizeof(float) || sizeof(Y) == sizeof(uint16_t))) {
      using Bits = std::conditional_t<sizeof(Y) == sizeof(float), float, uint16_t>;
      if (height == kTile && width == kTile && x_row == 1 && y_column == 1)
        return conv::transpose_block(reinterpret_cast<const Bits*>(from), x_column,
                                     reinterpret_cast<Bits*>(to), y_row);
    }
    for (int64_t i = 0; i < height; ++i)
      copy_run(to + i * y_row, y_column, from + i * x_row, x_column, width);
  };
  parallel_for(stream, plan.numel / (rows * columns) * tile_rows * tile_columns,
               grain(kTile * kTile), [&](int64_t begin, int64_t end) {
                 for (int64_t tile = begin; tile < end; ++tile) copy_tile(tile);
               });
}

template <class Y, class X>
void copy_elements(Stream stream, const Tensor& y, const Tensor& x) {
  const LoopPlan plan = plan_loops({&y, &x});
  if (plan.dims == 0) return;
  Y* const y_data = y.data<Y>();
  const X* const x_data = x.data<X>();
  int nearest = plan.dims - 1;  // the loop along which x's neighbours lie
  for (int d = 0; d < plan.dims; ++d)
    if (plan.strides[1][d] > 0 && plan.strides[1][d] < plan.strides[1][nearest]) nearest = d;
  if (nearest != plan.dims - 1) return copy_transposed(stream, plan, nearest, y_data, x_data);
  if constexpr (std::is_same_v<Y, X>)
    if (plan.dims > 1 && plan.inner_stride(0) == 1 && plan.inner_stride(1) == 1 &&
        plan.inner_size() * static_cast<int64_t>(sizeof(Y)) <= kShortRow)
      return copy_short_rows(stream, plan, y_data, x_data);
  parallel_for(stream, plan.numel, kElementwiseGrain, [&](int64_t begin, int64_t end) {
    plan.for_each_run<2>(begin, end, [&](const auto& offsets, int64_t n) {
      copy_run(y_data + offsets[0], plan.inner_stride(0), x_data + offsets[1], plan.inner_stride(1),
               n);
    });
  });
}

// Copies between a strided tensor (any strides) and a channel-blocked one of the same dtype. A unit
// is one block of 16 channels of one image, which is 16 planes on the strided side.
template <class T, bool kToBlocked>
void reorder(Stream stream, const Tensor& strided, const Tensor& blocked) {
  const auto& shape = strided.shape();
  const auto& stride = strided.strides();
  const int64_t channels = shape[1];
  const int64_t height = shape[2];
  const int64_t width = shape[3];
  const int64_t blocks = (channels + kChannelBlock - 1) / kChannelBlock;
  T* const plain = strided.data<T>();
  T* const packed = blocked.data<T>();
  // Parts of images have whole planes, too.
  const bool whole_planes = (width == 1 || stride[3] == 1) && (height == 1 || stride[2] == width);
  if constexpr (sizeof(T) == sizeof(float) || sizeof(T) == sizeof(uint16_t))
    if (whole_planes) {  // by transposed registers: five times as fast
      using Bits = std::conditional_t<sizeof(T) == sizeof(float), float, uint16_t>;
      const conv::Planes planes{shape[0], channels, height * width, stride[0], stride[1]};
      Bits* const nchw = reinterpret_cast<Bits*>(plain);
      Bits* const blocked = reinterpret_cast<Bits*>(packed);
      return kToBlocked ? conv::nchw_to_blocked<Bits>(stream, planes, nchw, blocked)
                        : conv::blocked_to_nchw<Bits>(stream, planes, blocked, nchw);
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
    visit_dtype("copy", y.dtype(), [&]<class T>() {
      if (y.is_channel_blocked())
        reorder<T, true>(stream, source, y);
      else
        reorder<T, false>(stream, y, source);
    });
    return;
  }
  visit_dtype("copy", y.dtype(), [&]<class Y>() {
    visit_dtype("copy", x.dtype(), [&]<class X>() { copy_elements<Y, X>(stream, y, x); });
  });
}

void copy_to_host_cpu(Stream stream, const Tensor& x, const Tensor& host_y) {
  copy_cpu(stream, host_y, x);
}

REGISTER_KERNEL(copy, CPU, Native, copy_cpu);
REGISTER_KERNEL(copy_to_host, CPU, Native, copy_to_host_cpu);

}  // namespace
}  // namespace ringgrad::cpu
