#include "ringgrad/distributed/ddp/batch_statistics.h"

#include <algorithm>
#include <numeric>

#include "ringgrad/autograd/engine.h"
#include "ringgrad/autograd/graph.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/kernels.h"

namespace ringgrad {

Tensor StatisticsChannel::gather(const Tensor& own) const {
  const auto meet = [&]() -> std::vector<Tensor> {
    if (gather_shards) return {gather_shards(own)};
    const Tensor all = empty({group->size(), own.numel()}, {own.dtype(), own.device()});
    group->all_gather(all, own, options).wait();
    return {all};
  };
  return (tape_observer ? tape_observer->once(meet) : meet())[0];
}

// Means and sums of squared deviations are combined exactly (Chan, Golub & LeVeque 1983, equation
// 2.1b). This is done in float64 and in the order of ranks, so all ranks get the same bits.
BatchStatistics global_statistics(const Tensor& x, DType dtype, const StatisticsChannel& channel) {
  const NoGradGuard no_grad;
  const int64_t channels = x.size(1);
  const Tensor mean = empty({channels}, {dtype, x.device()});
  const Tensor var = empty_like(mean);
  if (x.numel() > 0) {
    kernels::batch_norm_stats(mean, var, x);
  } else {  // a rank without samples has zeros, because 0 times NaN would be NaN
    fill_(mean, 0);
    fill_(var, 0);
  }

  const auto count = static_cast<double>(x.numel() / std::max<int64_t>(channels, 1));
  const Device place = channel.gather_shards ? Device() : x.device();  // shards meet on the host
  const Tensor own = empty({2 * channels + 1}, {DType::Float64, place});
  copy_(own.as_strided({channels}, {1}, 0), mean);
  copy_(own.as_strided({channels}, {1}, channels), var);
  fill_(own.as_strided({1}, {1}, 2 * channels), count);
  const Tensor all = channel.gather(own);

  const Tensor counts = slice(all, 1, 2 * channels);
  // The host needs their sum, and would have to wait for a GPU's.
  const auto of_ranks =
      to_vector<double>(place.is_cpu() ? counts : channel.gather(tensor<double>({count})));
  const double total = std::accumulate(of_ranks.begin(), of_ranks.end(), 0.0);
  const Tensor means = slice(all, 1, 0, channels);
  const Tensor center = div(sum(mul(counts, means), 0), total);
  const Tensor apart = sub(means, center);
  const Tensor squares = add(slice(all, 1, channels, 2 * channels), mul(apart, apart));
  copy_(mean, center);
  copy_(var, div(sum(mul(counts, squares), 0), total));
  return {mean, var, total};
}

void sum_over_ranks(const Tensor& a, const Tensor& b, double unit,
                    const StatisticsChannel& channel) {
  const int64_t n = a.numel();
  const Tensor packed = empty({2 * n}, {DType::Float64, a.device()});
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
