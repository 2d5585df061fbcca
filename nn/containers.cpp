#include "ringgrad/nn/containers.h"

#include <algorithm>

#include "ringgrad/core/base/check.h"

namespace ringgrad::nn {

bool ModuleDict::contains(const std::string& name) const {
  return std::any_of(begin(), end(), [&](const auto& entry) { return entry.first == name; });
}

Module& ModuleDict::operator[](const std::string& name) const {
  std::string names;
  for (const auto& [known, module] : modules_) {
    if (known == name) return *module;
    names += " " + known;
  }
  throw Error(str("ModuleDict: there is no module '", name, "', expected one of:", names));
}

}  // namespace ringgrad::nn
