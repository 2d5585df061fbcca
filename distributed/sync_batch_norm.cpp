#include "ringgrad/distributed/sync_batch_norm.h"

#include "ringgrad/autograd/ops/common.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/kernels/conv_plan.h"
#include "ringgrad/distributed/ddp/batch_statistics.h"
#include "ringgrad/distributed/ddp/contribution.h"
#include "ringgrad/distributed/shards/shard_meeting.h"
#include "ringgrad/nn/layers.h"

namespace ringgrad {
namespace {

StatisticsChannel channel_of(std::shared_ptr<ProcessGroup> group, const std::string& name) {
  const auto about = std::make_shared<const std::string>("batch norm's statistics" +
                                                         (name.empty() ? "" : " of " + name));
  return {std::move(group), {.layout = hash_of(name.data(), name.size()), .about = about}};
}

// Does the same for a rank that computes several shards one after the other (virtual_ranks.h).
StatisticsChannel channel_now(const StatisticsChannel& channel) {
  ShardMeeting* const meeting = ShardMeeting::current();
  if (!meeting) return channel;
  StatisticsChannel of_shards = channel;
  of_shards.gather_shards = [meeting, &channel](const Tensor& own) {
    return meeting->gather(*channel.group, own, channel.options);
  };
  return of_shards;
}

// A shard's loss is a sum already: its gradients' sums are added as they are, in the order of
// shards.
void sum_over_shards(const Tensor& a, const Tensor& b, const StatisticsChannel& channel) {
  const int64_t n = a.numel();
  const Tensor packed = empty({2 * n}, {.dtype = DType::Float64});
  copy_(packed.as_strided({n}, {1}, 0), a);
  copy_(packed.as_strided({n}, {1}, n), b);
  const Tensor all = channel.gather_shards(packed);
  kernels::fill(packed, 0);
  for (int64_t r = 0; r < all.size(0); ++r)
    kernels::add(packed, packed, all.as_strided({2 * n}, {1}, r * 2 * n));
  copy_(a, packed.as_strided({n}, {1}, 0));
  copy_(b, packed.as_strided({n}, {1}, n));
}

Tensor normalize(const Tensor& x_, const Tensor& weight_, const Tensor& bias_,
                 const Tensor& running_mean, const Tensor& running_var,
                 const BatchNormOptions& options, const StatisticsChannel& channel) {
  const ProcessGroup& group = *channel.group;
  if (!options.training) return batch_norm(x_, weight_, bias_, running_mean, running_var, options);
  OpScope scope("sync_batch_norm");
  check_batch_norm("sync_batch_norm", x_, weight_, bias_, running_mean, running_var, options);
  if (options.max_pool) {
    BatchNormOptions unpooled = options;
    unpooled.max_pool = 0;
    return max_pool2d(normalize(x_, weight_, bias_, running_mean, running_var, unpooled, channel),
                      {.kernel = options.max_pool});
  }
  CHECK_AS(DeviceError, group.reaches(x_.device()), "sync_batch_norm: the input is on ",
           x_.device(), ", which this group of ranks (", group.backend(), ") does not reach");
  const bool relu = options.activation == Activation::Relu;
  const double eps = options.eps;
  const DType per_channel = accumulator_dtype(x_.dtype());
  const Tensor x = to_layout(x_, layout_policy(x_.device()).batch_norm(x_));
  const Tensor weight = weight_ ? contiguous(to(weight_, per_channel)) : weight_;
  const Tensor bias = bias_ ? contiguous(to(bias_, per_channel)) : bias_;
  const Tensor residual = options.residual ? to_layout(options.residual, x.layout()) : Tensor();

  normalized_over_ranks = true;
  const auto [mean, var, count] = global_statistics(x, per_channel, channel_now(channel));
  CHECK_AS(ShapeError, count > 1, "sync_batch_norm: all ranks together have ", count,
           " value per channel, expected at least 2: the variance of one is undefined");
  const Tensor inputs[] = {x, weight, bias, residual};
  const Tensor y = empty_like(x);
  const Tensor positive = relu && detail::needs_grad(inputs)
                              ? layout_policy(x.device()).batch_norm_positive(x)
                              : Tensor();
  kernels::batch_norm_apply(y, positive, x, mean, var, weight, bias, residual, eps, relu);
  update_running(running_statistics("sync_batch_norm", running_mean, running_var, options), mean,
                 var, count);

  const Tensor recorded = differentiable(
      "sync_batch_norm", inputs, y,
      [x = save(x), y = save_if(relu, positive ? positive : y), mean = save(mean), var = save(var),
       weight = save(weight), eps, count = count, wants_residual = wants_grad(residual),
       wants_weight = wants_grad(weight), wants_bias = wants_grad(bias),
       channel](const Tensor& dy_) -> Gradients {
        const Tensor dy = to_layout(dy_, x.get().layout());
        const Tensor sum_dy = empty_like(mean.get());
        const Tensor sum_dy_xhat = empty_like(mean.get());
        kernels::batch_norm_backward_reduce(sum_dy, sum_dy_xhat, dy, x.get(), y.get(), mean.get(),
                                            var.get(), eps);
        const TensorOptions same{sum_dy.dtype(), sum_dy.device()};
        const Tensor dweight = wants_weight ? copy_of(sum_dy_xhat, same) : Tensor();
        const Tensor dbias = wants_bias ? copy_of(sum_dy, same) : Tensor();
        Contribution* const own = contribution_of_this_pass;
        if (own) own->receive();
        if (const auto now = channel_now(channel); now.gather_shards)
          sum_over_shards(sum_dy, sum_dy_xhat, now);
        else
          sum_over_ranks(sum_dy, sum_dy_xhat,
                         own ? own->pass_unit() : static_cast<double>(dy.size(0)), channel);
        const Tensor dx = empty_like(x.get());
        const Tensor dresidual = wants_residual ? empty_like(dx) : Tensor();
        kernels::batch_norm_backward_apply(dx, dresidual, dy, x.get(), y.get(), mean.get(),
                                           var.get(), weight.get(), sum_dy, sum_dy_xhat, eps,
                                           count);
        return {dx, dweight, dbias, dresidual};
      });
  return with_fused(recorded, fused_into(options));
}

}  // namespace

Tensor sync_batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                       const Tensor& running_mean, const Tensor& running_var,
                       const BatchNormOptions& options, ProcessGroup& group) {
  const std::shared_ptr<ProcessGroup> users(std::shared_ptr<void>(), &group);
  return normalize(x, weight, bias, running_mean, running_var, options, channel_of(users, ""));
}

int convert_sync_batchnorm(nn::Module& module, ProcessGroup& group) {
  std::vector<std::pair<std::string, nn::BatchNorm*>> norms;
  for (const auto& [name, below] : module.named_modules())
    if (auto* norm = dynamic_cast<nn::BatchNorm*>(below)) norms.emplace_back(name, norm);
  if (norms.empty()) return 0;
  // Two communicators of NCCL at once may wait for each other. So on GPUs these messages take their
  // turn among those of gradients, whose order is the same on all ranks that run the same layers.
  const std::shared_ptr<ProcessGroup> own =
      group.device().is_cuda() ? std::shared_ptr<ProcessGroup>(std::shared_ptr<void>(), &group)
                               : group.split(0);
  for (const auto& [name, norm] : norms)
    norm->set_normalization(
        [channel = channel_of(own, name)](const Tensor& x, const Tensor& weight, const Tensor& bias,
                                          const Tensor& running_mean, const Tensor& running_var,
                                          const BatchNormOptions& options) {
          return normalize(x, weight, bias, running_mean, running_var, options, channel);
        });
  return static_cast<int>(norms.size());
}

}  // namespace ringgrad
