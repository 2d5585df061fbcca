#include "ringgrad/nn/optim/mixed_precision.h"

#include <algorithm>

#include "ringgrad/autograd/engine.h"
#include "ringgrad/autograd/grad.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/kernels.h"

namespace ringgrad::optim {

std::vector<Tensor> Optimizer::flat_grads() {
  take_in_unfrozen();
  std::vector<Tensor> flat;
  for (Group& group : groups_)
    for (const ArenaRange& range :
         share_ ? share_->parts(group.parameters) : arena_ranges(group.parameters))
      flat.push_back(range.grads);
  return flat;
}

namespace {

Tensor scalar64(double value, Device device) {
  return full({}, value, {.dtype = DType::Float64, .device = device});
}

// Returns x repeated as a flat array of n elements, without using memory.
Tensor spread(const Tensor& x, int64_t n) { return x.as_strided({n}, {0}, x.storage_offset()); }

// Returns 1 if a equals b, else 0 (float64 []). NaN equals nothing.
Tensor is_equal(const Tensor& a, const Tensor& b) {
  const Tensor same = empty({}, {DType::Bool, a.device()});
  const Tensor number = scalar64(0, a.device());
  kernels::equal(same, a, b);
  kernels::copy(number, same);
  return number;
}

}  // namespace

GradScaler::GradScaler(Device device, GradScalerOptions options)
    : options_(options),
      scale_(scalar64(options.initial_scale, device)),
      good_steps_(scalar64(0, device)) {
  CHECK(options.initial_scale > 0 && options.growth >= 1 && options.backoff > 0 &&
            options.backoff <= 1 && options.growth_interval >= 1,
        "GradScaler: initial scale ", options.initial_scale, ", growth ", options.growth,
        ", backoff ", options.backoff, ", interval ", options.growth_interval,
        ", expected a positive scale, growth >= 1, 0 < backoff <= 1 and at ", "least one step");
}

Tensor GradScaler::scale(const Tensor& loss) const {
  check_defined("GradScaler", loss, "the loss");
  const DType wide = accumulator_dtype(loss.dtype());
  return mul(to(loss, wide), to(scale_, wide));
}

void GradScaler::unscale(Optimizer& optimizer) {
  NoGradGuard no_grad;
  CHECK(!met_.contains(&optimizer),
        "GradScaler: unscale() twice without update() in between: gradients that have been added "
        "since would stay scaled, and the others would be divided twice");
  const Tensor zero = full({}, 0, {.dtype = DType::Int64, .device = scale_.device()});
  // Positions are counted from the end, so that all of them are below zero.
  const Tensor first_not_finite = zeros_like(zero);
  const Tensor inverse = empty_like(scale_);
  kernels::div(inverse, scalar64(1, scale_.device()), scale_);
  for (const Tensor& grads : optimizer.flat_grads()) {
    // In float16 the inverse of a large scale would be 0.
    const DType wide = accumulator_dtype(grads.dtype());
    begin_write("GradScaler", grads);
    const Tensor divided = to(grads, wide);  // the gradients themselves if they are wide
    kernels::mul(divided, divided, spread(to(inverse, wide), divided.numel()));
    if (wide != grads.dtype()) kernels::copy(grads, divided);
    kernels::find_not_finite(first_not_finite, grads, -grads.numel());
  }
  const Tensor guard = scalar64(0, scale_.device());
  kernels::div(guard, guard, is_equal(first_not_finite, zero));  // 0 / 1, or NaN: 0 / 0
  if (optimizer.step_share()) optimizer.step_share()->add(guard);
  met_[&optimizer].guard = guard;
}

void GradScaler::step(Optimizer& optimizer) {
  NoGradGuard no_grad;
  if (!met_.contains(&optimizer)) unscale(optimizer);
  Met& met = met_.at(&optimizer);
  CHECK(!std::exchange(met.stepped, true),
        "GradScaler: step() twice without update() in between: "
        "nobody would divide the second one's gradients");
  optimizer.step(met.guard);
}

// Has no branch, because only the device knows the values. With good and grown 0 or 1:
//   steps = good (steps + 1);  grown = steps is the interval;  steps = (1 - grown) steps
//   scale *= backoff + good (1 - backoff) + grown (growth - 1)
void GradScaler::update() {
  NoGradGuard no_grad;
  CHECK(!met_.empty(), "GradScaler: update() without a step() since the last one");
  const Tensor guard = scalar64(0, scale_.device());  // NaN if any of them is
  for (const auto& [optimizer, met] : met_) kernels::add(guard, guard, met.guard);
  met_.clear();
  const Tensor good = is_equal(guard, guard);
  const Tensor factor = empty_like(good);
  const Tensor rest = empty_like(good);
  kernels::affine(good_steps_, good_steps_, 1, 1);
  kernels::mul(good_steps_, good_steps_, good);
  const Tensor grown =
      is_equal(good_steps_, scalar64(static_cast<double>(options_.growth_interval), good.device()));
  kernels::affine(factor, good, 1 - options_.backoff, options_.backoff);
  kernels::axpby(factor, grown, options_.growth - 1, 1);
  kernels::mul(scale_, scale_, factor);
  kernels::affine(rest, grown, -1, 1);
  kernels::mul(good_steps_, good_steps_, rest);
}

MasterWeights::MasterWeights(nn::NamedTensors parameters) : model_(std::move(parameters)) {
  NoGradGuard no_grad;
  for (const auto& [name, tensor] : model_) {
    CHECK(tensor.defined() && tensor.is_leaf() && tensor.requires_grad(),
          "MasterWeights: parameter '", name, "' is no leaf that requires a gradient");
    const Tensor master = copy_of(tensor, {DType::Float32, tensor.device()});
    master.set_requires_grad();
    masters_.emplace_back(name, master);
  }
}

void MasterWeights::zero_grad() {
  for (const auto& [name, tensor] : model_) autograd::zero_grad(tensor);
}

void MasterWeights::take_gradients() {
  NoGradGuard no_grad;
  for (size_t i = 0; i < model_.size(); ++i) {
    const Tensor grad = model_[i].second.grad();
    const Tensor& master = masters_[i].second;
    master.set_requires_grad(model_[i].second.requires_grad());  // a frozen one stays as it is
    if (!master.grad()) master.set_grad(zeros_like(master));
    if (grad)
      copy_(master.grad(), grad);
    else
      fill_(master.grad(), 0);
  }
}

void MasterWeights::publish() {
  NoGradGuard no_grad;
  for (size_t i = 0; i < model_.size(); ++i)
    if (masters_[i].second.requires_grad()) copy_(model_[i].second, masters_[i].second);
}

MasterShare::MasterShare(std::shared_ptr<const StepShare> share, nn::NamedTensors parameters)
    : share_(std::move(share)), named_(std::move(parameters)) {}

// The copies follow the parts. The gradients are converted when they have changed, because whoever
// divides or clips them changes their float32 numbers.
std::vector<ArenaRange> MasterShare::parts(const std::vector<Tensor>& parameters) const {
  const std::vector<Tensor> own = nn::tensors_of(named_);
  CHECK(
      std::equal(
          parameters.begin(), parameters.end(), own.begin(), own.end(),
          [](const Tensor& a, const Tensor& b) { return a.autograd_meta() == b.autograd_meta(); }),
      "MasterShare: the optimizer has ", parameters.size(), " parameters in a group, expected the ",
      own.size(), " of which there are float32 copies, in their order and in one group");
  const NoGradGuard no_grad;
  std::vector<ArenaRange> ranges = share_->parts(parameters);
  if (layout_ != share_->layout()) {
    const nn::NamedTensors old = layout_ < 0 ? nn::NamedTensors() : state_dict();
    states_.clear();
    for (const ArenaRange& range : ranges)
      states_.push_back({range.parameters,
                         range.offsets,
                         range.values.numel(),
                         {copy_of(range.values, {DType::Float32, range.values.device()})}});
    grads_.assign(ranges.size(), {});
    layout_ = share_->layout();
    if (!old.empty()) keep(states_, old);
  }
  values_.clear();
  for (size_t r = 0; r < ranges.size(); ++r) {
    const Tensor& grads = ranges[r].grads;
    Gradients& kept = grads_[r];
    if (!kept.wide) kept.wide = zeros_like(states_[r].arrays[0]);
    if (kept.version != grads.storage()->version()) copy_(kept.wide, grads);
    kept.version = grads.storage()->version();
    values_.push_back(ranges[r].values);
    ranges[r].values = states_[r].arrays[0];
    ranges[r].grads = kept.wide;
  }
  return ranges;
}

void MasterShare::gather() const {
  const NoGradGuard no_grad;
  for (size_t r = 0; r < values_.size(); ++r) copy_(values_[r], states_[r].arrays[0]);
  share_->gather();
}

nn::NamedTensors MasterShare::state_dict() const {
  const std::vector<Tensor> own = nn::tensors_of(named_);
  if (layout_ < 0) (void)parts(own);
  nn::NamedTensors state;
  const std::vector<Tensor> all = whole(own, states_, 0);
  for (size_t i = 0; i < named_.size(); ++i) state.emplace_back(named_[i].first, all[i]);
  return state;
}

void MasterShare::load_state_dict(const nn::NamedTensors& state) {
  const nn::NamedTensors all = state_dict();
  nn::copy_by_name("MasterShare.load_state_dict", all, state, true);
  keep(states_, all);
}

}  // namespace ringgrad::optim
