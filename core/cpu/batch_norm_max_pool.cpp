// Batch normalisation and max pooling on the CPU in one pass. A normalised value that is not the
// maximum of its window is never written, forward or backward. x is read once for its statistics,
// once for y and once for dx. All other arrays except dx are smaller by the size of a window.
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/cpu/batch_norm.h"
#include "ringgrad/core/cpu/conv/vector.h"
#include "ringgrad/core/cpu/widen.h"

namespace ringgrad::cpu {
namespace {

// The channels of one pixel that are handled together, and the distance to the next pixel's. They
// are a vector of a block's 16 channels, or one channel of any type.
template <class T>
struct BlockedChannels {
  using Value = conv::Vector;
  using Places = conv::UnalignedIntegers;
  static constexpr int64_t kTogether = conv::kLanes;
  static constexpr int64_t kStep = kChannelBlock;
  static Value load(const T* from) { return conv::load(from); }
  static Value coefficients(const float* from) { return conv::load(from); }
  static void store(T* to, Value value) { conv::store(to, value); }
};
template <class T>
struct OneChannel {
  using Value = Accumulator<T>;
  using Places = int32_t;
  static constexpr int64_t kTogether = 1;
  static constexpr int64_t kStep = 1;
  static Value load(const T* from) { return static_cast<Value>(*from); }
  static Value coefficients(const Value* from) { return *from; }
  static void store(T* to, Value value) { *to = static_cast<T>(value); }
};

// Calls body(in, out, row, channel) for each row of windows and each group of channels handled
// together. `in` is the offset of their plane's first pixel in x, `out` the row's offset in y,
// `row` the row's number, and `channel` the first channel.
template <class Channels, class Body>
void for_each_row(Stream stream, const Tensor& x, const Tensor& y, const Body& body) {
  const int64_t step = Channels::kStep;
  const int64_t blocks = ceil_div(x.shape()[1], step);
  const int64_t rows = y.shape()[2];
  const int64_t in = x.shape()[2] * x.shape()[3] * step;
  const int64_t out = y.shape()[3] * step;
  parallel_for(stream, x.shape()[0] * blocks * rows, grain(in / rows),
               [&](int64_t begin, int64_t end) {
                 for (int64_t unit = begin; unit < end; ++unit)
                   for (int64_t lane = 0; lane < step; lane += Channels::kTogether)
                     body(unit / rows * in + lane, unit * out + lane, unit % rows,
                          unit / rows % blocks * step + lane);
               });
}

// Calls run.operator()<Channels, T>(window) for x's type and layout. For the usual size of windows
// `window` is a constant.
template <class Run>
void visit_channels(const Tensor& x, int64_t window, Run&& run) {
  const auto sized = [&]<class Channels, class T>() {
    window == 2 ? run.template operator()<Channels, T>(std::integral_constant<int64_t, 2>())
                : run.template operator()<Channels, T>(window);
  };
  if (x.is_channel_blocked())
    visit_blocked(x, [&]<class T>() { sized.template operator()<BlockedChannels<T>, T>(); });
  else
    visit_floating("batch_norm", x.dtype(),
                   [&]<class T>() { sized.template operator()<OneChannel<T>, T>(); });
}

// Returns true if t has one element for each window of x.
bool has_windows(const Tensor& t, const Tensor& x, int64_t window) {
  const Shape& small = t.shape();
  const Shape& large = x.shape();
  return small == Shape{large[0], large[1], large[2] / window, large[3] / window} &&
         t.layout() == x.layout() && lies_like(t, t);
}

void batch_norm_max_pool_cpu(Stream stream, const Tensor& y, const Tensor& winners,
                             const Tensor& index, const Tensor& x, const Tensor& mean,
                             const Tensor& var, const Tensor& weight, const Tensor& bias,
                             double eps, bool relu, int64_t window) {
  ASSERT(lies_like(x, x));
  ASSERT(has_windows(y, x, window) && has_windows(winners, x, window) &&
         has_windows(index, x, window));
  visit_channels(x, window, [&]<class Channels, class T>(auto size) {
    using Value = typename Channels::Value;
    using Places = typename Channels::Places;
    const Normalization<Accumulator<T>> of(stream, x, mean, var, weight, bias, eps);
    const int64_t width = x.shape()[3];
    const int64_t windows = y.shape()[3];
    const T* const image = x.data<T>();
    T* const maxima = y.data<T>();
    T* const values = winners.data<T>();
    int32_t* const places = index.data<int32_t>();
    for_each_row<Channels>(
        stream, x, y, [=, &of](int64_t in, int64_t out, int64_t row, int64_t channel) {
          const Value mean_of = Channels::coefficients(&of.mean[channel]);
          const Value scale = Channels::coefficients(&of.scale[channel]);
          const Value shift = Channels::coefficients(&of.shift[channel]);
          const T* const from = image + in;
          for (int64_t j = 0; j < windows; ++j, out += Channels::kStep) {
            const int64_t first = row * size * width + j * size;
            Value winner = Channels::load(from + first * Channels::kStep);
            Value best = (winner - mean_of) * scale + shift;
            Places place = Places{} + static_cast<int32_t>(first);
            for (int64_t h = 0; h < size; ++h)
              for (int64_t w = 0; w < size; ++w) {
                const int64_t pixel = first + h * width + w;
                const Value v = Channels::load(from + pixel * Channels::kStep);
                const Value normal = (v - mean_of) * scale + shift;
                // Takes the value if it is larger, or the first NaN.
                const auto better = ((normal <= best) == 0) & (best == best);
                best = better ? normal : best;
                winner = better ? v : winner;
                place = better ? Places{} + static_cast<int32_t>(pixel) : place;
              }
            Channels::store(maxima + out, relu ? (best < 0 ? Value{} : best) : best);
            Channels::store(values + out, winner);
            *reinterpret_cast<Places*>(places + out) = place;
          }
        });
  });
}

void batch_norm_max_pool_backward_cpu(Stream stream, const Tensor& dx, const Tensor& dy,
                                      const Tensor& index, const Tensor& x, const Tensor& y,
                                      const Tensor& mean, const Tensor& var, const Tensor& weight,
                                      const Tensor& sum_dy, const Tensor& sum_dy_xhat, double eps,
                                      double count, int64_t window) {
  ASSERT(lies_like(x, x) && lies_like(dx, x));
  ASSERT(has_windows(dy, x, window) && has_windows(index, x, window) &&
         (!y.defined() || has_windows(y, x, window)));
  visit_channels(x, window, [&]<class Channels, class T>(auto size) {
    using Value = typename Channels::Value;
    using Places = typename Channels::Places;
    const NormalizationGradient<Accumulator<T>> of(stream, x, mean, var, weight, sum_dy,
                                                   sum_dy_xhat, eps, count);
    const int64_t height = x.shape()[2];
    const int64_t width = x.shape()[3];
    const int64_t rows = dy.shape()[2];
    const int64_t windows = dy.shape()[3];
    const T* const image = x.data<T>();
    T* const gradient = dx.data<T>();
    const T* const incoming = dy.data<T>();
    const T* const rectified = y.defined() ? y.data<T>() : nullptr;
    const int32_t* const places = index.data<int32_t>();
    for_each_row<Channels>(
        stream, x, dy, [=, &of](int64_t in, int64_t out, int64_t row, int64_t channel) {
          const Value mean_of = Channels::coefficients(&of.mean[channel]);
          const Value scale = Channels::coefficients(&of.scale[channel]);
          const Value mean_g = Channels::coefficients(&of.mean_g[channel]);
          const Value slope = Channels::coefficients(&of.slope[channel]);
          const auto write = [&](int64_t pixel, Value g) {
            const int64_t at = in + pixel * Channels::kStep;
            const Value apart = slope == 0 ? Value{} : Channels::load(image + at) - mean_of;
            Channels::store(gradient + at, scale * (g - mean_g - slope * apart));
          };
          const int64_t first = row * size * width;
          for (int64_t j = 0; j < windows; ++j, out += Channels::kStep) {
            const Places place = *reinterpret_cast<const Places*>(places + out);
            Value g = Channels::load(incoming + out);
            if (rectified) g = Channels::load(rectified + out) > 0 ? g : Value{};
            for (int64_t h = 0; h < size; ++h)
              for (int64_t w = 0; w < size; ++w) {
                const int64_t pixel = first + h * width + j * size + w;
                write(pixel, place == static_cast<int32_t>(pixel) ? g : Value{});
              }
          }
          for (int64_t h = 0; h < size; ++h)  // beyond the last window, or below the last row
            for (int64_t w = windows * size; w < width; ++w) write(first + h * width + w, Value{});
          if (row == rows - 1)
            for (int64_t pixel = rows * size * width; pixel < height * width; ++pixel)
              write(pixel, Value{});
        });
  });
}

REGISTER_KERNEL(batch_norm_max_pool, CPU, Native, batch_norm_max_pool_cpu);
REGISTER_KERNEL(batch_norm_max_pool_backward, CPU, Native, batch_norm_max_pool_backward_cpu);

}  // namespace
}  // namespace ringgrad::cpu
