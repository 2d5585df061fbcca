#include "ringgrad/core/cpu/conv/plane_convolution.h"

#include "ringgrad/core/cpu/conv/plane_strips.h"
#include "ringgrad/core/cpu/workspace.h"

namespace ringgrad::conv {
namespace {

constexpr int64_t kUnitProducts = 1 << 19;  // ~10 µs

std::vector<Sight> adjoint_sights(int64_t taps, int64_t stride, int64_t padding, int64_t dilation,
                                  int64_t out) {
  std::vector<Sight> sights;
  for (int64_t first = 0; first < std::min(stride, out); ++first) {
    Sight& sight = sights.emplace_back(Sight{first, stride, ceil_div(out - first, stride), 1});
    for (int64_t tap = 0; tap < taps; ++tap)
      if (const int64_t distance = first + padding - tap * dilation; distance % stride == 0) {
        sight.taps.push_back(tap);
        sight.offsets.push_back(distance / stride);
      }
  }
  return sights;
}

// Filters as right matrices: [group][panel of output channels][piece of input channels][tap] [input
// channel][output channel].
struct Filters {
  const float* data;
  // channels of a group
  int64_t in;
  int64_t out;
  // strides in `data`
  int64_t group_stride;
  int64_t in_stride;
  int64_t out_stride;
  int64_t piece() const { return ceil_div(in, ceil_div(std::max<int64_t>(1, in), kTerms)); }
  int64_t panels() const { return ceil_div(out, kPanel); }
  int64_t width(int64_t panel) const {
    return std::min(kPanel, ceil_div(out - panel * kPanel, kLanes) * kLanes);
  }
  int64_t group_width() const { return (panels() - 1) * kPanel + width(panels() - 1); }

