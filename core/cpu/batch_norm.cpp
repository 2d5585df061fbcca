// Batch normalisation on the CPU, forward: first statistics, then one pass that normalises, adds
// and rectifies.
#include "ringgrad/core/cpu/batch_norm_pieces.h"

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/kernels.h"

namespace ringgrad::cpu {
namespace {

// Each piece gives its mean and squared deviations in two passes over the first-level cache. The
// pieces are merged as in Chan, Golub & LeVeque (1983), eq. 2.1. Sums of x² would cancel if the
// mean is large against the deviation, and so would sums of x: the variance of a channel of equal
// numbers is zero, whatever they are.
template <class T, int kWidth, class Step>
void stats(Stream stream, const ChannelRows& rows, Step step, const Tensor& mean, const Tensor& var,
           const T* x) {
  using A = Accumulator<T>;
  const int64_t channels = rows.channels();
  const int64_t pieces = std::max<int64_t>(1, rows.pieces());
  const int64_t partials = partial_count(rows) * channels;
  const Workspace<A> piece_means(stream, partials);
  const Workspace<A> rests(stream, partials);
  const Workspace<A> squares(stream, partials);
  for_each_piece(stream, rows, [&](int64_t offset, int64_t n, int64_t channel, int64_t partial) {
    const int64_t at = partial * channels + channel;
    piece_statistics<T, kWidth>(n, step, x + offset, piece_means.data() + at, rests.data() + at,
                                squares.data() + at);
  });

  const double count = std::max<double>(1, static_cast<double>(rows.count()));
  const double last = static_cast<double>((rows.length - (pieces - 1) * rows.piece()) / kWidth);
  const auto size = [&](int64_t partial) {
    return partial % pieces == pieces - 1 ? last : static_cast<double>(rows.piece() / kWidth);
  };
  // A power of two below 1 / count. A sum of float64 means times this cannot overflow.
  const double unit = std::exp2(-1 - std::ilogb(count));
  const Workspace<double> means(stream, channels);
  A* const mean_out = mean.data<A>() + rows.first;
  A* const var_out = var.data<A>() + rows.first;
  const int64_t real_channels = mean.numel() - rows.first;  // the last block may have padding
  sum_partials(
      stream, rows,
      [&](int64_t partial, int64_t c) {
        const int64_t at = partial * channels + c;
        return size(partial) * unit * static_cast<double>(piece_means[at]) + unit * rests[at];
      },
      [&](int64_t c, double total) {
        means[c] = total / (unit * count);
        if (c < real_channels) mean_out[c] = static_cast<A>(means[c]);
      });
  sum_partials(
      stream, rows,
      [&](int64_t partial, int64_t c) {
        const int64_t at = partial * channels + c;
        const double n = size(partial);
        const double rest = rests[at];
        const double apart = piece_means[at] + rest / n - means[c];
        // An infinite sum of squares stays infinite, although rest² may overflow as well.
        const double own =
            std::isinf(squares[at]) ? squares[at] : std::max(0.0, squares[at] - rest * rest / n);
        return own + n * apart * apart;
      },
      [&](int64_t c, double total) {
        if (c < real_channels) var_out[c] = static_cast<A>(total / count);
      });
}

void batch_norm_stats_cpu(Stream stream, const Tensor& mean, const Tensor& var, const Tensor& x) {
  ASSERT(lies_like(x, x));
  ASSERT(mean.is_contiguous() && var.is_contiguous() && mean.numel() == x.shape()[1]);
  visit_floating("batch_norm", x.dtype(), [&]<class T>() {
    for (const ChannelRows& rows : channel_rows(x))
      visit_rows(rows, [&]<int kWidth>(auto step) {
        stats<T, kWidth>(stream, rows, step, mean, var, x.data<T>());
      });
  });
}

template <class T, int kWidth, bool kResidual, bool kRelu, class Step, class A = Accumulator<T>>
void apply(Stream stream, const ChannelRows& rows, Step step, T* y, uint16_t* positive, const T* x,
           const T* residual, const A* mean, const A* scale, const A* shift) {
  const bool streams = should_stream(y, rows);
  for_each_part(stream, rows, [=](int64_t offset, int64_t n, int64_t channel) {
    normalize_piece<T, kWidth, kResidual, kRelu>(
        n, step, y + offset, x + offset, residual + (kResidual ? offset : 0), mean + channel,
        scale + channel, shift + channel, streams,
        positive ? positive + offset / kChannelBlock : nullptr);
  });
}

void batch_norm_apply_cpu(Stream stream, const Tensor& y, const Tensor& positive, const Tensor& x,
                          const Tensor& mean, const Tensor& var, const Tensor& weight,
                          const Tensor& bias, const Tensor& residual, double eps, bool relu) {
  ASSERT(lies_like(x, x) && lies_like(y, x) && (!residual.defined() || lies_like(residual, x)));
  ASSERT(!positive.defined() || x.is_channel_blocked());
  uint16_t* const bits =
      positive.defined() ? reinterpret_cast<uint16_t*>(positive.data<uint8_t>()) : nullptr;
  visit_floating("batch_norm", x.dtype(), [&]<class T>() {
    using A = Accumulator<T>;
    const Normalization<A> of(stream, x, mean, var, weight, bias, eps);
    const T* const other = residual.defined() ? residual.data<T>() : nullptr;
    for (const ChannelRows& rows : channel_rows(x))
      visit_rows(rows, [&]<int kWidth>(auto step) {
        using Step = decltype(step);
        const auto run =
            other  ? relu ? apply<T, kWidth, true, true, Step> : apply<T, kWidth, true, false, Step>
             : relu ? apply<T, kWidth, false, true, Step>
                   : apply<T, kWidth, false, false, Step>;
        run(stream, rows, step, y.data<T>(), bits, x.data<T>(), other, of.mean.data() + rows.first,
            of.scale.data() + rows.first, of.shift.data() + rows.first);
      });
  });
}

REGISTER_KERNEL(batch_norm_stats, CPU, Native, batch_norm_stats_cpu);
REGISTER_KERNEL(batch_norm_apply, CPU, Native, batch_norm_apply_cpu);
REGISTER_KERNEL(batch_norm, CPU, Native, batch_norm_in_steps);
REGISTER_KERNEL(batch_norm_backward, CPU, Native, batch_norm_backward_in_steps);

}  // namespace
}  // namespace ringgrad::cpu
