// Cross entropy of logits, and the negative log likelihood of log-probabilities, over the rows of x
// [N, C].
//
// Mapping: one team of threads per row (common/reduce.cuh). One pass finds log Σ e^x and its
// maximum ("online softmax", Milakov & Gimelshein 2018), so the row is read twice instead of three
// times.
#include "ringgrad/core/kernels.h"
#include "ringgrad/cuda_kernels/common/map.cuh"
#include "ringgrad/cuda_kernels/common/reduce.cuh"

namespace ringgrad::cuda {
namespace {

// Σ e^x = total · e^highest over the values seen so far.
template <class A>
struct Scaled {
  A highest;
  A total;
};
// Merges two of them. The larger exponent stays; NaN spreads.
template <class A>
__device__ Scaled<A> join(Scaled<A> a, Scaled<A> b) {
  const A highest = Max{}(a.highest, b.highest);
  if (highest == -kInfinity<A>) return {highest, A(0)};  // no values yet, or only -inf
  return {highest,
          a.total * std::exp(a.highest - highest) + b.total * std::exp(b.highest - highest)};
}

// log Σ_c e^x[c] of one row in two terms, in every thread of the team.
template <class A>
struct LogSumExp {
  A shift;
  A log_sum;
  template <class T>
  __device__ A log_probability(T x) const {
    return widen(x) - shift - log_sum;
  }
};
template <class Team, class T, class A = Compute<T>>
__device__ LogSumExp<A> log_sum_exp_of(Team team, const T* row, int64_t C) {
  Scaled<A> seen{-kInfinity<A>, A(0)};
  for (int64_t c = team.rank(); c < C; c += team.size())
    seen = join(seen, Scaled<A>{widen(row[c]), A(1)});
  const A highest = team.reduce(seen.highest, Max{}, -kInfinity<A>);
  const A shift = highest == -kInfinity<A> ? A(0) : highest;
  const A total = team.reduce(seen.total * std::exp(seen.highest - shift), Sum{}, A(0));
  return {shift, std::log(total)};
}

template <class A>
struct Targets {
  const int64_t* t;
  const A* class_weight;  // or nullptr: all 1
  int64_t C;
  int64_t ignore_index;
  A smoothing;