  void pack(int64_t group, int64_t panel, const std::vector<int64_t>& taps, float* to) const {
    const int64_t wide = width(panel);
    const int64_t columns = std::min(wide, out - panel * kPanel);
    const float* const from = data + group * group_stride + panel * kPanel * out_stride;
    for (int64_t first = 0; first < in; first += piece())
      for (const int64_t tap : taps)
        for (int64_t c = first; c < std::min(in, first + piece()); ++c, to += wide) {
          for (int64_t k = 0; k < columns; ++k) to[k] = from[c * in_stride + k * out_stride + tap];
          std::fill(to + columns, to + wide, 0.0f);
        }
  }
};

// to[channel][pixel] = from[pixel][channel] + bias[channel] or addend[channel][pixel]. Pixels of
// `to` are `step` apart. Reads blocks of 16 pixels and channels, including beyond the last of them.
void store_pixels(const float* from, int64_t width, int64_t pixels, int64_t channels,
                  const float* bias, const float* addend, float* to, int64_t plane, int64_t step) {
  constexpr int64_t kBlock = kChannelBlock;
  alignas(64) float block[kBlock * kBlock];
  for (int64_t k = 0; k < channels; k += kBlock)
    for (int64_t i = 0; i < pixels; i += kBlock) {
      transpose_block(from + i * width + k, width, block, kBlock);
      for (int64_t row = 0; row < std::min(kBlock, channels - k); ++row) {
        const float* const line = block + row * kBlock;
        const int64_t at = (k + row) * plane + i * step;
        const int64_t count = std::min(kBlock, pixels - i);
        const float shift = bias ? bias[k + row] : 0.0f;
        if (addend)
          for (int64_t j = 0; j < count; ++j) to[at + j * step] = line[j] + addend[at + j * step];
        else
          for (int64_t j = 0; j < count; ++j) to[at + j * step] = line[j] + shift;
      }
    }
}

void convolve_sights(Stream stream, const Images& in, const Images& out, const Sight& p,
                     const Sight& q, const Filters& filters, int64_t window, const float* x,
                     const float* bias, const float* addend, float* y) {
  const PlaneStrips strips(in, p, q);
  const std::vector<int64_t> offsets = strips.offsets(p, q);
  std::vector<int64_t> taps;
  for (const int64_t r : p.taps)
    for (const int64_t s : q.taps) taps.push_back(r * window + s);
  const int64_t count = static_cast<int64_t>(taps.size());
  const int64_t depth = in.channels * count;
  const int64_t piece = filters.piece();
  const int64_t taps_at_once =
      ceil_div(count, std::max<int64_t>(1, ceil_div(count * piece, kTerms)));

  const cpu::Workspace<float> packed(stream, in.groups * filters.group_width() * depth);
  const auto panel_at = [&](int64_t group, int64_t panel) {
    return packed.data() + (group * filters.group_width() + panel * kPanel) * depth;
  };
  parallel_for(stream, in.groups * filters.panels(), cpu::grain(kPanel * depth),
               [&](int64_t begin, int64_t end) {
                 for (int64_t unit = begin; unit < end; ++unit) {
                   const int64_t group = unit / filters.panels();
                   const int64_t panel = unit % filters.panels();
                   filters.pack(group, panel, taps, panel_at(group, panel));
                 }
               });

  const int64_t pixels = strips.outputs * q.count;
  const int64_t planes_floats = strips.floats(in, q);
  cpu::ThreadWorkspaces workspaces(stream, planes_floats + (pixels + kChannelBlock) * kPanel);
  const int64_t units = in.n * in.groups * strips.count;
  parallel_for(
      stream, units, ceil_div(kUnitProducts, pixels * filters.out * depth + 1),
      [&](int64_t begin, int64_t end) {
        const cpu::ThreadWorkspaces::Slice memory(workspaces);
        float* const planes = memory.data();
        float* const sums = planes + planes_floats;
        for (int64_t unit = begin; unit < end; ++unit) {
          const int64_t strip = unit % strips.count;
          const int64_t group = unit / strips.count % in.groups;
          const int64_t image = unit / strips.count / in.groups;
          const int64_t row = strip * strips.outputs;
          const int64_t rows = std::min(strips.outputs, p.count - row);
          strips.copy(in, p, strip, x + in.group_at(image, group), planes);
          for (int64_t panel = 0; panel < filters.panels(); ++panel) {
            const int64_t width = filters.width(panel);
            const int64_t channel = panel * kPanel;
            if (depth == 0) std::fill_n(sums, rows * q.count * width, 0.0f);
            // Goes row by row, so that the next row overwrites what this one writes beyond its end.
            for (int64_t i = 0; i < rows; ++i)
              for (int64_t c = 0; c < in.channels; c += piece)
                for (int64_t tap = 0; tap < count; tap += taps_at_once) {
                  const int64_t channels = std::min(piece, in.channels - c);
                  const LeftMatrix left{planes + c * strips.plane + i * p.stride * strips.columns,
                                        q.stride,
                                        strips.plane,
                                        channels,
                                        offsets.data() + tap,
                                        std::min(taps_at_once, count - tap)};
                  const RightMatrix right{
                      panel_at(group, panel) + (c * count + tap * channels) * width, width,
                      kChannelBlock};
                  multiply<Float32Product>(left, q.count, right, width, sums + i * q.count * width,
                                           width, c + tap > 0);
                }
            const int64_t first = group * out.channels + channel;
            const int64_t at = (image * out.groups * out.channels + first) * out.plane() +
                               (p.first + row * p.step) * out.w + q.first;
            const int64_t runs = p.step == 1 && q.step == 1 ? 1 : rows;
            const int64_t run = rows * q.count / runs;
            for (int64_t i = 0; i < runs; ++i) {
              const int64_t to = at + i * p.step * out.w;
              store_pixels(sums + i * run * width, width, run,
                           std::min(kPanel, out.channels - channel), bias ? bias + first : nullptr,
                           addend ? addend + to : nullptr, y + to, out.plane(), q.step);
            }
          }
        }
      });
}

}  // namespace

void convolve_planes(Stream stream, const ConvShape& s, const float* x, const float* w,
                     const float* bias, float* y) {
  const int64_t taps = s.r * s.s;
  convolve_sights(stream, images_x(s), images_y(s), rows_of(s), columns_of(s),
                  {w, s.c, s.k, s.k * s.c * taps, taps, s.c * taps}, s.s, x, bias, nullptr, y);
}

void convolve_planes_backward(Stream stream, const ConvShape& s, const float* dy, const float* w,
                              const float* addend, float* dx) {
  const int64_t taps = s.r * s.s;
  for (const Sight& p : adjoint_sights(s.r, s.stride.h, s.padding.h, s.dilation.h, s.h))
    for (const Sight& q : adjoint_sights(s.s, s.stride.w, s.padding.w, s.dilation.w, s.w))
      convolve_sights(stream, images_y(s), images_x(s), p, q,
                      {w, s.k, s.c, s.k * s.c * taps, s.c * taps, taps}, s.s, dy, nullptr, addend,
                      dx);
}

}  // namespace ringgrad::conv
