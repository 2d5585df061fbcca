#include "ringgrad/core/cpu/conv/sub_images.h"

#include <algorithm>

#include "ringgrad/core/cpu/blocking.h"
#include "ringgrad/core/device/parallel.h"

namespace ringgrad::conv {
namespace {

// The places [first, last) of a sub-image along one axis that lie in the image, and the position of
// the first.
struct Inside {
  int64_t first;
  int64_t last;
  int64_t place;
};
Inside inside(int64_t part, int64_t dilation, int64_t padding, int64_t places, int64_t size) {
  const int64_t offset = part - padding;
  const int64_t first = offset < 0 ? cpu::ceil_div(-offset, dilation) : 0;
  const int64_t last = size > offset ? std::min(places, cpu::ceil_div(size - offset, dilation)) : 0;
  return {std::min(first, last), last, first * dilation + offset};
}

// Calls body(rows, columns, plane, part) for each block of channels of each image and each of its
// sub-images. `plane` and `part` point to their numbers. One thread handles all sub-images of a
// plane, because they share its cache lines.
template <class Body>
void for_each_part(Stream stream, const SubImages& sub, Body body) {
  const BlockedShape& image = sub.image;
  const BlockedShape parts = sub.parts();
  parallel_for(
      stream, image.n * image.blocks, cpu::grain(image.plane()), [&](int64_t begin, int64_t end) {
        for (int64_t plane = begin; plane < end; ++plane)
          for (int64_t a = 0; a < sub.dilation.h; ++a)
            for (int64_t b = 0; b < sub.dilation.w; ++b) {
              const int64_t n = (plane / image.blocks * sub.dilation.h + a) * sub.dilation.w + b;
              body(inside(a, sub.dilation.h, sub.padding.h, sub.h, image.h),
                   inside(b, sub.dilation.w, sub.padding.w, sub.w, image.w), plane * image.plane(),
                   (n * image.blocks + plane % image.blocks) * parts.plane());
            }
      });
}

// Calls body(place in the image, place in the sub-image) for each pixel that both have.
template <class Body>
void for_each_pixel(const SubImages& sub, const Inside& rows, const Inside& columns, Body body) {
  const int64_t step = sub.dilation.w * kChannelBlock;
  for (int64_t i = rows.first; i < rows.last; ++i) {
    int64_t from =
        ((rows.place + (i - rows.first) * sub.dilation.h) * sub.image.w + columns.place) *
        kChannelBlock;
    for (int64_t j = columns.first; j < columns.last; ++j, from += step)
      body(from, (i * sub.w + j) * kChannelBlock);
  }
}

}  // namespace

SubImages sub_images_made(const BlockedShape& y, const Conv2dOptions& options) {
  return {y, options.dilation, 0, cpu::ceil_div(y.h, options.dilation.h),
          cpu::ceil_div(y.w, options.dilation.w)};
}

SubImages sub_images_seen(const BlockedShape& x, const BlockedShape& y, Pair kernel,
                          const Conv2dOptions& options) {
  const SubImages made = sub_images_made(y, options);
  return {x, options.dilation, options.padding, made.h + kernel.h - 1, made.w + kernel.w - 1};
}

template <class T>
void split(Stream stream, const SubImages& sub, const T* image, T* parts) {
  for_each_part(
      stream, sub, [&](const Inside& rows, const Inside& columns, int64_t plane, int64_t part) {
        const bool whole =
            rows.first == 0 && rows.last == sub.h && columns.first == 0 && columns.last == sub.w;
        if (!whole) std::fill_n(parts + part, sub.parts().plane(), T{});
        for_each_pixel(sub, rows, columns, [&](int64_t from, int64_t to) {
          std::copy_n(image + plane + from, kChannelBlock, parts + part + to);
        });
      });
}

template <class T>
void join(Stream stream, const SubImages& sub, const T* parts, T* image) {
  for_each_part(stream, sub,
                [&](const Inside& rows, const Inside& columns, int64_t plane, int64_t part) {
                  for_each_pixel(sub, rows, columns, [&](int64_t to, int64_t from) {
                    std::copy_n(parts + part + from, kChannelBlock, image + plane + to);
                  });
                });
}

#define INSTANTIATE(T)                                         \
  template void split(Stream, const SubImages&, const T*, T*); \
  template void join(Stream, const SubImages&, const T*, T*)
INSTANTIATE(float);
INSTANTIATE(bfloat16);

}  // namespace ringgrad::conv
