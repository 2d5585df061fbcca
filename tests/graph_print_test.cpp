#include "ringgrad/autograd/graph_print.h"

#include <regex>
#include <sstream>

#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/test_util.h"

using namespace ringgrad;
using namespace ringgrad::test;

namespace {

// The text with sequence numbers, which depend on what ran before, counted from the oldest node shown.
std::string renumbered(const std::string& text) {
  std::vector<int> numbers;
  const std::regex number("#([0-9]+)");
  for (std::sregex_iterator i(text.begin(), text.end(), number), end; i != end; ++i)
    numbers.push_back(std::stoi((*i)[1]));
  const int oldest = *std::min_element(numbers.begin(), numbers.end());
  std::string result;
  auto at = text.begin();
  for (std::sregex_iterator i(text.begin(), text.end(), number), end; i != end; ++i) {
    result.append(at, (*i)[0].first);
    result += "#" + std::to_string(std::stoi((*i)[1]) - oldest);
    at = (*i)[0].second;
  }
  return result.append(at, text.end());
}

std::string printed(decltype(print_graph) print, const Tensor& tensor, const LeafNames& names = {}) {
  std::ostringstream out;
  print(out, tensor, names);
  return out.str();
}

}  // namespace

TEST_CASE("the graph as text: newest first, with shapes and where gradients go", "[graph_print][quick]") {
  const Tensor x = Tensor(ones({2, 3})).set_requires_grad(), c = ones({3});
  const Tensor loss = sum(relu(x * c) + x);
  CHECK(renumbered(printed(print_graph, loss)) ==
        "#3 sum [] <- #2\n"
        "#2 add [2, 3] <- #1, leaf [2, 3]\n"
        "#1 relu [2, 3] <- #0\n"
        "#0 mul [2, 3] <- leaf [2, 3], no gradient\n");
  loss.backward();
  require_contains(printed(print_graph, loss), "sum [] (freed) <- ");
}

TEST_CASE("the graph in DOT: every node once, an arrow per gradient", "[graph_print][quick]") {
  const Tensor x = Tensor(ones({2})).set_requires_grad();
  CHECK(printed(print_graph_dot, x * x) ==
        "digraph gradients {\n"
        "  node [fontname=\"monospace\"];\n"
        "  n0 [shape=box, label=\"mul\\n[2]\"];\n"
        "  n0 -> n1;\n"
        "  n0 -> n1;\n"
        "  n1 [shape=ellipse, label=\"leaf\\n[2]\"];\n"
        "}\n");
}

TEST_CASE("leaves that have names are shown by them, also after backward", "[graph_print][quick]") {
  const Tensor x = Tensor(ones({2, 3})).set_requires_grad(), weight = Tensor(ones({3})).set_requires_grad();
  const Tensor frozen = ones({3}), unused = Tensor(ones({1})).set_requires_grad();
  const LeafNames names = {{"frozen", frozen}, {"fc.weight", weight}, {"unused", unused}};
  const Tensor y = x * weight;
  CHECK(renumbered(printed(print_graph, y, names)) == "#0 mul [2, 3] <- leaf [2, 3], fc.weight [3]\n");
  require_contains(printed(print_graph_dot, y, names), "[shape=ellipse, label=\"fc.weight\\n[3]\"]");
  sum(y).backward();
  require_contains(printed(print_graph, y, names), "fc.weight [3]");
}

TEST_CASE("a leaf is a graph of one node, named or not", "[graph_print][quick]") {
  const Tensor x = Tensor(ones({2})).set_requires_grad(), other = Tensor(ones({2})).set_requires_grad();
  CHECK(printed(print_graph, x).empty());  // leaves are shown where they are reached
  const auto shown = [&](const LeafNames& names) { return printed(print_graph_dot, x, names); };
  require_contains(shown({{"other", other}}), "label=\"leaf\\n[2]\"");
  require_contains(shown({{"x", x}}), "label=\"x\\n[2]\"");
}

TEST_CASE("a tensor without graph cannot be printed", "[graph_print][quick]") {
  require_error<Error>("print_graph: the tensor has no graph", [] { printed(print_graph, ones({1})); });
  require_error<Error>("print_graph_dot: the tensor has no graph", [] { printed(print_graph_dot, Tensor()); });
}
