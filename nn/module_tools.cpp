// Functions on whole modules that a network itself does not need: walking, moving and converting
// it, hooks, and following by replicas and wrappers.
#include <algorithm>
#include <typeinfo>

#include "ringgrad/autograd/engine.h"
#include "ringgrad/autograd/grad.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/nn/module.h"

namespace ringgrad::nn {

// Converts a tensor and its gradient to another dtype or device. All handles follow.
static void replace(const Tensor& tensor, TensorOptions options) {
  if (tensor.dtype() == options.dtype && tensor.device() == options.device) return;
  const Tensor grad = tensor.grad();
  if (grad) tensor.set_grad({});  // a gradient must always fit its tensor
  tensor.set_data(copy_of(tensor, options));
  if (grad) tensor.set_grad(copy_of(grad, options));
}

std::vector<Tensor> Module::parameters(Flag recurse) const {
  return tensors_of(named_parameters(recurse));
}

std::vector<std::pair<std::string, Module*>> Module::named_children() const {
  std::vector<std::pair<std::string, Module*>> all;
  for (const Child& child : children_) all.emplace_back(child.name, &module_of(child));
  return all;
}

std::vector<Module*> Module::children() const {
  std::vector<Module*> all;
  for (const Child& child : children_) all.push_back(&module_of(child));
  return all;
}

int64_t Module::num_parameters() const {
  int64_t n = 0;
  for (const Tensor& parameter : parameters()) n += parameter.numel();
  return n;
}

void Module::apply(const std::function<void(Module& module)>& f) {
  const auto all = named_modules();  // parents first
  for (auto entry = all.rbegin(); entry != all.rend(); ++entry) f(*entry->second);
}

void Module::to(Device device) {
  check_device("module.to", device);
  for (const Tensor& parameter : parameters()) replace(parameter, {parameter.dtype(), device});
  for (const Tensor& buffer : buffers()) replace(buffer, {buffer.dtype(), device});
}

void Module::to(DType dtype) {
  if (!is_floating(dtype)) throw_unsupported_dtype("module.to", dtype, "a floating dtype");
  for (const auto& [name, module] : named_modules())
    for (const Registrations* own : {&module->parameters_, &module->buffers_})
      for (const auto& registration : *own)
        if (const Tensor& tensor = registration->tensor(); tensor && is_floating(tensor.dtype()))
          replace(tensor, {module->storage_dtype(dtype), tensor.device()});
}

void Module::zero_grad() {
  for (const Tensor& parameter : parameters()) autograd::zero_grad(parameter);
}

HookHandle Module::register_forward_hook(ForwardHook hook) {
  const int id = next_hook_++;
  hooks_.emplace(id, std::move(hook));
  return HookHandle([place = place_, id] {
    if (*place) (*place)->hooks_.erase(id);
  });
}

void Module::follow(const Module& source,
                    const std::function<void(Tensor&, const Tensor&)>& point) {
  CHECK(typeid(*this) == typeid(source), "module: a ", type_name(), " cannot follow a ",
        source.type_name());
  const auto follow_tensors = [&](const Registrations& own, const Registrations& others) {
    const auto alike = [](const auto& a, const auto& b) { return a->name == b->name; };
    const auto [here, there] =
        std::mismatch(own.begin(), own.end(), others.begin(), others.end(), alike);
    CHECK(here == own.end() && there == others.end(), "module: a ", type_name(), " has registered ",
          here == own.end() ? "nothing" : "'" + (*here)->name + "'",
          " where the one that it is to follow has ",
          there == others.end() ? "nothing" : "'" + (*there)->name + "'");
    for (size_t i = 0; i < own.size(); ++i) point(own[i]->tensor(), others[i]->tensor());
  };
  follow_tensors(parameters_, source.parameters_);
  follow_tensors(buffers_, source.buffers_);
  training_ = source.training_;
  hooks_ = source.hooks_;
  call_ = source.call_;
  next_hook_ = source.next_hook_;
  follow_members(source);
}

void Module::adopt(Module& module) {
  add_child("", module, nullptr);
  training_ = module.training_;
}

}  // namespace ringgrad::nn
