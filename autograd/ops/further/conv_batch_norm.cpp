// A convolution and its batch norm as one node.
//
// This is how often a layer in training crosses the memory of an activation. With 64 channels of
// 32 × 32 and batch 512 in bfloat16 that is 67 MB each time, and 4 MB for the bits.
//
//                                    two nodes                    one node
//   y of the convolution             write                        write, sums it
//   statistics                       read                         -
//   normalise, residual, ReLU        read, (read), write, bits    the same
//   ReLU's mask and batch norm's     read g, read y, bits         read y, bits in the convolution
//   two sums                                                      that computes g
//   batch norm's gradient            read g, read y, bits,        read g, read y, write
//                                    write, (write residual's)
//
// So a layer makes two passes over memory fewer, and a layer with a residual three.
#include "ringgrad/autograd/conv_batch_norm.h"

#include "ringgrad/autograd/autocast.h"
#include "ringgrad/autograd/gradient_home.h"
#include "ringgrad/autograd/ops/batch_norm.h"
#include "ringgrad/autograd/ops/conv.h"
#include "ringgrad/autograd/ops/further/common.h"
#include "ringgrad/core/kernels/autotune.h"
#include "ringgrad/core/kernels/call_signature.h"
#include "ringgrad/core/kernels/conv_batch_norm.h"

namespace ringgrad {
namespace {

// The node's closure. It has a type of its own, so that the convolution that reads the node's
// output finds it.
class ConvBatchNormBackward {
 public:
  // The inputs of the node, in this order.
  enum Input : int { kX, kWeight, kBias, kResidual, kW, kInputs };
  struct Forward {
    std::vector<Tensor> inputs;
    Tensor y;    // of the convolution
    Tensor out;  // or its bits; undefined without relu
    Tensor mean;
    Tensor var;
    Tensor filters;
    Conv2dOptions conv;
    double eps = 0;
  };

  explicit ConvBatchNormBackward(const Forward& f)
      : x_(save(f.inputs[kX], kX)),
        w_(save(f.inputs[kW], kW)),
        y_(save(f.y, kSavedConstant)),
        out_(save(f.out, kSavedConstant)),
        mean_(save(f.mean, kSavedConstant)),
        var_(save(f.var, kSavedConstant)),
        weight_(save(f.inputs[kWeight], kWeight)),
        filters_(wants_grad(f.inputs[kX]) ? f.filters : Tensor()),
        w_shape_(f.inputs[kW].shape()),
        w_dtype_(f.inputs[kW].dtype()),
        conv_(f.conv),
        eps_(f.eps),
        w_home_(f.inputs[kW]),
        weight_home_(f.inputs[kWeight]),
        bias_home_(f.inputs[kBias]) {
    for (int i = 0; i < kInputs; ++i) wants_[i] = wants_grad(f.inputs[i]);
  }

  Gradients operator()(std::span<const Tensor> dys) {
    Sums sums = std::exchange(sums_, {});
    // Another gradient has been added since, or the pass that left them has thrown.
    if (sums.g && !sums.g.is_same(dys[0])) sums = {};
    if (grad_enabled()) return with_history(dys[0]);
    const Tensor& x = x_.get();
    const Tensor& y = y_.get();
    const Tensor g = to_layout(dys[0], y.layout());
    const auto [sum_dy, sum_dy_xhat] = sums.g ? std::pair(sums.dy, sums.dy_xhat) : homes();
    const Tensor dy = empty_like(y);
    Tensor dresidual;
    if (sums.g) {
      kernels::batch_norm_backward_apply(dy, {}, g, y, {}, mean_.get(), var_.get(), weight_.get(),
                                         sum_dy, sum_dy_xhat, eps_,
                                         static_cast<double>(y.numel() / y.size(1)));
      if (wants_[kResidual]) dresidual = g;
    } else {
      if (wants_[kResidual]) dresidual = empty_like(y);
      kernels::batch_norm_backward(sum_dy, sum_dy_xhat, dy, dresidual, g, y, out_.get(),
                                   mean_.get(), var_.get(), weight_.get(), eps_);
    }
    Gradients all(kInputs);
    if (wants_[kX]) all[kX] = input_gradient(x, dy);
    if (wants_[kWeight]) all[kWeight] = sum_dy_xhat;
    if (wants_[kBias]) all[kBias] = sum_dy;
    all[kResidual] = dresidual;
    if (wants_[kW]) {
      all[kW] = w_home_.claim();
      if (!all[kW]) all[kW] = empty(w_shape_, {w_dtype_, dy.device()});
      kernels::conv2d_backward_weight(all[kW], dy, x, conv_);
    }
    return all;
  }

