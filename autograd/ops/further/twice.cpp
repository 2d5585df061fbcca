// A pass that keeps a graph of the gradients: closures run on tensors with their history, and what
// they compute by operations is recorded. The gradients of the book's operations by operations.
#include "ringgrad/autograd/twice.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <map>

#include "ringgrad/autograd/autocast.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/autograd/ops/class_loss.h"
#include "ringgrad/autograd/ops/further/common.h"
#include "ringgrad/autograd/ops/further/second_slopes.h"
#include "ringgrad/core/base/before_main.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/kernels.h"
#include "ringgrad/core/kernels/conv_plan.h"

namespace ringgrad {
namespace {

// x as the input or output that the edge leads to. One that was saved repeated (broadcast_view) is
// seen once.
Tensor at_edge(const Tensor& x, const Edge& edge) {
  const Shape& shape = edge.node->outputs[static_cast<size_t>(edge.output)].shape;
  Strides strides = shape;
  const int added = x.dim() - shape.dim();
  for (int d = 0; x.shape() != shape && d < shape.dim(); ++d) strides[d] = x.strides()[added + d];
  const Tensor own =
      x.shape() == shape ? x.detach() : x.as_strided(shape, strides, x.storage_offset());
  AutogradMeta& meta = autograd_meta(own);
  meta.grad_fn = edge.node;
  meta.output = edge.output;
  return own;
}

[[noreturn]] void refuse(const Node& node, const std::string& reason) {
  throw Error(str(node.name, ": create_graph: it cannot be differentiated twice: ", reason,
                  "; else write what it does as other operations of autograd/ops.h, or leave "
                  "create_graph out"));
}

// Follows what the kernels of a closure compute. If they compute something of a tensor with a
// history, and no operation records it, a part of its history is lost. An operation that takes it
// would lack that part without a word, and so would a gradient. A kernel writes its first array,
// and those behind it that nobody has seen before.
class LostHistory : KernelObserver, TapeObserver {
 public:
  LostHistory(const Node& node, std::span<const Tensor> grad_outputs) : node_(node) {
    for (const Tensor& dy : grad_outputs)
      if (dy) know(dy);
    KernelObserver::set_current(this);
    tape_observer = this;
  }
  ~LostHistory() override {
    KernelObserver::set_current(kernels_before_);
    tape_observer = tape_before_;
  }
  LostHistory(const LostHistory&) = delete;

  // Says that x has been written before.
  void know(const Tensor& x) { seen_.try_emplace(x.storage().get(), nullptr, x.storage()); }

  void check(const char* verb, const Tensor& x) const {
    const char* const kernel = lost_by(x);
    if (kernel)
      refuse(node_, str("its backward ", verb, " a tensor of shape ", x.shape(),
                        " that the kernel ", kernel,
                        " computed of tensors with a history, which nobody records; "
                        "expected an operation in its place where grad_enabled() "
                        "(autograd/differentiable.h), or detach() of what the kernel reads if the "
                        "derivative of its result is 0"));
  }

 private:
  // Returns the kernel, or null if nothing is lost.
  const char* lost_by(const Tensor& x) const {
    if (!x || x.requires_grad()) return nullptr;
    const auto found = seen_.find(x.storage().get());
    return found == seen_.end() ? nullptr : found->second.kernel;
  }

  void call(const ObservedCall& call, const std::function<void()>& run) override {
    if (kernels_before_)
      kernels_before_->call(call, run);
    else
      run();
    const bool in_closure = current_op() == scope_name_.c_str();
    const char* lost_by_kernel = nullptr;
    std::vector<const Tensor*> written;
    bool reads = false;
    for (size_t i = 0; i < call.arguments.size(); ++i) {
      const Tensor* const x = call.tensor(i);
      if (!x || !is_floating(x->dtype())) continue;
      if (!lost_by_kernel) lost_by_kernel = lost_by(*x);
      reads = reads || (in_closure && x->requires_grad());
      if (!x->requires_grad() && (i == 0 || !seen_.contains(x->storage().get())))
        written.push_back(x);
    }
    if (!lost_by_kernel && reads) lost_by_kernel = call.kernel.name();
    for (const Tensor* const y : written)
      seen_.insert_or_assign(y->storage().get(), Seen{lost_by_kernel, y->storage()});
  }

