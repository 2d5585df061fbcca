#include "ringgrad/nn/named_tensors.h"

#include <algorithm>
#include <map>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/factory.h"

namespace ringgrad::nn {
namespace {

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

constexpr std::string_view kModulePrefix = "module.";

// Returns true for two handles or views of the same elements, such as shared weights under each of
// their names.
bool same_elements(const Tensor& a, const Tensor& b) {
  return a.shares_memory_with(b) && a.storage_offset() == b.storage_offset() &&
         a.shape() == b.shape() && a.strides() == b.strides();
}

struct Match {
  LoadReport report;
  std::vector<std::pair<Tensor, Tensor>> copies;  // own tensor, value
};

Match match(const char* operation, const NamedTensors& own, const NamedTensors& state,
            bool strict) {
  auto [report, copies] = Match();
  const auto prefixed = [](const auto& entry) { return entry.first.starts_with(kModulePrefix); };
  report.stripped_module_prefix =
      !state.empty() && std::ranges::all_of(state, prefixed) && std::ranges::none_of(own, prefixed);
  std::map<std::string, Tensor> given;
  for (const auto& [name, tensor] : state) {
    CHECK_AS(DataError, tensor.defined(), operation, ": '", name,
             "' is an undefined tensor; nothing was loaded");
    const bool added =
        given
            .emplace(report.stripped_module_prefix ? name.substr(kModulePrefix.size()) : name,
                     tensor)
            .second;
    CHECK_AS(DataError, added, operation, ": the state has '", name, "' twice; nothing was loaded");
  }

  std::vector<std::string> mismatched;
  std::vector<std::string> of_other_kind;
  NamedTensors absent;
  for (const auto& [name, tensor] : own) {
    const auto found = given.find(name);
    if (found == given.end()) {
      absent.emplace_back(name, tensor);
      continue;
    }
    if (is_floating(tensor.dtype()) && !is_floating(found->second.dtype()))
      of_other_kind.push_back(
          str(name, " is ", found->second.dtype(), " in the state, expected ", tensor.dtype()));
    if (found->second.shape() == tensor.shape())
      copies.emplace_back(tensor, found->second);
    else
      mismatched.push_back(
          str(name, " is ", found->second.shape(), " in the state, expected ", tensor.shape()));
    given.erase(found);
  }
  for (const auto& [name, tensor] : absent)
    if (std::ranges::none_of(copies,
                             [&](const auto& copy) { return same_elements(copy.first, tensor); }))
      report.missing.push_back(name);
  for (const auto& [name, tensor] : given) report.unexpected.push_back(name);

  CHECK_AS(ShapeError, mismatched.empty(), operation, ": shapes differ: ", joined(mismatched),
           "; nothing was loaded");
  CHECK_AS(DTypeError, of_other_kind.empty(), operation,
           ": whole numbers are no weights: ", joined(of_other_kind), "; nothing was loaded");
  CHECK_AS(
      DataError, !strict || (report.missing.empty() && report.unexpected.empty()), operation,
      ": the names do not match; nothing was loaded",
      report.missing.empty() ? "" : "; missing in the state: ", joined(report.missing),
      report.unexpected.empty() ? "" : "; unexpected in the state: ", joined(report.unexpected));
  return {std::move(report), std::move(copies)};
}

}  // namespace

std::vector<Tensor> tensors_of(const NamedTensors& named) {
  std::vector<Tensor> tensors;
  for (const auto& [name, tensor] : named) tensors.push_back(tensor);
  return tensors;
}

LoadReport check_by_name(const char* operation, const NamedTensors& own, const NamedTensors& state,
                         bool strict) {
  return match(operation, own, state, strict).report;
}

LoadReport copy_by_name(const char* operation, const NamedTensors& own, const NamedTensors& state,
                        bool strict) {
  Match matched = match(operation, own, state, strict);
  for (const auto& [tensor, value] : matched.copies) copy_(tensor, value);
  return std::move(matched.report);
}

NamedTensors without_prefix(const NamedTensors& named, const std::string& prefix) {
  NamedTensors stripped;
  for (const auto& [name, tensor] : named)
    if (name.starts_with(prefix)) stripped.emplace_back(name.substr(prefix.size()), tensor);
  return stripped;
}

}  // namespace ringgrad::nn