 private:
  // The convolution that computed g has rectified it and summed these. They hold g, so the
  // engine adds nothing to that tensor: a sum with another gradient is another tensor.
  struct Sums {
    Tensor g;
    Tensor dy;
    Tensor dy_xhat;
  };

  std::pair<Tensor, Tensor> homes() const {
    return {bias_home_.claim_or_empty(mean_.get()), weight_home_.claim_or_empty(mean_.get())};
  }

  // Returns the node before, if its gradient is complete with dx, only that node sees it, and it
  // is faster to sum it here.
  ConvBatchNormBackward* node_before(const Tensor& dx, const Tensor& dy,
                                     const Tensor& waiting) const {
    Node* const node = completed_by(kX);
    if (!node || has_hooks(*node) || !node->seen.empty()) return nullptr;
    auto* const before = node->backward.target<ConvBatchNormBackward>();
    if (!before || before->y_.get().layout() != dx.layout()) return nullptr;
    const ConvProblem problem = conv_problem(ConvPass::BackwardInput, dx, w_.get(), dy, conv_);
    return fuses_batch_norm(dx.device(), problem) && !vendor_is_preferred(dx, dy, waiting)
               ? before
               : nullptr;
  }

  static bool has_hooks(const Node& node) {
    return std::any_of(node.grad_hooks.begin(), node.grad_hooks.end(),
                       [](const auto& output) { return !output.second->hooks.empty(); });
  }

  // The vendor sums nothing. Where its dx is faster than ours without sums, dx is left to it.
  bool vendor_is_preferred(const Tensor& dx, const Tensor& dy, const Tensor& waiting) const {
    const DeviceType device = dx.device().type;
    const auto& kernel = kernels::conv2d_backward_input;
    if (preferred_provider(device) != Provider::Fastest || !kernel.has(device, Provider::Vendor))
      return false;
    const auto run = [&](Stream stream, Provider provider) {
      const StreamGuard on(stream);
      const ProviderGuard by(provider);
      kernel(dx, dy, filters_, waiting, conv_);
      return true;
    };
    return vendor_is_faster(
        current_stream(dx.device()),
        call_signature(kernel.name(), dx, dy, filters_, waiting, conv_),
        [&](Stream stream) { run(stream, Provider::Native); },
        [&](Stream stream) { return run(stream, Provider::Vendor); });
  }

  Tensor input_gradient(const Tensor& x, const Tensor& dy) const {
    w_.get();  // throws if it was modified since
    Tensor dx = empty(x.shape(), dy.options());
    const Tensor waiting = take_waiting_gradient(kX, dx);
    if (ConvBatchNormBackward* const before = node_before(dx, dy, waiting)) {
      const auto [sum_dy, sum_dy_xhat] = before->homes();
      kernels::conv2d_backward_batch_sums(dx, sum_dy, sum_dy_xhat, dy, filters_, waiting,
                                          before->y_.get(), before->out_.get(), before->mean_.get(),
                                          before->var_.get(), before->eps_, conv_);
      before->sums_ = {dx, sum_dy, sum_dy_xhat};
    } else {
      kernels::conv2d_backward_input(dx, dy, filters_, waiting, conv_);
    }
    return to_layout(dx, x.layout());
  }

  // A graph of the gradients needs the convolution's history, so it is computed again.
  Gradients with_history(const Tensor& dy) const {
    const Tensor& x = x_.get();
    const Tensor& w = w_.get();
    Gradients all = batch_norm_gradients(dy, conv2d(x, w, {}, conv_), weight_.get(), out_.get(), {},
                                         var_.get(), eps_);
    const Tensor of_y = all[kX];
    all[kX] = wants_[kX] ? conv2d_input_gradient(of_y, w, x.shape(), conv_) : Tensor();
    if (wants_[kW]) all[kW] = conv2d_weight_gradient(of_y, x, *wanted_input(kW), conv_);
    return all;
  }