  __device__ A weight(int64_t c) const { return class_weight ? class_weight[c] : A(1); }
  __device__ bool is_valid(int64_t target) const { return target >= 0 && target < C; }
};

template <class Team, class T, class A = Compute<T>>
__global__ void __launch_bounds__(kThreads)
    cross_entropy_kernel(Team team, int64_t N, Targets<A> targets, A* loss, A* weight,
                         A* log_sum_exp, const T* x) {
  const int64_t C = targets.C;
  for (int64_t n = team.first_row(); n < N; n += team.row_step()) {
    const T* row = x + n * C;
    const LogSumExp<A> lse = log_sum_exp_of(team, row, C);
    A smooth = 0;  // Σ_c u[c] logp[c]
    if (targets.smoothing != 0) {
      for (int64_t c = team.rank(); c < C; c += team.size())
        smooth += targets.weight(c) * lse.log_probability(row[c]);
      smooth = team.reduce(smooth, Sum{}, A(0));
    }
    if (team.rank() != 0) continue;
    const int64_t target = targets.t[n];
    log_sum_exp[2 * n] = lse.shift;
    log_sum_exp[2 * n + 1] = lse.log_sum;
    if (target == targets.ignore_index) {
      loss[n] = weight[n] = 0;
    } else if (!targets.is_valid(target)) {
      loss[n] = weight[n] = kNaN<A>;
    } else {
      const A u = targets.weight(target);
      loss[n] = -(1 - targets.smoothing) * u * lse.log_probability(row[target]) -
                targets.smoothing / static_cast<A>(C) * smooth;
      weight[n] = u;
    }
  }
}

// With p = softmax(x) and U = Σ u:  d loss/dx[c] = (1 - s) u[t] (p[c] - [c = t]) + s/C (U p[c] -
// u[c]).
template <class Team, class T, class A = Compute<T>>
__global__ void __launch_bounds__(kThreads)
    cross_entropy_backward_kernel(Team team, int64_t N, Targets<A> targets, T* dx, const A* scale,
                                  const T* x, const A* log_sum_exp) {
  const int64_t C = targets.C;
  A weight_sum = 0;  // the same for every row
  if (targets.smoothing != 0) {
    for (int64_t c = team.rank(); c < C; c += team.size()) weight_sum += targets.weight(c);
    weight_sum = team.reduce(weight_sum, Sum{}, A(0));
  }
  for (int64_t n = team.first_row(); n < N; n += team.row_step()) {
    const int64_t target = targets.t[n];
    const bool ignored = target == targets.ignore_index;
    const A u = targets.is_valid(target) ? targets.weight(target) : kNaN<A>;
    const LogSumExp<A> lse{log_sum_exp[2 * n], log_sum_exp[2 * n + 1]};
    for (int64_t c = team.rank(); c < C; c += team.size()) {
      const A p = std::exp(lse.log_probability(x[n * C + c]));
      A slope = (1 - targets.smoothing) * u * (p - (c == target ? A(1) : A(0)));
      if (targets.smoothing != 0)
        slope += targets.smoothing / static_cast<A>(C) * (weight_sum * p - targets.weight(c));
      dx[n * C + c] = narrow<T>(ignored ? A(0) : scale[n] * slope);
    }
  }
}

// One thread per row, which reads one element of it.
template <class T, class A = Compute<T>>
__global__ void nll_loss_kernel(int64_t N, Targets<A> targets, A* loss, A* weight, const T* x) {
  for (int64_t n = thread_number(); n < N; n += thread_count()) {
    const int64_t target = targets.t[n];
    const bool ignored = target == targets.ignore_index;
    const bool valid = targets.is_valid(target);
    const A wrong = ignored ? A(0) : kNaN<A>;
    weight[n] = valid && !ignored ? targets.weight(target) : wrong;
    loss[n] =
        valid && !ignored ? -targets.weight(target) * widen(x[n * targets.C + target]) : wrong;
  }
}

// One thread per element. dx is zero except for one column of each row.
template <class T, class A = Compute<T>>
__global__ void nll_loss_backward_kernel(int64_t N, Targets<A> targets, T* dx, const A* scale) {
  for (int64_t i = thread_number(); i < N * targets.C; i += thread_count()) {
    const int64_t n = i / targets.C;
    const int64_t target = targets.t[n];
    const bool hit = target == i % targets.C && target != targets.ignore_index;
    const bool wrong = !targets.is_valid(target) && target != targets.ignore_index;
    dx[i] = narrow<T>(wrong ? kNaN<A> : hit ? -targets.weight(target) * scale[n] : A(0));
  }
}

template <class T>
Targets<ComputeOf<T>> targets_of(const Tensor& t, const Tensor& class_weight, int64_t C,
                                 int64_t ignore_index, double smoothing) {
  return {t.data<int64_t>(), optional_data<Accumulator<T>>(class_weight), C, ignore_index,
          static_cast<ComputeOf<T>>(smoothing)};
}

void cross_entropy_cuda(Stream stream, const Tensor& loss, const Tensor& weight,
                        const Tensor& log_sum_exp, const Tensor& x, const Tensor& t,
                        const Tensor& class_weight, const kernels::CrossEntropyOptions& options) {
  const int64_t N = x.shape()[0];
  const int64_t C = x.shape()[1];
  visit_floating("cross_entropy", x.dtype(), [&]<class T>() {
    using D = Element<T>;
    const auto targets =
        targets_of<T>(t, class_weight, C, options.ignore_index, options.label_smoothing);
    launch_rows(stream, N, C, cross_entropy_kernel<WarpTeam, D>, cross_entropy_kernel<BlockTeam, D>,
                N, targets, device_data<Accumulator<T>>(loss), device_data<Accumulator<T>>(weight),
                device_data<Accumulator<T>>(log_sum_exp), device_data<T>(x));
  });
}

void cross_entropy_backward_cuda(Stream stream, const Tensor& dx, const Tensor& scale,
                                 const Tensor& x, const Tensor& log_sum_exp, const Tensor& t,
                                 const Tensor& class_weight,
                                 const kernels::CrossEntropyOptions& options) {
  const int64_t N = x.shape()[0];
  const int64_t C = x.shape()[1];
  visit_floating("cross_entropy", x.dtype(), [&]<class T>() {
    using D = Element<T>;
    const auto targets =
        targets_of<T>(t, class_weight, C, options.ignore_index, options.label_smoothing);
    launch_rows(stream, N, C, cross_entropy_backward_kernel<WarpTeam, D>,
                cross_entropy_backward_kernel<BlockTeam, D>, N, targets, device_data<T>(dx),
                device_data<Accumulator<T>>(scale), device_data<T>(x),
                device_data<Accumulator<T>>(log_sum_exp));
  });
}

void nll_loss_cuda(Stream stream, const Tensor& loss, const Tensor& weight, const Tensor& x,
                   const Tensor& t, const Tensor& class_weight, int64_t ignore_index) {
  const int64_t N = x.shape()[0];
  const int64_t C = x.shape()[1];
  visit_floating("nll_loss", x.dtype(), [&]<class T>() {
    launch_elements(stream, N, nll_loss_kernel<Element<T>>, N,
                    targets_of<T>(t, class_weight, C, ignore_index, 0),
                    device_data<Accumulator<T>>(loss), device_data<Accumulator<T>>(weight),
                    device_data<T>(x));
  });
}

void nll_loss_backward_cuda(Stream stream, const Tensor& dx, const Tensor& scale, const Tensor& t,
                            const Tensor& class_weight, int64_t ignore_index) {
  const int64_t N = dx.shape()[0];
  const int64_t C = dx.shape()[1];
  visit_floating("nll_loss", dx.dtype(), [&]<class T>() {
    launch_elements(stream, N * C, nll_loss_backward_kernel<Element<T>>, N,
                    targets_of<T>(t, class_weight, C, ignore_index, 0), device_data<T>(dx),
                    device_data<Accumulator<T>>(scale));
  });
}

REGISTER_KERNEL(cross_entropy, CUDA, Native, cross_entropy_cuda);
REGISTER_KERNEL(cross_entropy_backward, CUDA, Native, cross_entropy_backward_cuda);
REGISTER_KERNEL(nll_loss, CUDA, Native, nll_loss_cuda);
REGISTER_KERNEL(nll_loss_backward, CUDA, Native, nll_loss_backward_cuda);

}  // namespace
}  // namespace ringgrad::cuda
