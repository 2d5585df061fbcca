#include "ringgrad/nn/module.h"

#include <algorithm>
#include <typeinfo>

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

// The entries that name another tensor than those before them.
NamedTensors distinct(const NamedTensors& all) {
  NamedTensors kept;
  for (const auto& entry : all)
    if (std::none_of(kept.begin(), kept.end(),
                     [&](const auto& other) { return other.second.is_same(entry.second); }))
      kept.push_back(entry);
  return kept;
}

}  // namespace

Module::Module(Module&& other) noexcept
    : parameters_(std::move(other.parameters_)),
      buffers_(std::move(other.buffers_)),
      children_(std::move(other.children_)),
      hooks_(std::move(other.hooks_)),
      next_hook_(other.next_hook_),
      training_(other.training_),
      place_(std::move(other.place_)) {
  *place_ = this;
}

Module::~Module() {
  if (place_) *place_ = nullptr;
}

Module& Module::module_of(const Child& child) {
  CHECK(*child.place != nullptr, "module: '", child.name,
        "' has been destroyed, and was registered as a reference; "
        "register the std::shared_ptr itself, which keeps it: ",
        "register_module(\"", child.name, "\", std::make_shared<…>(…))");
  return **child.place;
}

Tensor Module::forward(const Tensor&) {
  throw NotImplementedError(
      "module: forward(x) is not implemented by this type; "
      "override it, or call the module's own forward");
}

void Module::train(Flag on) {
  training_ = on;
  for (const Child& child : children_) module_of(child).train(on);
}

NamedTensors Module::collect(Registrations Module::*which) const {
  NamedTensors all;
  for (const auto& registration : this->*which)
    if (const Tensor& tensor = registration->tensor()) all.emplace_back(registration->name, tensor);
  for (const Child& child : children_)
    for (auto& [name, tensor] : module_of(child).collect(which))
      all.emplace_back(child.name.empty() ? name : child.name + "." + name, tensor);
  return all;
}

NamedTensors Module::named_parameters() const { return distinct(collect(&Module::parameters_)); }
NamedTensors Module::named_buffers() const { return distinct(collect(&Module::buffers_)); }
std::vector<Tensor> Module::parameters() const { return tensors_of(named_parameters()); }
std::vector<Tensor> Module::buffers() const { return tensors_of(named_buffers()); }

std::vector<std::pair<std::string, Module*>> Module::named_modules() {
  std::vector<std::pair<std::string, Module*>> all{{"", this}};
  for (const Child& child : children_)
    for (auto& [below, module] : module_of(child).named_modules()) {
      const bool listed = std::any_of(all.begin(), all.end(),
                                      [&](const auto& other) { return other.second == module; });
      if (!listed)
        all.emplace_back(
            child.name.empty() || below.empty() ? child.name + below : child.name + "." + below,
            module);
    }
  return all;
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

void Module::apply(const std::function<void(Module& module)>& f) {
  const auto all = named_modules();  // parents first
  for (auto entry = all.rbegin(); entry != all.rend(); ++entry) f(*entry->second);
}

HookHandle Module::register_forward_hook(ForwardHook hook) {
  const int id = next_hook_++;
  hooks_.emplace(id, std::move(hook));
  return HookHandle([place = place_, id] {
    if (*place) (*place)->hooks_.erase(id);
  });
}

Tensor Module::forward_with_hooks(const Tensor& x) {
  Tensor y = forward(x);
  const auto hooks = hooks_;  // a hook may remove itself, or others
  for (const auto& [id, hook] : hooks)
    if (const Tensor other = hook(*this, x, y)) y = other;
  return y;
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
  next_hook_ = source.next_hook_;
  follow_members(source);
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
    for (const Registrations* own : {&module->parameters_, &module->buffers_})
      for (const auto& registration : *own)
        if (const Tensor& tensor = registration->tensor(); tensor && is_floating(tensor.dtype()))
          replace(tensor, {module->storage_dtype(dtype), tensor.device()});
}

void Module::zero_grad() {
  for (const Tensor& parameter : parameters())
    if (const Tensor grad = parameter.grad()) fill_(grad, 0);
}

NamedTensors Module::state_dict() const {
  NamedTensors state;
  for (const auto& [name, tensor] : collect(&Module::parameters_))
    state.emplace_back(name, tensor.detach());
  for (const auto& [name, tensor] : collect(&Module::buffers_))
    state.emplace_back(name, tensor.detach());
  return state;
}

LoadReport Module::load_state_dict(const NamedTensors& state, Flag strict) {
  return copy_by_name("load_state_dict", state_dict(), state, strict);
}

void Module::check_name(const std::string& name) const {
  CHECK(!name.empty() && name.find('.') == std::string::npos, "module: '", name,
        "' cannot be a name; expected one without dots");
  const auto among = [&](const Registrations& list) {
    return std::any_of(list.begin(), list.end(),
                       [&](const auto& entry) { return entry->name == name; });
  };
  CHECK(!among(parameters_) && !among(buffers_) &&
            std::none_of(children_.begin(), children_.end(),
                         [&](const Child& child) { return child.name == name; }),
        "module: the name '", name, "' is already registered");
}

std::shared_ptr<Registration> Module::register_tensor(Registrations& list, const std::string& name,
                                                      const Tensor& value) {
  check_name(name);
  return list.emplace_back(
      std::make_shared<Registration>(name, &list == &parameters_, nullptr, value));
}

std::shared_ptr<Registration> Module::register_parameter(const std::string& name,
                                                         const Tensor& value) {
  if (value) value.set_requires_grad();
  return register_tensor(parameters_, name, value);
}

std::shared_ptr<Registration> Module::register_buffer(const std::string& name,
                                                      const Tensor& value) {
  return register_tensor(buffers_, name, value);
}

void Module::add_child(const std::string& name, Module& child, std::shared_ptr<Module> owned) {
  for (const auto& [below, module] : child.named_modules())
    CHECK(module != this, "module: '", name,
          "' is or contains the module that it is registered in");
  children_.push_back({name, child.place_, std::move(owned)});
}

void Module::own(const std::string& name, std::shared_ptr<Module> child) {
  check_name(name);
  CHECK(child != nullptr, "module: '", name, "' is a null pointer, expected a module");
  Module& module = *child;
  add_child(name, module, std::move(child));
}

void Module::register_module(const std::string& name, Module& child) {
  check_name(name);
  add_child(name, child, nullptr);
}

void Module::adopt(Module& module) {
  add_child("", module, nullptr);
  training_ = module.training_;
}

}  // namespace ringgrad::nn