  SavedTensor x_;
  SavedTensor w_;
  SavedTensor y_;
  SavedTensor out_;
  SavedTensor mean_;
  SavedTensor var_;
  SavedTensor weight_;
  Tensor filters_;
  Shape w_shape_;
  DType w_dtype_;
  Conv2dOptions conv_;
  double eps_;
  GradientHome w_home_;
  GradientHome weight_home_;
  GradientHome bias_home_;
  bool wants_[kInputs];
  Sums sums_;
};

// Returns true if conv2d() takes these, and batch_norm() its result. If not, they say why. Without
// a gradient of w two nodes keep less: conv2d() then saves no images.
bool may_be_one(const Tensor& x, const Tensor& w, const Conv2dOptions& conv,
                const BatchNormOptions& options) {
  if (!options.training || options.max_pool || !x || !w || x.dim() != 4 || w.dim() != 4 ||
      (grad_enabled() && !w.requires_grad()))
    return false;
  check_window("conv2d", x.shape(), w.shape(), conv.stride, conv.padding, conv.dilation,
               conv.groups);
  const auto fits = [](int64_t image, int64_t taps, int64_t padding, int64_t dilation) {
    return image + 2 * padding > dilation * (taps - 1);
  };
  return x.size(1) == w.size(1) * conv.groups && w.size(0) % conv.groups == 0 && x.numel() > 0 &&
         w.numel() > 0 && fits(x.size(2), w.size(2), conv.padding.h, conv.dilation.h) &&
         fits(x.size(3), w.size(3), conv.padding.w, conv.dilation.w);
}

}  // namespace

Tensor conv2d_batch_norm(const Tensor& x_, const Tensor& w_, const BatchNormTensors& tensors,
                         const Conv2dOptions& conv, const BatchNormOptions& options) {
  const Tensor given = autocast(x_);
  const auto two_nodes = [&] {
    return batch_norm(conv2d(given, w_, {}, conv), tensors.weight, tensors.bias,
                      tensors.running_mean, tensors.running_var, options);
  };
  if (!may_be_one(given, w_, conv, options)) return two_nodes();
  const Device device = given.device();
  const ConvProblem problem = conv_problem(ConvPass::Forward, given, w_, conv);
  const bool sums_forward = fuses_batch_norm(device, problem);
  ConvProblem backward = problem;
  backward.pass = ConvPass::BackwardInput;
  const LayoutPolicy& policy = layout_policy(device);
  const ConvPlan plan = policy.conv2d(problem);
  const Pair size = problem.output();
  if (!(sums_forward || fuses_batch_norm(device, backward)) || plan.padded_channels ||
      plan.method == ConvMethod::MatrixProduct || given.size(0) * size.h * size.w < 2)
    return two_nodes();

  OpScope scope("conv2d_batch_norm");
  check_conv_operands("conv2d", given, w_, {}, w_.size(0));
  const Tensor x = to_layout(given, plan.x_layout);
  const Tensor w = strided_contiguous(w_);
  const Tensor y = empty({x.size(0), w.size(0), size.h, size.w}, {x.dtype(), device, plan.layout});
  if (policy.batch_norm(y) != plan.layout) return two_nodes();
  check_batch_norm("batch_norm", y, tensors.weight, tensors.bias, tensors.running_mean,
                   tensors.running_var, options);
  const BatchNormArguments in(y, tensors.weight, tensors.bias, tensors.running_mean,
                              tensors.running_var, true);
  const kernels::RunningStatistics running =
      running_statistics("batch_norm", tensors.running_mean, tensors.running_var, options);
  const Tensor residual = options.residual ? to_layout(options.residual, plan.layout) : Tensor();
  const Tensor filters = policy.conv2d_filters(x, w.detach());
  if (sums_forward)
    kernels::conv2d_batch_stats(y, in.mean, in.var, x, filters, conv, running);
  else
    conv2d_batch_stats_in_steps(current_stream(device), y, in.mean, in.var, x, filters, conv,
                                running);

  const bool relu = options.activation == Activation::Relu;
  const std::vector<Tensor> inputs = {x, in.weight, in.bias, residual, w};
  const bool recorded = detail::needs_grad(inputs);
  const Tensor out = empty_like(y);
  const Tensor positive = relu && recorded ? policy.batch_norm_positive(y) : Tensor();
  kernels::batch_norm_apply(out, positive, y, in.mean, in.var, in.weight, in.bias, residual,
                            options.eps, relu);
  if (!recorded) return out;
  Tensor kept = positive ? positive : out;
  if (!relu) kept = {};
  detail::record(
      "conv2d_batch_norm", inputs, {&out, 1},
      ConvBatchNormBackward({inputs, y, kept, in.mean, in.var, filters, conv, options.eps}));
  return with_fused(out, fused_into(options));
}

}  // namespace ringgrad
