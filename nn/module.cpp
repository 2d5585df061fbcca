#include "ringgrad/nn/module.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <typeinfo>

#include "ringgrad/core/base/check.h"

namespace ringgrad::nn {
namespace {

// Returns the entries that name another tensor than all entries before them.
NamedTensors distinct(const NamedTensors& all) {
  NamedTensors kept;
  for (const auto& entry : all)
    if (std::ranges::none_of(kept,
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
      call_(std::move(other.call_)),
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

NamedTensors Module::collect(Registrations Module::*which, bool recurse) const {
  NamedTensors all;
  for (const auto& registration : this->*which)
    if (const Tensor& tensor = registration->tensor()) all.emplace_back(registration->name, tensor);
  if (!recurse) return all;
  for (const Child& child : children_)
    for (auto& [name, tensor] : module_of(child).collect(which))
      all.emplace_back(child.name.empty() ? name : child.name + "." + name, tensor);
  return all;
}

NamedTensors Module::named_parameters(Flag recurse) const {
  return distinct(collect(&Module::parameters_, recurse));
}
NamedTensors Module::named_buffers(Flag recurse) const {
  return distinct(collect(&Module::buffers_, recurse));
}
std::vector<Tensor> Module::buffers(Flag recurse) const {
  return tensors_of(named_buffers(recurse));
}

std::vector<std::pair<std::string, Module*>> Module::named_modules() {
  std::vector<std::pair<std::string, Module*>> all{{"", this}};
  for (const Child& child : children_)
    for (auto& [below, module] : module_of(child).named_modules()) {
      if (!std::ranges::count(all, module, &std::pair<std::string, Module*>::second))
        all.emplace_back(
            child.name.empty() || below.empty() ? child.name + below : child.name + "." + below,
            module);
    }
  return all;
}

Tensor Module::after_hooks(const Tensor& x, Tensor y) {
  const auto hooks = hooks_;  // a copy, because a hook may remove itself or others
  for (const auto& [id, hook] : hooks)
    if (const Tensor other = hook(*this, x, y)) y = other;
  return y;
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
    return std::ranges::any_of(list, [&](const auto& entry) { return entry->name == name; });
  };
  CHECK(
      !among(parameters_) && !among(buffers_) && !std::ranges::count(children_, name, &Child::name),
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

// Returns "Net" for ringgrad::(anonymous namespace)::Net and for main::Net.
std::string Module::type_name() const {
  int status = 0;
  const std::unique_ptr<char, void (*)(void*)> name(
      abi::__cxa_demangle(typeid(*this).name(), nullptr, nullptr, &status), std::free);
  std::string text = name ? name.get() : typeid(*this).name();
  if (text.ends_with('>')) {  // removes a template's arguments
    size_t begin = text.size() - 1;
    for (int open = 1; open > 0 && begin > 0;) {
      --begin;
      open += (text[begin] == '>') - (text[begin] == '<');
    }
    text.resize(begin);
  }
  const size_t colons = text.rfind("::");
  return colons == std::string::npos ? text : text.substr(colons + 2);
}

}  // namespace ringgrad::nn
