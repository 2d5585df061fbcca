// Batch normalisation and max pooling on the CPU in one pass: what is normalised and not the maximum of its window is
// never written, forward or backward. Of a plane of x each byte is read once, and once more backward, where dx is
// written; everything else has a window's share of its size.
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/cpu/batch_norm.h"
#include "ringgrad/core/cpu/conv/vector.h"
#include "ringgrad/core/cpu/widen.h"

namespace ringgrad::cpu {
namespace {

// The channels of one pixel that are handled together, and where the next pixel's are: a vector of a block's 16, or one
// channel of any type.
template <class T>
struct BlockedChannels {
  using Value = conv::Vector;
  using Places = int32_t __attribute__((vector_size(conv::kLanes * sizeof(int32_t)), may_alias, aligned(4)));
  static constexpr int64_t kTogether = conv::kLanes, kStep = kChannelBlock;
  static Value load(const T* from) { return conv::load(from); }
  static Value coefficients(const float* from) { return conv::load(from); }
  static void store(T* to, Value value) { conv::store(to, value); }
};
template <class T>
struct OneChannel {
  using Value = Accumulator<T>;
  using Places = int32_t;
  static constexpr int64_t kTogether = 1, kStep = 1;
  static Value load(const T* from) { return static_cast<Value>(*from); }
  static Value coefficients(const Value* from) { return *from; }
  static void store(T* to, Value value) { *to = static_cast<T>(value); }
};

// body(in, out, channel) for each plane of x and the channels that are handled together: the offsets of its first pixel
// in x and in y, and the first channel.
template <class Channels, class Body>
void for_each_plane(Stream stream, const Tensor& x, const Tensor& y, const Body& body) {
  const int64_t step = Channels::kStep, rows = ceil_div(x.shape()[1], step);
  const int64_t in = x.shape()[2] * x.shape()[3] * step, out = y.shape()[2] * y.shape()[3] * step;
  parallel_for(stream, x.shape()[0] * rows, grain(in), [&](int64_t begin, int64_t end) {
    for (int64_t plane = begin; plane < end; ++plane)
      for (int64_t lane = 0; lane < step; lane += Channels::kTogether)
        body(plane * in + lane, plane * out + lane, plane % rows * step + lane);
  });
}

// Calls run.operator()<Channels, T>(size) for x's type and layout; the size of the usual windows is a constant.
template <class Run>
void visit(const Tensor& x, int64_t window, Run&& run) {
  const auto sized = [&]<class Channels, class T>() {
    window == 2 ? run.template operator()<Channels, T>(std::integral_constant<int64_t, 2>())
                : run.template operator()<Channels, T>(window);
  };
  if (x.is_channel_blocked())
    visit_blocked(x, [&]<class T>() { sized.template operator()<BlockedChannels<T>, T>(); });
  else
    visit_floating("batch_norm", x.dtype(), [&]<class T>() { sized.template operator()<OneChannel<T>, T>(); });
}

void batch_norm_max_pool_cpu(Stream stream, const Tensor& y, const Tensor& at, const Tensor& index, const Tensor& x,
                             const Tensor& mean, const Tensor& var, const Tensor& weight, const Tensor& bias,
                             double eps, bool relu, int64_t window) {
  ASSERT(lies_like(x, x) && lies_like(y, y) && lies_like(at, y) && y.layout() == x.layout());
  ASSERT(index.layout() == y.layout() && y.shape()[2] == x.shape()[2] / window);
  visit(x, window, [&]<class Channels, class T>(auto size) {
    using Value = typename Channels::Value;
    using Places = typename Channels::Places;
    const Normalization<Accumulator<T>> of(stream, x, mean, var, weight, bias, eps);
    const int64_t width = x.shape()[3], p = y.shape()[2], q = y.shape()[3];
    for_each_plane<Channels>(stream, x, y, [&](int64_t in, int64_t out, int64_t channel) {
      const Value m = Channels::coefficients(&of.mean[channel]), scale = Channels::coefficients(&of.scale[channel]);
      const Value shift = Channels::coefficients(&of.shift[channel]);
      const T* const from = x.data<T>() + in;
      T* const maxima = y.data<T>();
      T* const seen_at = at.data<T>();
      int32_t* const places = index.data<int32_t>();
      for (int64_t i = 0; i < p; ++i)
        for (int64_t j = 0; j < q; ++j, out += Channels::kStep) {
          const int64_t first = i * size * width + j * size;
          Value seen = Channels::load(from + first * Channels::kStep), best = (seen - m) * scale + shift;
          Places place = Places{} + static_cast<int32_t>(first);
          for (int64_t h = 0; h < size; ++h)
            for (int64_t w = 0; w < size; ++w) {
              const int64_t pixel = first + h * width + w;
              const Value v = Channels::load(from + pixel * Channels::kStep), normal = (v - m) * scale + shift;
              // larger, or the first NaN; where ReLU makes all 0 it does not matter which one is meant
              const auto better = ((normal <= best) == 0) & (best == best);
              best = better ? normal : best;
              seen = better ? v : seen;
              place = better ? Places{} + static_cast<int32_t>(pixel) : place;
            }
          Channels::store(maxima + out, relu ? (best < 0 ? Value{} : best) : best);
          Channels::store(seen_at + out, seen);
          *reinterpret_cast<Places*>(places + out) = place;
        }
    });
  });
}

void batch_norm_max_pool_backward_cpu(Stream stream, const Tensor& dx, const Tensor& dy, const Tensor& index,
                                      const Tensor& x, const Tensor& y, const Tensor& mean, const Tensor& var,
                                      const Tensor& weight, const Tensor& sum_dy, const Tensor& sum_dy_xhat, double eps,
                                      double count, int64_t window) {
  ASSERT(lies_like(x, x) && lies_like(dx, x) && lies_like(dy, dy) && dy.layout() == x.layout());
  ASSERT(index.layout() == dy.layout() && (!y.defined() || lies_like(y, dy)));
  visit(x, window, [&]<class Channels, class T>(auto size) {
    using Value = typename Channels::Value;
    using Places = typename Channels::Places;
    const NormalizationGradient<Accumulator<T>> of(stream, x, mean, var, weight, sum_dy, sum_dy_xhat, eps, count);
    const int64_t height = x.shape()[2], width = x.shape()[3], p = dy.shape()[2], q = dy.shape()[3];
    const T* const rectified = y.defined() ? y.data<T>() : nullptr;
    const T* const gradients = dy.data<T>();
    const int32_t* const places = index.data<int32_t>();
    for_each_plane<Channels>(stream, x, dy, [&](int64_t in, int64_t out, int64_t channel) {
      const Value m = Channels::coefficients(&of.mean[channel]), a = Channels::coefficients(&of.a[channel]);
      const Value b = Channels::coefficients(&of.b[channel]), c = Channels::coefficients(&of.c[channel]);
      const T* const from = x.data<T>() + in;
      T* const to = dx.data<T>() + in;
      const auto write = [&](int64_t pixel, Value share) {
        const Value apart = b == 0 ? Value{} : Channels::load(from + pixel * Channels::kStep) - m;
        Channels::store(to + pixel * Channels::kStep, share + b * apart + c);
      };
      for (int64_t i = 0; i < p; ++i) {
        for (int64_t j = 0; j < q; ++j, out += Channels::kStep) {
          const Places place = *reinterpret_cast<const Places*>(places + out);
          Value share = a * Channels::load(gradients + out);
          if (rectified) share = Channels::load(rectified + out) > 0 ? share : Value{};
          for (int64_t h = 0; h < size; ++h)
            for (int64_t w = 0; w < size; ++w) {
              const int64_t pixel = (i * size + h) * width + j * size + w;
              write(pixel, place == static_cast<int32_t>(pixel) ? share : Value{});
            }
        }
        for (int64_t h = i * size; h < (i + 1) * size; ++h)  // beyond the last window
          for (int64_t w = q * size; w < width; ++w) write(h * width + w, Value{});
      }
      for (int64_t pixel = p * size * width; pixel < height * width; ++pixel) write(pixel, Value{});
    });
  });
}

REGISTER_KERNEL(batch_norm_max_pool, DeviceType::CPU, Provider::Native, batch_norm_max_pool_cpu);
REGISTER_KERNEL(batch_norm_max_pool_backward, DeviceType::CPU, Provider::Native, batch_norm_max_pool_backward_cpu);

}  // namespace
}  // namespace ringgrad::cpu
