// The weight gradients of depthwise convolutions. Tiles of dy stay in registers while they are
// multiplied with the inputs of every tap.
#include "ringgrad/core/cpu/conv/depthwise.h"
#include "ringgrad/core/cpu/conv/taps.h"

namespace ringgrad::conv {
namespace {

using cpu::ConvShape;
using cpu::Workspace;

template <class T>
struct Products {
  const Taps<T>& taps;
  const T* x;  // padded
  const T* dy;
  int64_t dy_pitch;
  Piece piece;
  Lanes<T>* sums;  // kMostInRun for each run

  void run() const {
    for_blocks_of_rows(piece.rows, [this]<int kRows>(int64_t row) {
      int64_t column = 0;
      for (; column + kWidth <= piece.columns; column += kWidth) tile<kRows, true>(row, column);
      if (column < piece.columns) tile<kRows, false>(row, column);
    });
  }

 private:
  static constexpr int kWidth = kLanesOf<T>;

  // Lanes beyond the row are zeroed in both factors, because zero times infinity is NaN.
  template <int kRows, bool kWhole>
  [[gnu::noinline]] void tile(int64_t row, int64_t column) const {
    const int64_t count = std::min<int64_t>(kWidth, piece.columns - column);
    const T* const first = dy + row * dy_pitch + column;
    Lanes<T> grad[kRows];
    RINGGRAD_UNROLL
    for (int i = 0; i < kRows; ++i)
      grad[i] = kWhole ? load_lanes(first + i * dy_pitch)
                       : load_lanes(first + i * dy_pitch, static_cast<int>(count));
    const T* const seen = x + row * taps.pitch() + column;
    Lanes<T>* sum = sums;
    for (const Run<T>* run = taps.begin(); run != taps.end();)
      if (run->count == 4)
        add_runs<kRows, 4, kWhole>(sum, run, grad, seen, count);
      else if (run->count == 3)
        add_runs<kRows, 3, kWhole>(sum, run, grad, seen, count);
      else if (run->count == 2)
        add_runs<kRows, 2, kWhole>(sum, run, grad, seen, count);
      else
        add_runs<kRows, 1, kWhole>(sum, run, grad, seen, count);
  }
  template <int kRows, int kTaps, bool kWhole>
  [[gnu::always_inline]] void add_runs(Lanes<T>*& sum, const Run<T>*& run, const Lanes<T>* grad,
                                       const T* seen, int64_t count) const {
    const auto kept = are_first<T>(count);
    for (; run != taps.end() && run->count == kTaps; ++run, sum += kMostInRun) {
      Lanes<T> total[kTaps];
      RINGGRAD_UNROLL
      for (int tap = 0; tap < kTaps; ++tap) total[tap] = sum[tap];
      RINGGRAD_UNROLL
      for (int i = 0; i < kRows + kTaps - 1; ++i) {
        Lanes<T> pixels = in_register(load_lanes(seen + run->offset + i * taps.pitch()));
        if constexpr (!kWhole) pixels = kept ? pixels : Lanes<T>{};
        RINGGRAD_UNROLL
        for (int tap = 0; tap < kTaps; ++tap)
          if (i >= tap && i - tap < kRows) total[tap] += grad[i - tap] * pixels;
      }
      RINGGRAD_UNROLL
      for (int tap = 0; tap < kTaps; ++tap) sum[tap] = total[tap];
    }
  }
};

// Adds the lanes to the sums [r, s] in double, and clears them.
template <class T>
void fold(const ConvShape& shape, const Taps<T>& taps, Lanes<T>* lanes, double* sums) {
  const Run<T>* run = taps.begin();
  int64_t tap = 0;
  for_each_tap(shape, [&](int64_t r, int64_t s) {
    for (int lane = 0; lane < kLanesOf<T>; ++lane) sums[r * shape.s + s] += lanes[tap][lane];
    lanes[tap] = Lanes<T>{};
    if (++tap < run->count) return;
    ++run;
    lanes += kMostInRun;
    tap = 0;
  });
}

}  // namespace

// Units are groups × parts of their planes' pieces. Each has its own sums, which are added in
// order.
template <class T>
void depthwise_backward_weight(Stream stream, const ConvShape& shape, const T* x, const T* dy,
                               T* dw) {
  constexpr int64_t kUnits = 64;
  const Pieces pieces(shape.p, shape.q);
  const PaddedPlane most = seen_by(shape, pieces.largest(), pieces.largest().columns);
  const int64_t taps = shape.r * shape.s;
  const int64_t filters = shape.groups * shape.k;
  const int64_t weights = filters * taps;
  const int64_t count = shape.n * pieces.count();
  const int64_t parts = std::clamp<int64_t>(kUnits / shape.groups, 1, std::max<int64_t>(1, count));
  const Workspace<double> partial(stream, parts * weights);
  parallel_for(stream, shape.groups * parts, 1, [&](int64_t unit, int64_t) {
    const int64_t group = unit / parts;
    const int64_t part = unit % parts;
    const int64_t first = count * part / parts;
    double* const sums = partial.data() + part * weights + group * shape.k * taps;
    const Workspace<T> padded(stream, most.size<T>());
    const Workspace<Lanes<T>> lanes(stream, shape.k * taps * kMostInRun);
    Taps<T> window(stream, taps, shape.stride.h * most.row_size());
    add_window<T>(window, shape, most, nullptr);
    std::fill_n(sums, shape.k * taps, 0.0);
    std::fill_n(lanes.data(), shape.k * taps * kMostInRun, Lanes<T>{});
    int64_t terms = 0;
    for (int64_t i = first; i < count * (part + 1) / parts; ++i) {
      const Piece piece = pieces(i / shape.n);
      const int64_t plane = i % shape.n * shape.groups + group;
      const PaddedPlane seen = seen_by(shape, piece, pieces.largest().columns);
      if (i == first || i % shape.n == 0) std::fill_n(padded.data(), most.size<T>(), T{0});
      seen.copy(padded.data(), x + plane * shape.h * shape.w, shape.h, shape.w);
      for (int64_t k = 0; k < shape.k; ++k)
        Products<T>{window,
                    padded.data(),
                    dy + ((plane * shape.k + k) * shape.p + piece.row) * shape.q + piece.column,
                    shape.q,
                    piece,
                    lanes.data() + k * taps * kMostInRun}
            .run();
      terms += piece.rows * piece.columns;
      if (terms < cpu::kMaxTerms && i + 1 < count * (part + 1) / parts) continue;
      for (int64_t k = 0; k < shape.k; ++k)
        fold(shape, window, lanes.data() + k * taps * kMostInRun, sums + k * taps);
      terms = 0;
    }
  });
  parallel_for(stream, weights, cpu::grain(parts), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      double sum = 0;
      for (int64_t part = 0; part < parts; ++part) sum += partial[part * weights + i];
      dw[i] = static_cast<T>(sum);
    }
  });
}

template void depthwise_backward_weight(Stream, const ConvShape&, const float*, const float*,
                                        float*);
template void depthwise_backward_weight(Stream, const ConvShape&, const double*, const double*,
                                        double*);

}  // namespace ringgrad::conv
