#include <ostream>

#include "ringgrad/core/error.h"
#include "ringgrad/nn/module.h"

namespace ringgrad::nn {
namespace {

std::string indented(const std::string& text) {
  std::string all;
  for (const char c : text) all += c == '\n' ? "\n  " : std::string(1, c);
  return all;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const Module& module) {
  out << module.type_name() << '(' << module.extra_repr();
  const auto children = module.named_children();
  std::vector<std::string> printed;
  for (const auto& [name, child] : children) {
    printed.push_back(indented(str(*child)));
  }
  for (size_t first = 0, next = 0; first < children.size(); first = next) {
    next = first + 1;
    while (module.prints_alike_together() && next < children.size() &&
           printed[next] == printed[first])
      ++next;
    const std::string& name = children[first].first;
    out << "\n  (" << (name.empty() ? "module" : name);
    if (next - first > 1) out << '-' << children[next - 1].first;
    out << "): ";
    if (next - first > 1) out << std::to_string(next - first) << " x ";
    out << printed[first];
  }
  return out << (children.empty() ? ")" : "\n)");
}

}  // namespace ringgrad::nn
