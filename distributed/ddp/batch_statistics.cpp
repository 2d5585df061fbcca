#include "ringgrad/distributed/ddp/batch_statistics.h"

#include <algorithm>

#include "ringgrad/autograd/graph.h"
#include "ringgrad/core/kernels.h"

namespace ringgrad {

Tensor StatisticsChannel::gather(const Tensor& own) const {
  const auto meet = [&]() -> std::vector<Tensor> {
    if (gather_shards) return {gather_shards(own)};
    const Tensor all = empty({group->size(), own.numel()}, {.dtype = own.dtype()});
    group->all_gather(all, own, options).wait();
    return {all};
  };
  return (tape_observer ? tape_observer->once(meet) : meet())[0];
}

// Means and sums of squared deviations are combined exactly (Chan, Golub & LeVeque 1983, equation
// 2.1b). This is done in float64 and in the order of ranks, so all ranks get the same bits.
BatchStatistics global_statistics(const Tensor& x, DType dtype, const StatisticsChannel& channel) {
  const int64_t channels = x.size(1);
  const Tensor mean = empty({channels}, {dtype, x.device()});
  const Tensor var = empty_like(mean);
  if (x.numel() > 0) {
    kernels::batch_norm_stats(mean, var, x);
  } else {  // a rank without samples has zeros, because 0 times NaN would be NaN
    fill_(mean, 0);
    fill_(var, 0);
  }

  const Tensor own = empty({2 * channels + 1}, {.dtype = DType::Float64});
  copy_(own.as_strided({channels}, {1}, 0), mean);
  copy_(own.as_strided({channels}, {1}, channels), var);
  own.data<double>()[2 * channels] =
      static_cast<double>(x.numel() / std::max<int64_t>(channels, 1));
  const Tensor all = channel.gather(own);

  const int64_t ranks = all.size(0);
  const double* of = all.data<double>();
  const auto at = [&](int64_t rank, int64_t i) { return of[rank * (2 * channels + 1) + i]; };
  double total = 0;
  for (int64_t r = 0; r < ranks; ++r) total += at(r, 2 * channels);
  auto* combined = own.data<double>();
  for (int64_t c = 0; c < channels; ++c) {
    double sum = 0;
    double squares = 0;
    for (int64_t r = 0; r < ranks; ++r) sum += at(r, 2 * channels) * at(r, c);
    const double center = sum / total;
    for (int64_t r = 0; r < ranks; ++r) {
      const double apart = at(r, c) - center;
      squares += at(r, 2 * channels) * (at(r, channels + c) + apart * apart);
    }
    combined[c] = center;
    combined[channels + c] = squares / total;
  }
  copy_(mean, own.as_strided({channels}, {1}, 0));
  copy_(var, own.as_strided({channels}, {1}, channels));
  return {mean, var, total};
}

void sum_over_ranks(const Tensor& a, const Tensor& b, double unit,
                    const StatisticsChannel& channel) {
  const int64_t n = a.numel();
  const Tensor packed = empty({2 * n}, {.dtype = DType::Float64});
  copy_(packed.as_strided({n}, {1}, 0), a);
  copy_(packed.as_strided({n}, {1}, n), b);
  kernels::affine(packed, packed, unit, 0);
  channel.group->all_reduce(packed, ReduceOp::Sum, channel.options).wait();
  // If the unit is 0, no gradient uses the sums.
  if (unit != 0) kernels::affine(packed, packed, 1 / unit, 0);
  copy_(a, packed.as_strided({n}, {1}, 0));
  copy_(b, packed.as_strided({n}, {1}, n));
}

}  // namespace ringgrad
