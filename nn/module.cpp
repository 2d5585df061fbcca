#include "nn/module.h"

#include <algorithm>
#include <map>

#include "autograd/grad_mode.h"
#include "core/check.h"
#include "core/factory.h"

namespace ringgrad::nn {
namespace {

std::vector<Tensor> tensors_of(const NamedTensors& named) {
  std::vector<Tensor> tensors;
  for (const auto& [name, tensor] : named) tensors.push_back(tensor);
  return tensors;
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) text += (i ? ", " : "") + names[i];
  return text;
}

Tensor moved(const Tensor& x, Device device) {
  Tensor y = empty(x.shape(), {x.dtype(), device});
  copy_(y, x);
  return y;
}

constexpr std::string_view kModulePrefix = "module.";

}  // namespace

Tensor Module::forward(const Tensor&) {
  throw NotImplementedError(
      "module: forward(x) is not implemented by this type; override it, or call the module's own "
      "forward");
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
  for (const auto& [name, child] : children_) child->collect(prefix + name + ".", which, out);
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
      all.emplace_back(below.empty() ? name : name + "." + below, module);
  return all;
}

int64_t Module::num_parameters() const {
  int64_t n = 0;
  for (const Tensor& parameter : parameters()) n += parameter.numel();
  return n;
}

void Module::to(Device device) {
  check_device("module.to", device);
  const auto move = [device](const Tensor& tensor) {
    const Tensor grad = tensor.grad();
    if (tensor.device() == device) return;
    if (grad) tensor.set_grad({});
    tensor.set_data(moved(tensor, device));
    if (grad) tensor.set_grad(moved(grad, device));
  };
  for (const Tensor& parameter : parameters()) move(parameter);
  for (const Tensor& buffer : buffers()) move(buffer);
}

void Module::to(DType dtype) {
  if (!is_floating(dtype)) throw_unsupported_dtype("module.to", dtype, "a floating dtype");
  const auto convert = [dtype](const Tensor& tensor) {
    if (tensor.dtype() == dtype || !is_floating(tensor.dtype())) return;
    const Tensor grad = tensor.grad();
    if (grad) tensor.set_grad({});
    const auto converted = [dtype](const Tensor& x) {
      Tensor y = empty(x.shape(), {dtype, x.device()});
      copy_(y, x);
      return y;
    };
    tensor.set_data(converted(tensor));
    if (grad) tensor.set_grad(converted(grad));
  };
  for (const Tensor& parameter : parameters()) convert(parameter);
  for (const Tensor& buffer : buffers()) convert(buffer);
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
  LoadReport report;
  report.stripped_module_prefix = !state.empty() && std::all_of(state.begin(), state.end(), [](const auto& entry) {
    return entry.first.starts_with(kModulePrefix);
  });
  std::map<std::string, Tensor> given;
  for (const auto& [name, tensor] : state)
    given.emplace(report.stripped_module_prefix ? name.substr(kModulePrefix.size()) : name, tensor);

  std::vector<std::string> mismatched;
  std::vector<std::pair<Tensor, Tensor>> copies;
  for (const auto& [name, own] : state_dict()) {
    const auto found = given.find(name);
    if (found == given.end()) {
      report.missing.push_back(name);
      continue;
    }
    if (found->second.shape() == own.shape())
      copies.emplace_back(own, found->second);
    else
      mismatched.push_back(
          str(name, " is ", found->second.shape(), " in the state and ", own.shape(), " in the module"));
    given.erase(found);
  }
  for (const auto& [name, tensor] : given) report.unexpected.push_back(name);

  CHECK_AS(ShapeError, mismatched.empty(), "load_state_dict: shapes differ: ", joined(mismatched),
           "; nothing was loaded");
  CHECK_AS(DataError, !strict || (report.missing.empty() && report.unexpected.empty()),
           "load_state_dict: the names do not match; nothing was loaded",
           report.missing.empty() ? "" : "; missing in the state: ", joined(report.missing),
           report.unexpected.empty() ? "" : "; not in the module: ", joined(report.unexpected));
  for (const auto& [own, value] : copies) copy_(own, value);
  return report;
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
  value.set_requires_grad();
  parameters_.emplace_back(name, value);
  return value;
}

Tensor Module::register_buffer(const std::string& name, const Tensor& value) {
  check_name(name);
  buffers_.emplace_back(name, value);
  return value;
}

void Module::register_module(const std::string& name, Module& child) {
  check_name(name);
  children_.emplace_back(name, &child);
}

}  // namespace ringgrad::nn
