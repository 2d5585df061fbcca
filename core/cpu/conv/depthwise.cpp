// Depthwise convolutions and the gradients of their images, plane by plane. The example of 16
// images of 64 channels at 28 × 28 has windows of 3 × 3. There a tile of 7 × 8 sums takes 9 loads
// for each column of the window and multiplies 21 vectors.
#include "ringgrad/core/cpu/conv/depthwise.h"

#include "ringgrad/core/cpu/conv/taps.h"

namespace ringgrad::conv {
namespace {

using cpu::ConvShape;
using cpu::Workspace;

// to[i · to_pitch + j · to_step] = start + Σ over the taps of weight · from[i · pitch + offset +
// j]. start is `addend` (may be null) at the same place, else `bias`.
template <class T>
struct Sums {
  const Taps<T>& taps;
  const T* from;
  T* to;
  const T* addend;
  T bias;
  int64_t to_pitch;
  int64_t to_step;
  int64_t rows;
  int64_t columns;

  // The last vector of a row ends where the row ends, and repeats some of the sums before it.
  void run() const {
    for_blocks_of_rows(rows, [this]<int kRows>(int64_t row) {
      const bool whole = to_step == 1 && columns >= kWidth;
      for (int64_t column = 0; column < columns; column += kWidth)
        if (whole)
          whole_tile<kRows>(row, std::min(column, columns - kWidth));
        else
          part_tile<kRows>(row, column);
    });
  }

 private:
  static constexpr int kWidth = kLanesOf<T>;

  template <int kRows>
  [[gnu::noinline]] void whole_tile(int64_t row, int64_t column) const {
    Lanes<T> sums[kRows];
    const int64_t place = row * to_pitch + column;
    RINGGRAD_UNROLL
    for (int i = 0; i < kRows; ++i)
      sums[i] = addend ? load_lanes(addend + place + i * to_pitch) : broadcast(bias);
    add_taps<kRows>(sums, from + row * taps.pitch() + column);
    RINGGRAD_UNROLL
    for (int i = 0; i < kRows; ++i) store_lanes(to + place + i * to_pitch, sums[i]);
  }

  template <int kRows>
  [[gnu::noinline]] void part_tile(int64_t row, int64_t column) const {
    Lanes<T> sums[kRows] = {};
    add_taps<kRows>(sums, from + row * taps.pitch() + column);
    T all[kRows * kWidth];
    RINGGRAD_UNROLL
    for (int i = 0; i < kRows; ++i) store_lanes(all + i * kWidth, sums[i]);
    put(all, kRows, row * to_pitch + column * to_step, std::min<int64_t>(kWidth, columns - column));
  }
  [[gnu::noinline, gnu::noclone]] void put(const T* sums, int64_t height, int64_t place,
                                           int64_t width) const {
    for (int64_t i = 0; i < height; ++i, place += to_pitch, sums += kWidth)
      for (int64_t j = 0; j < width; ++j)
        to[place + j * to_step] = sums[j] + (addend ? addend[place + j * to_step] : bias);
  }

