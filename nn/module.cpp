#include "ringgrad/nn/module.h"

#include <algorithm>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"

namespace ringgrad::nn {
namespace {

// Gives a tensor, and its gradient, another dtype or device; every handle follows.
void replace(const Tensor& tensor, TensorOptions options) {
  if (tensor.dtype() == options.dtype && tensor.device() == options.device) return;
  const Tensor grad = tensor.grad();
  if (grad) tensor.set_grad({});  // a gradient must always fit its tensor
  tensor.set_data(copy_of(tensor, options));
  if (grad) tensor.set_grad(copy_of(grad, options));
}

void check_defined(const std::string& name, const Tensor& value) {
  CHECK(value.defined(), "module: '", name, "' is an undefined tensor; where there is none, register nothing");
}

}  // namespace

Tensor Module::forward(const Tensor&) {
  throw NotImplementedError(
      "module: forward(x) is not implemented by this type; override it, or call the module's own forward");
}

void Module::train(bool on) {
  training_ = on;
  for (auto& [name, child] : children_) child->train(on);
}

void Module::collect(const std::string& prefix, NamedTensors Module::*which, NamedTensors& out) const {
  for (const auto& [name, tensor] : this->*which) {
    const bool seen =
        std::any_of(out.begin(), out.end(), [&, &t = tensor](const auto& other) { return other.second.is_same(t); });
    if (!seen) out.emplace_back(prefix + name, tensor);
  }
  for (const auto& [name, child] : children_) child->collect(name.empty() ? prefix : prefix + name + ".", which, out);
}

NamedTensors Module::named_parameters() const {
  NamedTensors all;
  collect("", &Module::parameters_, all);
  return all;
}
NamedTensors Module::named_buffers() const {
  NamedTensors all;
  collect("", &Module::buffers_, all);
  return all;
}
std::vector<Tensor> Module::parameters() const { return tensors_of(named_parameters()); }
std::vector<Tensor> Module::buffers() const { return tensors_of(named_buffers()); }

std::vector<std::pair<std::string, Module*>> Module::named_modules() {
  std::vector<std::pair<std::string, Module*>> all{{"", this}};
  for (auto& [name, child] : children_)
    for (auto& [below, module] : child->named_modules())
      all.emplace_back(name.empty() || below.empty() ? name + below : name + "." + below, module);
  return all;
}

int64_t Module::num_parameters() const {
  int64_t n = 0;
  for (const Tensor& parameter : parameters()) n += parameter.numel();
  return n;
}

void Module::to(Device device) {
  check_device("module.to", device);
  for (const Tensor& parameter : parameters()) replace(parameter, {parameter.dtype(), device});
  for (const Tensor& buffer : buffers()) replace(buffer, {buffer.dtype(), device});
}

void Module::to(DType dtype) {
  if (!is_floating(dtype)) throw_unsupported_dtype("module.to", dtype, "a floating dtype");
  for (const auto& [name, module] : named_modules())
    for (const NamedTensors* own : {&module->parameters_, &module->buffers_})
      for (const auto& [tensor_name, tensor] : *own)
        if (is_floating(tensor.dtype())) replace(tensor, {module->storage_dtype(dtype), tensor.device()});
}

void Module::zero_grad() {
  for (const Tensor& parameter : parameters())
    if (const Tensor grad = parameter.grad()) fill_(grad, 0);
}

NamedTensors Module::state_dict() const {
  NamedTensors state;
  for (const auto& [name, tensor] : named_parameters()) state.emplace_back(name, tensor.detach());
  for (const auto& [name, tensor] : named_buffers()) state.emplace_back(name, tensor.detach());
  return state;
}

LoadReport Module::load_state_dict(const NamedTensors& state, bool strict) {
  return copy_by_name("load_state_dict", state_dict(), state, strict);
}

void Module::check_name(const std::string& name) const {
  CHECK(!name.empty() && name.find('.') == std::string::npos, "module: '", name,
        "' cannot be a name; expected one without dots");
  const auto taken = [&](const auto& list) {
    return std::any_of(list.begin(), list.end(), [&](const auto& entry) { return entry.first == name; });
  };
  CHECK(!taken(parameters_) && !taken(buffers_) && !taken(children_), "module: the name '", name,
        "' is already registered");
}

Tensor Module::register_parameter(const std::string& name, const Tensor& value) {
  check_name(name);
  check_defined(name, value);
  value.set_requires_grad();
  parameters_.emplace_back(name, value);
  return value;
}

Tensor Module::register_buffer(const std::string& name, const Tensor& value) {
  check_name(name);
  check_defined(name, value);
  buffers_.emplace_back(name, value);
  return value;
}

void Module::register_module(const std::string& name, Module& child) {
  check_name(name);
  children_.emplace_back(name, &child);
}

void Module::adopt(Module& module) {
  children_.emplace_back("", &module);
  training_ = module.training_;
}

}  // namespace ringgrad::nn