  void recorded(Node& node, std::span<const Tensor> inputs,
                std::span<const Tensor> outputs) override {
    for (const Tensor& x : inputs) check(str("gives ", node.name).c_str(), x);
    for (const Tensor& y : outputs)
      seen_.insert_or_assign(y.storage().get(), Seen{nullptr, y.storage()});
    if (tape_before_) tape_before_->recorded(node, inputs, outputs);
  }
  bool runs_again() const override { return tape_before_ && tape_before_->runs_again(); }
  std::vector<Tensor> once(const Once& f) override {
    return tape_before_ ? tape_before_->once(f) : f();
  }

  struct Seen {
    const char* kernel;              // that computed it of tensors with a history; else null
    std::weak_ptr<Storage> storage;  // so that no other storage gets its address
  };
  const Node& node_;
  // The name as an address of its own: an operation within the closure may have the same one.
  const std::string scope_name_ = node_.name;
  const OpScope scope_{scope_name_.c_str()};
  std::map<const Storage*, Seen> seen_;
  KernelObserver* const kernels_before_ = KernelObserver::current();
  TapeObserver* const tape_before_ = tape_observer;
};

// The closure that runs on this thread.
struct Running {
  const std::shared_ptr<Node>& node;
  LostHistory lost;
  std::deque<Tensor> with_history = {};
  bool reads_history = false;  // of elements
  Running* const before = std::exchange(innermost, this);

  Running(const std::shared_ptr<Node>& node, std::span<const Tensor> grad_outputs)
      : node(node), lost(*node, grad_outputs) {}
  ~Running() { innermost = before; }
  Running(const Running&) = delete;
  static inline constinit thread_local Running* innermost = nullptr;
};

const Tensor& with_history(const Tensor& saved, int from) {
  if (!saved || !is_floating(saved.dtype())) return saved;
  Running& running = *Running::innermost;
  running.lost.know(saved);
  if (from == kSavedConstant) return saved;
  const std::shared_ptr<Node>& node = running.node;
  if (from == kSavedUnsaid)
    refuse(*node, str("it saves a tensor of shape ", saved.shape(),
                      " and does not say which input or output that is; expected save(x, i), "
                      "save(y, kSavedOutput) or save(t, kSavedConstant)"));
  const Edge edge = from >= 0 ? node->next[static_cast<size_t>(from)]
                              : Edge{node, from == kSavedOutput ? 0 : kSavedUnsaid - from};
  if (!edge.node) return saved;
  running.reads_history = running.reads_history || saved.numel() > 0;
  return running.with_history.emplace_back(at_edge(saved, edge));
}

// While it lives, saved tensors have their history.
class WithHistory {
 public:
  WithHistory() : before_(std::exchange(saved_with_history, with_history)) {}
  ~WithHistory() { saved_with_history = before_; }
  WithHistory(const WithHistory&) = delete;

