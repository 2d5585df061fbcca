#include "ringgrad/core/cpu/conv/plane_convolution.h"
#include "ringgrad/core/cpu/conv/plane_strips.h"
#include "ringgrad/core/cpu/packed_product.h"
#include "ringgrad/core/cpu/workspace.h"

namespace ringgrad::conv {

// Here the channels of padded planes are the rows of the left matrix and pixels the steps of the
// reduction; filters are the columns, so the strips of dy are copied as [pixel][filter]. Units are
// groups x panels of filters x parts of the strips. The number of parts follows from the shape, and
// their sums are added in order.
void plane_weight_gradient(Stream stream, const ConvShape& s, const float* x, const float* dy,
                           float* dw) {
  constexpr int64_t kUnits = 64;
  constexpr int64_t kPartFloats = int64_t{1} << 22;
  const Images in = images_x(s);
  const Images out = images_y(s);
  const Sight p = rows_of(s);
  const Sight q = columns_of(s);
  const PlaneStrips strips(in, p, q);
  const std::vector<int64_t> offsets = strips.offsets(p, q);
  const int64_t taps = s.r * s.s;
  const int64_t panels = ceil_div(s.k, kPanel);
  const int64_t rows_of_sums = ceil_div(s.c, 4) * 4;
  const int64_t sums_of_panel = taps * rows_of_sums * kPanel;
  const int64_t sums_of_part = s.groups * panels * sums_of_panel;
  const int64_t parts =
      std::clamp<int64_t>(std::min(kUnits / (s.groups * panels), kPartFloats / sums_of_part), 1,
                          std::max<int64_t>(1, s.n * strips.count));
  const int64_t columns_at_once = std::min(s.q, kTerms);
  const int64_t rows_at_once = std::max<int64_t>(1, kTerms / s.q);
  std::vector<int64_t> row_offsets;
  for (int64_t i = 0; i < rows_at_once; ++i) row_offsets.push_back(i * p.stride * strips.columns);

  const cpu::Workspace<float> sums(stream, parts * sums_of_part);
  if (s.n == 0) std::fill_n(sums.data(), sums_of_part, 0.0f);
  const int64_t planes_floats = strips.floats(in, q);
  cpu::ThreadWorkspaces workspaces(stream, planes_floats + strips.outputs * s.q * kPanel);
  parallel_for(stream, s.groups * panels * parts, 1, [&](int64_t unit, int64_t) {
    const int64_t part = unit % parts;
    const int64_t panel = unit / parts % panels;
    const int64_t group = unit / parts / panels;
    const int64_t first = panel * kPanel;
    const int64_t filters = std::min(kPanel, s.k - first);
    const int64_t width = ceil_div(filters, kLanes) * kLanes;
    float* const to = sums.data() + part * sums_of_part + (group * panels + panel) * sums_of_panel;
    const cpu::ThreadWorkspaces::Slice memory(workspaces);
    float* const planes = memory.data();
    float* const turned = planes + planes_floats;
    bool accumulate = false;
    for (int64_t i = s.n * strips.count * part / parts; i < s.n * strips.count * (part + 1) / parts;
         ++i) {
      const int64_t image = i / strips.count;
      const int64_t strip = i % strips.count;
      const int64_t row = strip * strips.outputs;
      const int64_t rows = std::min(strips.outputs, s.p - row);
      strips.copy(in, p, strip, x + in.group_at(image, group), planes);
      const float* const seen = dy + out.group_at(image, group) + first * out.plane() + row * s.q;
      cpu::pack({const_cast<float*>(seen), filters, rows * s.q, out.plane()}, width, turned);
      for (int64_t r = 0; r < rows; r += rows_at_once)
        for (int64_t c = 0; c < s.q; c += columns_at_once, accumulate = true)
          for (int64_t tap = 0; tap < taps; ++tap) {
            const LeftMatrix left{
                planes + offsets[tap] + r * p.stride * strips.columns + c * q.stride,
                strips.plane,
                q.stride,
                std::min(columns_at_once, s.q - c),
                row_offsets.data(),
                std::min(rows_at_once, rows - r)};
            multiply<Float32Product>(left, s.c,
                                     {turned + (r * s.q + c) * width, width, kChannelBlock}, width,
                                     to + tap * rows_of_sums * kPanel, kPanel, accumulate);
          }
    }
  });
  parallel_for(stream, s.groups * s.k, cpu::grain(s.c * taps * parts),
               [&](int64_t begin, int64_t end) {
                 for (int64_t filter = begin; filter < end; ++filter) {
                   const int64_t group = filter / s.k;
                   const int64_t k = filter % s.k;
                   const float* const from =
                       sums.data() + (group * panels + k / kPanel) * sums_of_panel + k % kPanel;
                   for (int64_t c = 0; c < s.c; ++c)
                     for (int64_t tap = 0; tap < taps; ++tap) {
                       const float* const sum = from + (tap * rows_of_sums + c) * kPanel;
                       float total = *sum;
                       for (int64_t part = 1; part < parts; ++part)
                         total += sum[part * sums_of_part];
                       dw[(filter * s.c + c) * taps + tap] = total;
                     }
                 }
               });
}

}  // namespace ringgrad::conv
