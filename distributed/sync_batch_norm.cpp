#include "ringgrad/distributed/sync_batch_norm.h"

#include "ringgrad/autograd/ops/common.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/distributed/ddp/contribution.h"
#include "ringgrad/distributed/shards/shard_meeting.h"
#include "ringgrad/nn/layers.h"

namespace ringgrad {
namespace {

// Whose statistics these are: where they travel, and what the ranks compare, so that two layers are not mixed up.
struct Layer {
  std::shared_ptr<ProcessGroup> group;
  CollectiveOptions options;
};

Layer layer_of(std::shared_ptr<ProcessGroup> group, const std::string& name) {
  const auto about =
      std::make_shared<const std::string>("batch norm's statistics" + (name.empty() ? "" : " of " + name));
  return {std::move(group), {.layout = hash_of(name.data(), name.size()), .about = about}};
}

// This rank's numbers beside those of all others, in the order of ranks; of shards, where a rank has several
// (virtual_ranks.h).
Tensor gather_rows(const Tensor& own, const Layer& layer) {
  if (ShardMeeting* const meeting = ShardMeeting::current()) return meeting->gather(*layer.group, own, layer.options);
  const Tensor all = empty({layer.group->size(), own.numel()}, {.dtype = own.dtype()});
  layer.group->all_gather(all, own, layer.options).wait();
  return all;
}

struct Statistics {
  Tensor mean, var;  // [C], over all ranks
  double count;      // values per channel, on all ranks
};

// Means and sums of squared deviations combine exactly (Chan, Golub & LeVeque 1983, equation 2.1b); in float64, in the
// order of ranks, so that all ranks come to the same bits.
Statistics global_statistics(const Tensor& x, DType dtype, const Layer& layer) {
  const int64_t channels = x.size(1);
  const Tensor mean = empty({channels}, {dtype, x.device()}), var = empty_like(mean);
  kernels::batch_norm_stats(mean, var, x);

  const Tensor own = empty({2 * channels + 1}, {.dtype = DType::Float64});
  copy_(own.as_strided({channels}, {1}, 0), mean);
  copy_(own.as_strided({channels}, {1}, channels), var);
  own.data<double>()[2 * channels] = static_cast<double>(x.numel() / std::max<int64_t>(channels, 1));
  const Tensor all = gather_rows(own, layer);

  const int64_t ranks = all.size(0);
  const double* of = all.data<double>();
  const auto at = [&](int64_t rank, int64_t i) { return of[rank * (2 * channels + 1) + i]; };
  double total = 0;
  for (int64_t r = 0; r < ranks; ++r) total += at(r, 2 * channels);
  auto* combined = own.data<double>();
  for (int64_t c = 0; c < channels; ++c) {
    double sum = 0, squares = 0;
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

// What this rank's gradients are multiplied by in the sum over the ranks. A shard's loss is a sum already.
double unit_in_sum(const Contribution* own, int64_t samples) {
  if (ShardMeeting::current()) return 1;
  return own ? own->pass_unit() : static_cast<double>(samples);
}

// The sums of all ranks' gradients, as this rank must use them. Rank r's gradients are multiplied by its unit in the
// sum over the ranks (contribution.h): its sums are so here, and this rank's dx will be so later.
void sum_over_ranks(const Tensor& a, const Tensor& b, double unit, const Layer& layer) {
  const int64_t n = a.numel();
  const Tensor packed = empty({2 * n}, {.dtype = DType::Float64});
  copy_(packed.as_strided({n}, {1}, 0), a);
  copy_(packed.as_strided({n}, {1}, n), b);
  kernels::affine(packed, packed, unit, 0);
  if (ShardMeeting::current()) {
    const Tensor all = gather_rows(packed, layer);
    kernels::fill(packed, 0);
    for (int64_t r = 0; r < all.size(0); ++r) kernels::add(packed, packed, all.as_strided({2 * n}, {1}, r * 2 * n));
  } else {
    layer.group->all_reduce(packed, ReduceOp::Sum, layer.options).wait();
  }
  kernels::affine(packed, packed, 1 / unit, 0);
  copy_(a, packed.as_strided({n}, {1}, 0));
  copy_(b, packed.as_strided({n}, {1}, n));
}

Tensor normalize(const Tensor& x_, const Tensor& weight_, const Tensor& bias_, const Tensor& running_mean,
                 const Tensor& running_var, const BatchNormOptions& options, const Layer& layer) {
  const ProcessGroup& group = *layer.group;
  if (!options.training) return batch_norm(x_, weight_, bias_, running_mean, running_var, options);
  OpScope scope("sync_batch_norm");
  check_batch_norm("sync_batch_norm", x_, weight_, bias_, running_mean, running_var, options);
  CHECK_AS(ShapeError, x_.numel() > 0, "sync_batch_norm: the input has shape ", x_.shape(),
           ", expected at least one sample on every rank");
  CHECK_AS(DeviceError, group.reaches(x_.device()), "sync_batch_norm: the input is on ", x_.device(),
           ", which this group of ranks (", group.backend(), ") does not reach");
  const bool relu = options.activation == Activation::Relu;
  const double eps = options.eps;
  const DType per_channel = accumulator_dtype(x_.dtype());
  const Tensor x = in_layout(x_, kernels::batch_norm_layout(x_));
  const Tensor weight = weight_ ? contiguous(to(weight_, per_channel)) : weight_;
  const Tensor bias = bias_ ? contiguous(to(bias_, per_channel)) : bias_;
  const Tensor residual = options.residual ? in_layout(options.residual, x.layout()) : Tensor();

  const auto [mean, var, count] = global_statistics(x, per_channel, layer);
  CHECK_AS(ShapeError, count > 1, "sync_batch_norm: all ranks together have ", count,
           " value per channel, expected at least 2: the variance of one is undefined");
  const Tensor y = empty_like(x);
  kernels::batch_norm_apply(y, x, mean, var, weight, bias, residual, eps, relu);
  update_running("sync_batch_norm", running_mean, mean, options.momentum, 1);
  update_running("sync_batch_norm", running_var, var, options.momentum, count / (count - 1));  // unbiased

  return differentiable("sync_batch_norm", {x, weight, bias, residual}, y,
                        [x = save(x), y = save_if(relu, y), mean = save(mean), var = save(var), weight = save(weight),
                         eps, count = count, wants_residual = wants_grad(residual), wants_weight = wants_grad(weight),
                         wants_bias = wants_grad(bias), layer](const Tensor& dy_) -> Gradients {
                          const Tensor dy = in_layout(dy_, x.get().layout());
                          const Tensor sum_dy = empty_like(mean.get()), sum_dy_xhat = empty_like(mean.get());
                          kernels::batch_norm_backward_reduce(sum_dy, sum_dy_xhat, dy, x.get(), y.get(), mean.get(),
                                                              var.get(), eps);
                          const TensorOptions same{sum_dy.dtype(), sum_dy.device()};
                          const Tensor dweight = wants_weight ? copy_of(sum_dy_xhat, same) : Tensor();
                          const Tensor dbias = wants_bias ? copy_of(sum_dy, same) : Tensor();
                          Contribution* const own = contribution_of_this_pass;
                          if (own) own->receive();
                          const double unit = unit_in_sum(own, dy.size(0));
                          sum_over_ranks(sum_dy, sum_dy_xhat, unit, layer);
                          const Tensor dx = empty_like(x.get()), dresidual = wants_residual ? empty_like(dx) : Tensor();
                          kernels::batch_norm_backward_apply(dx, dresidual, dy, x.get(), y.get(), mean.get(), var.get(),
                                                             weight.get(), sum_dy, sum_dy_xhat, eps, count);
                          return {dx, dweight, dbias, dresidual};
                        });
}

}  // namespace

Tensor sync_batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& running_mean,
                       const Tensor& running_var, const BatchNormOptions& options, ProcessGroup& group) {
  const std::shared_ptr<ProcessGroup> users(std::shared_ptr<void>(), &group);
  return normalize(x, weight, bias, running_mean, running_var, options, layer_of(users, ""));
}

int convert_sync_batchnorm(nn::Module& module, ProcessGroup& group) {
  std::vector<std::pair<std::string, nn::BatchNorm*>> norms;
  for (const auto& [name, below] : module.named_modules())
    if (auto* norm = dynamic_cast<nn::BatchNorm*>(below)) norms.emplace_back(name, norm);
  if (norms.empty()) return 0;
  const std::shared_ptr<ProcessGroup> own = group.split(0);
  for (const auto& [name, norm] : norms)
    norm->set_normalization([layer = layer_of(own, name)](const Tensor& x, const Tensor& weight, const Tensor& bias,
                                                          const Tensor& running_mean, const Tensor& running_var,
                                                          const BatchNormOptions& options) {
      return normalize(x, weight, bias, running_mean, running_var, options, layer);
    });
  return static_cast<int>(norms.size());
}

}  // namespace ringgrad