 private:
  const SavedWithHistory before_;
};

// A gradient that was computed by kernels has no history, and so the derivative of it would be
// lost without a word. It needs one where dy has, or where what else was read has.
void check_recorded(const Node& node, std::span<const Tensor> dy, const Gradients& grads,
                    bool reads_history) {
  const auto has_history = [](const Tensor& g) { return g && g.requires_grad(); };
  const bool of_dy = std::any_of(dy.begin(), dy.end(),
                                 [&](const Tensor& g) { return has_history(g) && g.numel() > 0; });
  int recorded = 0;
  int lost = 0;
  for (size_t i = 0; i < std::min(grads.size(), node.next.size()); ++i)
    if (node.next[i].node && grads[i] && grads[i].numel() > 0)
      ++(has_history(grads[i]) ? recorded : lost);
  if (of_dy ? lost > 0 : reads_history && lost > 0 && recorded == 0)
    refuse(node,
           "its backward computes gradients by kernels, which nobody records; expected one that "
           "computes them by operations where grad_enabled() (autograd/differentiable.h)");
}

Gradients run(const std::shared_ptr<Node>& node, std::span<const Tensor> grad_outputs) {
  const Running running(node, grad_outputs);
  const WithHistory history;
  const AutocastGuard no_autocast(std::nullopt);
  Gradients grads = node->backward(grad_outputs);
  check_recorded(*node, grad_outputs, grads, running.reads_history);
  for (size_t i = 0; i < std::min(grads.size(), node->next.size()); ++i)
    if (node->next[i].node) running.lost.check("returns", grads[i]);
  return grads;
}

Tensor sum_with_history(const Tensor& a, const Tensor& b) {
  if (!a) return clone(b);
  return add(a, to(to(b, a.dtype()), a.device()));
}

// ---- elementwise functions ----------------------------------------------------------------------

// dy · slope(saved): linear in dy, and what `second` says of the saved tensor.
Tensor times_slope(const char* name, const SecondSlope& second, const Twice::Slope& slope,
                   const std::vector<double>& numbers, const Tensor& dy, const Tensor& saved) {
  Tensor dx = empty_like(saved);
  slope(dx, like(dy, saved), saved);
  return differentiable(
      name, {dy, saved}, dx,
      [=, dy = save(dy, 0), saved = save(saved, 1)](const Tensor& g) -> Gradients {
        const Tensor more = second(saved.get(), numbers);
        return {times_slope(name, second, slope, numbers, g, saved.get()),
                more ? mul(mul(g, dy.get()), more) : more};
      });
}

Tensor of_elementwise(const Tensor& dy, const Tensor& saved, const Twice::Slope& slope,
                      const std::vector<double>& numbers) {
  const char* const name = Running::innermost->node->name;
  return times_slope(name, second_slope(name), slope, numbers, dy, saved);
}

// ---- products -----------------------------------------------------------------------------------

Gradients of_linear(const Tensor& dy, const Tensor& x, const Tensor& w) {
  return {w ? matmul(dy, w) : w, x ? matmul(transpose(dy, 0, 1), x) : x,
          wanted_input(2) ? sum(dy, 0) : Tensor()};
}

Gradients of_conv2d(const Tensor& dy, const Tensor& x, const Tensor& w,
                    const Conv2dOptions& options) {
  const OutputInfo* const b = wanted_input(2);
  return {w ? conv2d_input_gradient(dy, w, wanted_input(0)->shape, options) : w,
          x ? conv2d_weight_gradient(dy, x, *wanted_input(1), options) : x,
          b ? to(sum(dy, {0, 2, 3}), b->dtype) : Tensor()};
}

// ---- images and losses --------------------------------------------------------------------------

Tensor of_max_pool2d(const Tensor& dy, const Tensor& index) {
  return max_pool2d_gradient(dy, index, wanted_input(0)->shape);
}

// The loss of a row is -Σ q log softmax(x).
Tensor of_cross_entropy(const Tensor& dy, const Tensor& x_, const Tensor& target,
                        const Tensor& class_weight, const Tensor& weight_sum,
                        const kernels::CrossEntropyOptions& options) {
  // Rows that are ignored are 0: of a row of -∞ the softmax is NaN, and so is 0 times that.
  const Tensor counts = reshape(ne(target, options.ignore_index), {target.numel(), 1});
  const Tensor x = where(counts, to(x_, dy.dtype()), 0);
  const Tensor q = class_parts(target, class_weight, x, options);
  const Tensor slope = sub(mul(softmax(x), sum(q, 1, true)), q);
  return to(mul(row_gradient(dy, weight_sum, target, options.ignore_index), slope), x_.dtype());
}

const Twice kTwice = {.run = run,
                      .sum = sum_with_history,
                      .elementwise = of_elementwise,
                      .linear = of_linear,
                      .conv2d = of_conv2d,
                      .max_pool2d = of_max_pool2d,
                      .batch_norm = batch_norm_gradients,
                      .cross_entropy = of_cross_entropy};
BEFORE_MAIN(twice, twice = &kTwice);

}  // namespace

const OutputInfo* wanted_input(size_t i) {
  const std::vector<Edge>& next = Running::innermost->node->next;
  if (i >= next.size() || !next[i].node) return nullptr;
  return &next[i].node->outputs[static_cast<size_t>(next[i].output)];
}

// The gradient of a convolution's images is the transposed convolution of dy.
Tensor conv2d_input_gradient(const Tensor& dy, const Tensor& w, const Shape& x,
                             const Conv2dOptions& o) {
  const auto more = [](int64_t in, int64_t out, int64_t kernel, int64_t stride, int64_t padding,
                       int64_t dilation) {
    return in - ((out - 1) * stride - 2 * padding + dilation * (kernel - 1) + 1);
  };
  return conv_transpose2d(
      dy, w, {},
      {.stride = o.stride,
       .padding = o.padding,
       .output_padding = {more(x[2], dy.size(2), w.size(2), o.stride.h, o.padding.h, o.dilation.h),
                          more(x[3], dy.size(3), w.size(3), o.stride.w, o.padding.w, o.dilation.w)},
       .dilation = o.dilation,
       .groups = o.groups});
}

Tensor conv2d_weight_gradient(const Tensor& dy_, const Tensor& x_, const OutputInfo& w,
                              const Conv2dOptions& options) {
  const Tensor dw = empty(w.shape, {w.dtype, x_.device()});
  const ConvPlan plan =
      layout_policy(x_.device()).conv2d(conv_problem(ConvPass::Forward, x_, dw, options));
  const bool planned = plan.method != ConvMethod::MatrixProduct && plan.padded_channels == 0;
  const Tensor dy = to_layout(dy_, planned ? plan.layout : Layout::Strided);
  const Tensor x = to_layout(x_, planned ? plan.x_layout : Layout::Strided);
  kernels::conv2d_backward_weight(dw, dy, x, options);
  return differentiable("conv2d_backward_weight", {dy, x}, dw,
                        [dy = save(dy, 0), x = save(x, 1), options](const Tensor& g) -> Gradients {
                          const AutocastGuard no_autocast(std::nullopt);
                          return {conv2d(x.get(), g, {}, options),
                                  conv2d_input_gradient(dy.get(), g, x.get().shape(), options)};
                        });
}

// Sees the images that were pooled as rows of pixels.
Tensor max_pool2d_gradient(const Tensor& dy, const Tensor& index, const Shape& images) {
  const Shape rows = {dy.size(0), dy.size(1), dy.size(2) * dy.size(3)};
  const Tensor places = reshape(to(strided_contiguous(index), DType::Int64), rows);
  const Tensor none =
      zeros({images[0], images[1], images[2] * images[3]}, {dy.dtype(), dy.device()});
  return reshape(scatter_add(none, 2, places, reshape(dy, rows)), images);
}

Tensor row_gradient(const Tensor& dy, const Tensor& weight_sum, const Tensor& target,
                    int64_t ignore_index) {
  const Tensor of_row = weight_sum ? div(dy, weight_sum) : dy;  // NaN where all are ignored
  return reshape(where(ne(target, ignore_index), of_row, 0), {target.numel(), 1});
}

Tensor class_parts(const Tensor& target, const Tensor& class_weight, const Tensor& like,
                   const kernels::CrossEntropyOptions& options) {
  const int64_t classes = like.size(1);
  Tensor q = one_hot(where(ne(target, options.ignore_index), target, 0), classes, like.dtype());
  const double smoothing = options.label_smoothing;
  if (smoothing > 0) q = add(mul(q, 1 - smoothing), smoothing / static_cast<double>(classes));
  return class_weight ? mul(q, to(class_weight, like.dtype())) : q;
}

// ---- batch normalisation ------------------------------------------------------------------------

// `positive` may have a bit for each number. The kernel that knows how they lie gives dresidual.
static Tensor ones_where_positive(const Tensor& y, const Tensor& like) {
  const Tensor ones = ones_like(like.detach());
  const Tensor mask = empty_like(ones);
  const Tensor unused = empty_like(ones);
  const Tensor none = zeros({like.size(1)}, {accumulator_dtype(like.dtype()), like.device()});
  kernels::batch_norm_backward_apply(unused, mask, ones, ones, y, none, none, {}, none, none, 1,
                                     INFINITY);
  return mask;
}

Gradients batch_norm_gradients(const Tensor& dy_, const Tensor& x_, const Tensor& weight,
                               const Tensor& y, const Tensor& mean_, const Tensor& var,
                               double eps) {
  const DType wide = accumulator_dtype(x_.dtype());
  Dims dims = {0};
  Shape channels = x_.shape();
  channels[0] = 1;
  for (int d = 2; d < x_.dim(); ++d) {
    dims.push_back(d);
    channels[d] = 1;
  }
  const auto per_channel = [&](const Tensor& t) { return reshape(t, channels); };
  const Tensor rectified = y ? where(ones_where_positive(y, x_) > 0, dy_, 0) : dy_;
  const Tensor g = to(rectified, wide);
  const Tensor x = to(x_, wide);
  const bool training = !mean_;
  const Tensor apart = sub(x, training ? mean(x, dims, true) : per_channel(mean_));
  const Tensor spread = training ? mean(square(apart), dims, true) : per_channel(var);
  const Tensor rstd = pow(add(spread, eps), -0.5);
  const Tensor xhat = mul(apart, rstd);
  Tensor dx = g;
  if (training) dx = sub(sub(g, mean(g, dims, true)), mul(xhat, mean(mul(g, xhat), dims, true)));
  dx = mul(dx, weight ? mul(rstd, per_channel(weight)) : rstd);
  Gradients all = {to(dx, x_.dtype()), wanted_input(1) ? sum(mul(g, xhat), dims) : Tensor(),
                   wanted_input(2) ? sum(g, dims) : Tensor(),
                   wanted_input(3) ? rectified : Tensor()};
  all.resize(Running::innermost->node->next.size());
  return all;
}

}  // namespace ringgrad
