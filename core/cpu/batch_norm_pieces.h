// The four loops of batch normalisation over one piece of memory: n elements whose channels alternate with period
// kWidth (1, or 16 in the channel-blocked layout). Each stands here twice: for any type and width, and with a vector
// for the 16 channels of a pixel where the type is float or bfloat16, which is what training runs. Private to core/cpu.
//
// Per-channel arguments point to the piece's first channel. Results depend on n alone.
#pragma once

#include "ringgrad/core/cpu/batch_norm.h"
#include "ringgrad/core/cpu/conv/vector.h"

namespace ringgrad::cpu {

template <class T, int kWidth>
inline constexpr bool kHasVectors = kWidth == kChannelBlock &&
                                    (std::is_same_v<T, float> || std::is_same_v<T, bfloat16>);

using conv::load, conv::store, conv::Vector;

// sum = Σ term(i) over the offsets i of a piece's pixels; two sums, so that an addition need not wait for the last one.
template <class Term>
[[gnu::always_inline]] inline void sum_pixels(int64_t n, Vector& sum, const Term& term) {
  Vector even{}, odd{};
  int64_t i = 0;
  for (; i + 2 * kChannelBlock <= n; i += 2 * kChannelBlock) {
    even += term(i);
    odd += term(i + kChannelBlock);
  }
  if (i < n) even += term(i);
  sum = even + odd;
}

// mean ≈ the mean of x, rest = Σ (x - mean), what its rounding left over, and squares = Σ (x - mean)², for each of the
// kWidth channels.
template <class T, int kWidth, class A = Accumulator<T>>
void piece_statistics(int64_t n, const T* x, A* mean, A* rest, A* squares) {
  if constexpr (kHasVectors<T, kWidth>) {
    for (int64_t lane = 0; lane < kWidth; lane += conv::kLanes) {
      Vector total, left{}, deviations;
      sum_pixels(n, total, [x, lane](int64_t i) { return load(x + i + lane); });
      const Vector m = total * (static_cast<float>(kWidth) / static_cast<float>(n));
      sum_pixels(n, deviations, [x, lane, m, &left](int64_t i) {
        const Vector deviation = load(x + i + lane) - m;
        left += deviation;
        return deviation * deviation;
      });
      store(mean + lane, m);
      store(rest + lane, left);
      store(squares + lane, deviations);
    }
  } else {
    sum_piece<kWidth>(n, mean, [x](int64_t i, int) { return static_cast<A>(x[i]); });
    for (int w = 0; w < kWidth; ++w) mean[w] *= static_cast<A>(kWidth) / static_cast<A>(n);
    const PerLane<kWidth, A> m(mean);
    sum_piece<kWidth>(n, rest, [x, &m](int64_t i, int lane) { return static_cast<A>(x[i]) - m[lane]; });
    sum_piece<kWidth>(n, squares, [x, &m](int64_t i, int lane) {
      const A deviation = static_cast<A>(x[i]) - m[lane];
      return deviation * deviation;
    });
  }
}

// y = act(scale (x - mean) + shift + residual)
template <class T, int kWidth, bool kResidual, bool kRelu, class A = Accumulator<T>>
void normalize_piece(int64_t n, T* y, const T* x, const T* residual, const A* mean, const A* scale, const A* shift) {
  if constexpr (kHasVectors<T, kWidth>) {
    for (int64_t lane = 0; lane < kWidth; lane += conv::kLanes) {
      const Vector m = load(mean + lane), a = load(scale + lane), b = load(shift + lane);
      for (int64_t i = lane; i < n; i += kWidth) {
        Vector value = (load(x + i) - m) * a + b;
        if constexpr (kResidual) value += load(residual + i);
        store(y + i, kRelu ? conv::relu(value) : value);
      }
    }
  } else {
    const PerLane<kWidth, A> m(mean), a(scale), b(shift);
    for_each_element<kWidth>(n, [=](int64_t i, int w) {
      A value = (static_cast<A>(x[i]) - m[w]) * a[w] + b[w];
      if constexpr (kResidual) value += static_cast<A>(residual[i]);
      if constexpr (kRelu) value = value > 0 || value != value ? value : A{0};
      y[i] = static_cast<T>(value);
    });
  }
}

// g = dy where the rectified output was positive.
template <bool kRelu, class A, class T>
A gradient(const T* dy, const T* y, int64_t i) {
  const A value = static_cast<A>(dy[i]);
  if constexpr (kRelu) return static_cast<A>(y[i]) > 0 ? value : A{0};
  return value;
}
template <bool kRelu, class T>
[[gnu::always_inline]] inline Vector gradient_vector(const T* dy, const T* y, int64_t i) {
  if constexpr (kRelu) return load(y + i) > 0 ? load(dy + i) : Vector{};
  return load(dy + i);
}

// sum_g = Σ g and sum_centered = Σ g (x - mean)
template <class T, int kWidth, bool kRelu, class A = Accumulator<T>>
void gradient_sums(int64_t n, const T* dy, const T* x, const T* y, const A* mean, A* sum_g, A* sum_centered) {
  if constexpr (kHasVectors<T, kWidth>) {
    for (int64_t lane = 0; lane < kWidth; lane += conv::kLanes) {
      const Vector m = load(mean + lane);
      Vector total{}, centered{};
      for (int64_t i = lane; i < n; i += kWidth) {
        const Vector g = gradient_vector<kRelu>(dy, y, i);
        total += g;
        centered += g * (load(x + i) - m);
      }
      store(sum_g + lane, total);
      store(sum_centered + lane, centered);
    }
  } else {
    const PerLane<kWidth, A> m(mean);
    sum_piece<kWidth>(n, sum_g, [=](int64_t i, int) { return gradient<kRelu, A>(dy, y, i); });
    sum_piece<kWidth>(n, sum_centered, [=](int64_t i, int lane) {
      return gradient<kRelu, A>(dy, y, i) * (static_cast<A>(x[i]) - m[lane]);
    });
  }
}

// dx = a g + b (x - mean) + c, where b = 0 without (x - mean), which may be infinite;  dresidual = g
template <class T, int kWidth, bool kRelu, bool kResidual, class A = Accumulator<T>>
void gradient_piece(int64_t n, T* dx, T* dresidual, const T* dy, const T* x, const T* y, const A* mean, const A* a,
                    const A* b, const A* c) {
  if constexpr (kHasVectors<T, kWidth>) {
    for (int64_t lane = 0; lane < kWidth; lane += conv::kLanes) {
      const Vector m = load(mean + lane), a_ = load(a + lane), b_ = load(b + lane), c_ = load(c + lane);
      for (int64_t i = lane; i < n; i += kWidth) {
        const Vector g = gradient_vector<kRelu>(dy, y, i);
        const Vector apart = b_ == 0 ? Vector{} : load(x + i) - m;
        store(dx + i, a_ * g + b_ * apart + c_);
        if constexpr (kResidual) store(dresidual + i, g);
      }
    }
  } else {
    const PerLane<kWidth, A> m(mean), a_(a), b_(b), c_(c);
    for_each_element<kWidth>(n, [=](int64_t i, int w) {
      const A apart = b_[w] == 0 ? A{0} : static_cast<A>(x[i]) - m[w];
      dx[i] = static_cast<T>(a_[w] * gradient<kRelu, A>(dy, y, i) + b_[w] * apart + c_[w]);
    });
    // A second loop over what is in the first-level cache by now: g++ vectorises loops with one store.
    if constexpr (kResidual)
      for_each_element<kWidth>(n, [=](int64_t i, int) { dresidual[i] = static_cast<T>(gradient<kRelu, A>(dy, y, i)); });
  }
}

}  // namespace ringgrad::cpu