  // Adds all runs of one length in a loop that keeps the sums in registers.
  template <int kRows>
  [[gnu::always_inline]] void add_taps(Lanes<T>* sums, const T* seen) const {
    for (const Run<T>* run = taps.begin(); run != taps.end();)
      if (run->count == 4)
        add_runs<kRows, 4>(sums, run, seen);
      else if (run->count == 3)
        add_runs<kRows, 3>(sums, run, seen);
      else if (run->count == 2)
        add_runs<kRows, 2>(sums, run, seen);
      else
        add_runs<kRows, 1>(sums, run, seen);
  }
  template <int kRows, int kTaps>
  [[gnu::always_inline]] void add_runs(Lanes<T>* sums, const Run<T>*& run, const T* seen) const {
    for (; run != taps.end() && run->count == kTaps; ++run) {
      Lanes<T> weight[kTaps];
      RINGGRAD_UNROLL
      for (int tap = 0; tap < kTaps; ++tap) weight[tap] = broadcast(run->weight[tap]);
      RINGGRAD_UNROLL
      for (int i = 0; i < kRows + kTaps - 1; ++i) {
        const Lanes<T> pixels = in_register(load_lanes(seen + run->offset + i * taps.pitch()));
        RINGGRAD_UNROLL
        for (int tap = 0; tap < kTaps; ++tap)
          if (i >= tap && i - tap < kRows) sums[i - tap] += weight[tap] * pixels;
      }
    }
  }
};

}  // namespace

bool is_depthwise(const ConvShape& shape) {
  const auto fits = [](int64_t taps, int64_t dilation, int64_t stride, int64_t windows) {
    const int64_t reach = (taps - 1) * dilation;
    return reach <= 4 * windows * stride + 16 && stride <= reach + 8;
  };
  if (shape.c != 1 || shape.p == 0 || shape.q == 0) return false;
  const Piece piece = Pieces(shape.p, shape.q).largest();
  return fits(shape.r, shape.dilation.h, shape.stride.h, piece.rows) &&
         fits(shape.s, shape.dilation.w, shape.stride.w, piece.columns);
}

template <class T>
void depthwise(Stream stream, const ConvShape& shape, const T* x, const T* w, const T* bias, T* y) {
  const Pieces pieces(shape.p, shape.q);
  const PaddedPlane most = seen_by(shape, pieces.largest(), pieces.largest().columns);
  const int64_t taps = shape.r * shape.s;
  const int64_t planes = shape.n * shape.groups;
  parallel_for(
      stream, planes * pieces.count(), cpu::grain(3 * most.size<T>()),
      [&](int64_t begin, int64_t end) {
        const Workspace<T> padded(stream, most.size<T>());
        Taps<T> window(stream, taps, shape.stride.h * most.row_size());
        for (int64_t unit = begin; unit < end; ++unit) {
          const int64_t plane = unit % planes;
          const Piece piece = pieces(unit / planes);
          const PaddedPlane seen = seen_by(shape, piece, pieces.largest().columns);
          if (unit == begin || plane == 0) std::fill_n(padded.data(), most.size<T>(), T{0});
          seen.copy(padded.data(), x + plane * shape.h * shape.w, shape.h, shape.w);
          for (int64_t k = 0; k < shape.k; ++k) {
            const int64_t filter = plane % shape.groups * shape.k + k;
            window.clear();
            add_window(window, shape, seen, w + filter * taps);
            T* const to =
                y + ((plane * shape.k + k) * shape.p + piece.row) * shape.q + piece.column;
            Sums<T>{window,     padded.data(), to, nullptr, bias ? bias[filter] : T{0}, shape.q, 1,
                    piece.rows, piece.columns}
                .run();
          }
        }
      });
}

namespace {

int64_t floor_div(int64_t a, int64_t b) { return a >= 0 ? a / b : -cpu::ceil_div(-a, b); }

// Returns the part of dy from which a piece of dx receives, for one filter after the other.
PaddedPlane sources_of(const ConvShape& shape, const Piece& piece) {
  const auto first = [](int64_t place, int64_t padding, int64_t taps, int64_t dilation,
                        int64_t stride) {
    return floor_div(place + padding - (taps - 1) * dilation, stride);
  };
  const int64_t top = first(piece.row, shape.padding.h, shape.r, shape.dilation.h, shape.stride.h);
  const int64_t left =
      first(piece.column, shape.padding.w, shape.s, shape.dilation.w, shape.stride.w);
  return {
      .top = top,
      .left = left,
      .rows = (piece.row + piece.rows - 1 + shape.padding.h) / shape.stride.h - top + 1,
      .columns = (piece.column + piece.columns - 1 + shape.padding.w) / shape.stride.w - left + 1};
}

// Adds the taps through which pixel (row, column) of the image was seen. The last tap comes first,
// so that their windows are in order.
template <class T>
void add_seers(Taps<T>& taps, const ConvShape& shape, const PaddedPlane& sources, int64_t row,
               int64_t column, const T* w, int64_t before) {
  for (int64_t s = shape.s - 1; s >= 0; --s) {
    const int64_t j = column + shape.padding.w - s * shape.dilation.w;
    if (j % shape.stride.w != 0) continue;
    for (int64_t r = shape.r - 1; r >= 0; --r) {
      const int64_t i = row + shape.padding.h - r * shape.dilation.h;
      if (i % shape.stride.h != 0) continue;
      taps.add(
          before + sources.at(i / shape.stride.h - sources.top, j / shape.stride.w - sources.left),
          w[r * shape.s + s]);
    }
  }
}

}  // namespace

template <class T>
void depthwise_backward_input(Stream stream, const ConvShape& shape, const T* dy, const T* w,
                              const T* addend, T* dx) {
  const Pieces pieces(shape.h, shape.w);
  const int64_t taps = shape.r * shape.s;
  const int64_t planes = shape.n * shape.groups;
  parallel_for(stream, planes * pieces.count(),
               cpu::grain(3 * pieces.largest().rows * pieces.largest().columns),
               [&](int64_t begin, int64_t end) {
                 for (int64_t unit = begin; unit < end; ++unit) {
                   const int64_t plane = unit % planes;
                   const int64_t filter = plane % shape.groups * shape.k;
                   const Piece piece = pieces(unit / planes);
                   const PaddedPlane sources = sources_of(shape, piece);
                   const int64_t size = sources.size<T>();
                   const Workspace<T> padded(stream, shape.k * size);
                   std::fill_n(padded.data(), shape.k * size, T{0});
                   for (int64_t k = 0; k < shape.k; ++k)
                     sources.copy(padded.data() + k * size,
                                  dy + (plane * shape.k + k) * shape.p * shape.q, shape.p, shape.q);
                   Taps<T> seers(stream, shape.k * taps, sources.row_size());
                   for (int64_t i = 0; i < std::min(shape.stride.h, piece.rows); ++i)
                     for (int64_t j = 0; j < std::min(shape.stride.w, piece.columns); ++j) {
                       const int64_t row = piece.row + i;
                       const int64_t column = piece.column + j;
                       const int64_t place = (plane * shape.h + row) * shape.w + column;
                       seers.clear();
                       for (int64_t k = 0; k < shape.k; ++k)
                         add_seers(seers, shape, sources, row, column, w + (filter + k) * taps,
                                   k * size);
                       Sums<T>{seers,
                               padded.data(),
                               dx + place,
                               addend ? addend + place : nullptr,
                               T{0},
                               shape.stride.h * shape.w,
                               shape.stride.w,
                               cpu::ceil_div(piece.rows - i, shape.stride.h),
                               cpu::ceil_div(piece.columns - j, shape.stride.w)}
                           .run();
                     }
                 }
               });
}

template void depthwise(Stream, const ConvShape&, const float*, const float*, const float*, float*);
template void depthwise(Stream, const ConvShape&, const double*, const double*, const double*,
                        double*);
template void depthwise_backward_input(Stream, const ConvShape&, const float*, const float*,
                                       const float*, float*);
template void depthwise_backward_input(Stream, const ConvShape&, const double*, const double*,
                                       const double*, double*);

}  // namespace ringgrad::conv
