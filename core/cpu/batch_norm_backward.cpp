// Batch normalisation on the CPU, backward: two sums per channel, then one pass that writes dx.
//
// As in layer_norm.cpp, dx = weight rstd (g - mean(g) - xhat mean(g xhat)), with means over all
// pixels of a channel in the whole batch. So dx can begin only after all of dy has been read once
// for the two sums. Between the two steps ranks can add their sums, which is SyncBatchNorm. The
// second pass computes scale (g - mean_g - slope (x - mean)) with three numbers per channel. It
// takes two multiplications per element and never forms xhat.
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/cpu/batch_norm_pieces.h"
#include "ringgrad/core/kernels.h"

namespace ringgrad::cpu {
namespace {

// Returns true if y is undefined, or can be walked together with x as an output or as its bits.
bool gates(const Tensor& y, const Tensor& x) {
  return !y.defined() || lies_like(y, x) || (y.dtype() == DType::UInt8 && x.is_channel_blocked());
}

template <class T, int kWidth, class Step, class Gradient, class A = Accumulator<T>>
void reduce(Stream stream, const ChannelRows& rows, Step step, const T* dy, const T* x, Gradient g,
            const A* mean, A* sum_g, A* sum_g_centered) {
  for_each_piece(stream, rows,
                 [=, &rows](int64_t offset, int64_t n, int64_t channel, int64_t partial) {
                   const int64_t at = partial * rows.channels() + channel;
                   gradient_sums<T, kWidth>(n, step, dy + offset, x + offset, g.from(offset),
                                            mean + channel, sum_g + at, sum_g_centered + at);
                 });
}

void batch_norm_backward_reduce_cpu(Stream stream, const Tensor& sum_dy, const Tensor& sum_dy_xhat,
                                    const Tensor& dy, const Tensor& x, const Tensor& y,
                                    const Tensor& mean, const Tensor& var, double eps) {
  ASSERT(lies_like(x, x) && lies_like(dy, x) && gates(y, x));
  visit_floating("batch_norm", x.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const Workspace<A> center(stream, padded_channels(x));
    load_channels(center, padded_channels(x), mean);
    for (const ChannelRows& rows : channel_rows(x)) {
      const int64_t channels = rows.channels();
      const int64_t real_channels = mean.numel() - rows.first;
      const Workspace<A> sums(stream, partial_count(rows) * channels);
      const Workspace<A> centered(stream, partial_count(rows) * channels);
      visit_rows(rows, [&]<int kWidth>(auto step) {
        visit_gradient<T, kWidth>(y, [&](auto g) {
          reduce<T, kWidth>(stream, rows, step, dy.data<T>(), x.data<T>(), g,
                            center.data() + rows.first, sums.data(), centered.data());
        });
      });
      const auto partial_sum = [&](const Workspace<A>& of) {
        return [&of, channels](int64_t partial, int64_t c) {
          return static_cast<double>(of[partial * channels + c]);
        };
      };
      sum_partials(stream, rows, partial_sum(sums), [&](int64_t c, double total) {
        if (c < real_channels) sum_dy.data<A>()[rows.first + c] = static_cast<A>(total);
      });
      sum_partials(stream, rows, partial_sum(centered), [&](int64_t c, double total) {
        if (c >= real_channels) return;
        const double deviation =
            std::sqrt(static_cast<double>(var.data<A>()[rows.first + c]) + eps);
        sum_dy_xhat.data<A>()[rows.first + c] = static_cast<A>(total / deviation);
      });
    }
  });
}

template <class T, int kWidth, bool kResidual, class Step, class Gradient, class A = Accumulator<T>>
void apply(Stream stream, const ChannelRows& rows, Step step, T* dx, T* dresidual, const T* dy,
           const T* x, Gradient g, const A* mean, const A* scale, const A* mean_g, const A* slope) {
  const bool streams = should_stream(dx, rows) && (!kResidual || should_stream(dresidual, rows));
  for_each_part(stream, rows, [=](int64_t offset, int64_t n, int64_t channel) {
    gradient_piece<T, kWidth, kResidual>(n, step, dx + offset, dresidual + (kResidual ? offset : 0),
                                         dy + offset, x + offset, g.from(offset), mean + channel,
                                         scale + channel, mean_g + channel, slope + channel,
                                         streams);
  });
}

void batch_norm_backward_apply_cpu(Stream stream, const Tensor& dx, const Tensor& dresidual,
                                   const Tensor& dy, const Tensor& x, const Tensor& y,
                                   const Tensor& mean, const Tensor& var, const Tensor& weight,
                                   const Tensor& sum_dy, const Tensor& sum_dy_xhat, double eps,
                                   double count) {
  ASSERT(lies_like(dx, x) && lies_like(x, x) && lies_like(dy, x));
  ASSERT(gates(y, x) && (!dresidual.defined() || lies_like(dresidual, x)));
  visit_floating("batch_norm", x.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const NormalizationGradient<A> of(stream, x, mean, var, weight, sum_dy, sum_dy_xhat, eps,
                                      count);
    T* const branch = dresidual.defined() ? dresidual.data<T>() : nullptr;
    for (const ChannelRows& rows : channel_rows(x))
      visit_rows(rows, [&]<int kWidth>(auto step) {
        visit_gradient<T, kWidth>(y, [&](auto g) {
          const auto run = branch ? apply<T, kWidth, true, decltype(step), decltype(g)>
                                  : apply<T, kWidth, false, decltype(step), decltype(g)>;
          run(stream, rows, step, dx.data<T>(), branch, dy.data<T>(), x.data<T>(), g,
              of.mean.data() + rows.first, of.scale.data() + rows.first,
              of.mean_g.data() + rows.first, of.slope.data() + rows.first);
        });
      });
  });
}

REGISTER_KERNEL(batch_norm_backward_reduce, CPU, Native, batch_norm_backward_reduce_cpu);
REGISTER_KERNEL(batch_norm_backward_apply, CPU, Native, batch_norm_backward_apply_cpu);

}  // namespace
}  // namespace ringgrad::cpu
