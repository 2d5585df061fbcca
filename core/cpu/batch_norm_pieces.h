// The four loops of batch normalisation over one piece of memory. A piece has n elements: kWidth
// channels in each pixel, and `step` elements from one pixel to the next. Each loop is written
// twice. One uses a vector for the 16 channels of a pixel, which is what training runs. The other
// handles one channel of any type. Private to core/cpu.
//
// Per-channel arguments point to the piece's first channel. Results depend on n alone.
#pragma once

#include <limits>

#include "ringgrad/core/cpu/batch_norm.h"
#include "ringgrad/core/cpu/conv/vector.h"

namespace ringgrad::cpu {

template <class T, int kWidth>
inline constexpr bool kHasVectors = kWidth == kChannelBlock &&
                                    (std::is_same_v<T, float> || std::is_same_v<T, bfloat16>);

using conv::load, conv::store, conv::store_or_stream, conv::Vector;

// Returns true if an output of the loops below bypasses the caches: it is large, and its pixels are
// whole cache lines in memory order.
template <class T>
bool should_stream(const T* y, const ChannelRows& rows) {
  return std::is_same_v<T, float> && rows.width == kChannelBlock && !rows.interleaved() &&
         conv::should_stream(y, rows.images * rows.rows * rows.length);
}

// sum = Σ term(i) over the offsets i of a piece's pixels. Two running sums keep an addition from
// waiting for the previous one.
template <class Term>
[[gnu::always_inline]] inline void sum_pixels(int64_t pixels, int64_t step, Vector& sum,
                                              const Term& term) {
  Vector even{};
  Vector odd{};
  int64_t i = 0;
  for (; pixels >= 2; pixels -= 2, i += 2 * step) {
    even += term(i);
    odd += term(i + step);
  }
  if (pixels > 0) even += term(i);
  sum = even + odd;
}

// Handles numbers near the end of the range. Their sum and the sum of their deviations may
// overflow, although the mean is finite. The mean is then the sum of x / count. `rest`, which would
// correct its last digit, is 0, and the squares are infinite.
template <class A, class Number>
void mend_overflow(int64_t count, const Number& number, A& mean, A& rest, A& squares) {
  if (std::isfinite(mean) && std::isfinite(rest)) return;
  mean = sum_piece<A>(count, [=](int64_t i) { return number(i) / static_cast<A>(count); });
  rest = 0;
  squares = std::numeric_limits<A>::infinity();
}

// Computes for each of the kWidth channels: mean ≈ the mean of x; rest = Σ (x - mean), the part
// that rounding of the mean left over; squares = Σ (x - mean)².
template <class T, int kWidth, class Step, class A = Accumulator<T>>
void piece_statistics(int64_t n, Step step, const T* x, A* mean, A* rest, A* squares) {
  if constexpr (kHasVectors<T, kWidth>) {
    for (int64_t lane = 0; lane < kWidth; lane += conv::kLanes) {
      Vector total;
      Vector left{};
      Vector deviations;
      sum_pixels(n / kWidth, step, total, [x, lane](int64_t i) { return load(x + i + lane); });
      const Vector m = total * (static_cast<float>(kWidth) / static_cast<float>(n));
      sum_pixels(n / kWidth, step, deviations, [x, lane, m, &left](int64_t i) {
        const Vector deviation = load(x + i + lane) - m;
        left += deviation;
        return deviation * deviation;
      });
      store(mean + lane, m);
      store(rest + lane, left);
      store(squares + lane, deviations);
    }
    for (int w = 0; w < kWidth; ++w)
      mend_overflow<A>(
          n / kWidth, [x, w, step](int64_t i) { return static_cast<A>(x[w + i * step]); }, mean[w],
          rest[w], squares[w]);
  } else {
    for (int w = 0; w < kWidth; ++w, ++x) {
      const int64_t count = n / kWidth;
      const A m = sum_piece<A>(count, [=](int64_t i) { return static_cast<A>(x[i * step]); }) *
                  (1 / static_cast<A>(count));
      mean[w] = m;
      rest[w] = sum_piece<A>(count, [=](int64_t i) { return static_cast<A>(x[i * step]) - m; });
      squares[w] = sum_piece<A>(count, [=](int64_t i) {
        const A deviation = static_cast<A>(x[i * step]) - m;
        return deviation * deviation;
      });
      mend_overflow<A>(
          count, [=](int64_t i) { return static_cast<A>(x[i * step]); }, mean[w], rest[w],
          squares[w]);
    }
  }
}

// y = act(scale (x - mean) + shift + residual). `streams`: see should_stream. If `positive` is not
// null, it receives a word for each pixel of 16 channels, with a bit for each y > 0.
template <class T, int kWidth, bool kResidual, bool kRelu, class Step, class A = Accumulator<T>>
void normalize_piece(int64_t n, Step step, T* y, const T* x, const T* residual, const A* mean,
                     const A* scale, const A* shift, [[maybe_unused]] bool streams,
                     [[maybe_unused]] uint16_t* positive) {
  if constexpr (kHasVectors<T, kWidth>) {
    for (int64_t lane = 0; lane < kWidth; lane += conv::kLanes) {
      const Vector m = load(mean + lane);
      const Vector a = load(scale + lane);
      const Vector b = load(shift + lane);
      for (int64_t i = lane, end = n / kWidth * step; i < end; i += step) {
        Vector value = (load(x + i) - m) * a + b;
        if constexpr (kResidual) value += load(residual + i);
        if (kRelu && positive) {
          uint16_t& word = positive[i / kWidth];
          word =
              static_cast<uint16_t>((lane == 0 ? 0 : word) | conv::positive_lanes(value) << lane);
        }
        store_or_stream(y + i, kRelu ? conv::relu(value) : value, streams);
      }
    }
  } else {
    for (int w = 0; w < kWidth; ++w) {
      const A m = mean[w];
      const A a = scale[w];
      const A b = shift[w];
      for (int64_t i = w, end = n / kWidth * step; i < end; i += step) {
        A value = (static_cast<A>(x[i]) - m) * a + b;
        if constexpr (kResidual) value += static_cast<A>(residual[i]);
        if constexpr (kRelu) value = value > 0 || value != value ? value : A{0};
        y[i] = static_cast<T>(value);
      }
    }
  }
}

// g, the part of dy that counts: all of it, or the part where the rectified output was positive.
// Either the output or its bits (see normalize_piece) tell which. from(offset) gives the part that
// begins at a piece's offset.
struct All {
  All from(int64_t) const { return {}; }
  template <class A, class T>
  A number(const T* dy, int64_t i) const {
    return static_cast<A>(dy[i]);
  }
  template <class T>
  [[gnu::always_inline]] Vector vector(const T* dy, int64_t i) const {
    return load(dy + i);
  }
};
template <class T>
struct WherePositive {
  const T* y;
  WherePositive from(int64_t offset) const { return {y + offset}; }
  template <class A>
  A number(const T* dy, int64_t i) const {
    return static_cast<A>(y[i]) > 0 ? static_cast<A>(dy[i]) : A{0};
  }
  [[gnu::always_inline]] Vector vector(const T* dy, int64_t i) const {
    return load(y + i) > 0 ? load(dy + i) : Vector{};
  }
};
struct WhereBitIsSet {
  const uint16_t* words;
  WhereBitIsSet from(int64_t offset) const { return {words + offset / kChannelBlock}; }
  template <class T>
  [[gnu::always_inline]] Vector vector(const T* dy, int64_t i) const {
    return conv::keep_lanes(words[i / kChannelBlock] >> i % kChannelBlock, load(dy + i));
  }
};

// Calls body(g) with the kind that `y` stands for: undefined, an output, or its bits.
template <class T, int kWidth, class Body>
void visit_gradient(const Tensor& y, Body&& body) {
  if (!y.defined()) return body(All{});
  if constexpr (kHasVectors<T, kWidth>)
    if (y.dtype() == DType::UInt8)
      return body(WhereBitIsSet{reinterpret_cast<const uint16_t*>(y.data<uint8_t>())});
  body(WherePositive<T>{y.data<T>()});
}

// sum_g = Σ g and sum_centered = Σ g (x - mean).
template <class T, int kWidth, class Step, class Gradient, class A = Accumulator<T>>
void gradient_sums(int64_t n, Step step, const T* dy, const T* x, Gradient g, const A* mean,
                   A* sum_g, A* sum_centered) {
  if constexpr (kHasVectors<T, kWidth>) {
    for (int64_t lane = 0; lane < kWidth; lane += conv::kLanes) {
      const Vector m = load(mean + lane);
      Vector total{};
      Vector centered{};
      for (int64_t i = lane, end = n / kWidth * step; i < end; i += step) {
        const Vector counted = g.vector(dy, i);
        total += counted;
        centered += counted * (load(x + i) - m);
      }
      store(sum_g + lane, total);
      store(sum_centered + lane, centered);
    }
  } else {
    for (int w = 0; w < kWidth; ++w) {
      const A m = mean[w];
      const auto counted = [=](int64_t i) { return g.template number<A>(dy, w + i * step); };
      sum_g[w] = sum_piece<A>(n / kWidth, counted);
      sum_centered[w] = sum_piece<A>(n / kWidth, [=](int64_t i) {
        return counted(i) * (static_cast<A>(x[w + i * step]) - m);
      });
    }
  }
}

// dx = scale (g - mean_g - slope (x - mean)) and dresidual = g. If slope = 0, the product with (x -
// mean) is left out, because that may be infinite.
template <class T, int kWidth, bool kResidual, class Step, class Gradient, class A = Accumulator<T>>
void gradient_piece(int64_t n, Step step, T* dx, T* dresidual, const T* dy, const T* x, Gradient g,
                    const A* mean, const A* scale, const A* mean_g, const A* slope,
                    [[maybe_unused]] bool streams) {
  if constexpr (kHasVectors<T, kWidth>) {
    for (int64_t lane = 0; lane < kWidth; lane += conv::kLanes) {
      const Vector m = load(mean + lane);
      const Vector a = load(scale + lane);
      const Vector b = load(mean_g + lane);
      const Vector c = load(slope + lane);
      for (int64_t i = lane, end = n / kWidth * step; i < end; i += step) {
        const Vector counted = g.vector(dy, i);
        const Vector apart = c == 0 ? Vector{} : load(x + i) - m;
        store_or_stream(dx + i, a * (counted - b - c * apart), streams);
        if constexpr (kResidual) store_or_stream(dresidual + i, counted, streams);
      }
    }
  } else {
    for (int w = 0; w < kWidth; ++w) {
      const A m = mean[w];
      const A a = scale[w];
      const A b = mean_g[w];
      const A c = slope[w];
      const int64_t end = n / kWidth * step;
      for (int64_t i = w; i < end; i += step) {
        const A apart = c == 0 ? A{0} : static_cast<A>(x[i]) - m;
        dx[i] = static_cast<T>(a * (g.template number<A>(dy, i) - b - c * apart));
      }
      // This second loop reads what is now in the first-level cache. g++ only vectorises loops with
      // one store.
      if constexpr (kResidual)
        for (int64_t i = w; i < end; i += step)
          dresidual[i] = static_cast<T>(g.template number<A>(dy, i));
    }
  }
}

}  // namespace ringgrad::cpu
