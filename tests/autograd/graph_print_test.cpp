#include "ringgrad/autograd/graph_print.h"

#include <regex>
#include <sstream>

#include "ringgrad/autograd/differentiable.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/core/sequences.h"
#include "ringgrad/tests/catch.h"
#include "ringgrad/tests/test_util.h"

namespace ringgrad::test::graph_print_test {

namespace {

// Returns the text with sequence numbers counted from the oldest node shown, because the real ones
// depend on earlier operations.
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

std::string printed(decltype(print_graph) print, const Tensor& tensor,
                    const LeafNames& names = {}) {
  std::ostringstream out;
  print(out, tensor, names);
  return out.str();
}

}  // namespace

TEST_CASE("the graph as text: newest first, with shapes and where gradients go",
          "[graph_print][quick]") {
  const Tensor x = Tensor(ones({2, 3})).set_requires_grad();
  const Tensor c = ones({3});
  const Tensor loss = sum(relu(x * c) + x);
  CHECK(renumbered(printed(print_graph, loss)) ==
        "#3 sum [] <- #2\n"
        "#2 add [2, 3] <- #1, leaf [2, 3]\n"
        "#1 relu [2, 3] <- #0\n"
        "#0 mul [2, 3] <- leaf [2, 3]\n");  // c takes none
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
  const Tensor x = Tensor(ones({2, 3})).set_requires_grad();
  const Tensor weight = Tensor(ones({3})).set_requires_grad();
  const Tensor frozen = ones({3});
  const Tensor unused = Tensor(ones({1})).set_requires_grad();
  const LeafNames names = {{"frozen", frozen}, {"fc.weight", weight}, {"unused", unused}};
  const Tensor y = x * weight;
  CHECK(renumbered(printed(print_graph, y, names)) ==
        "#0 mul [2, 3] <- leaf [2, 3], fc.weight [3]\n");
  require_contains(printed(print_graph_dot, y, names),
                   "[shape=ellipse, label=\"fc.weight\\n[3]\"]");
  sum(y).backward();
  require_contains(printed(print_graph, y, names), "fc.weight [3]");
}

TEST_CASE("what was fused into an operation is named", "[graph_print][quick]") {
  const Tensor x = Tensor(ones({4, 2, 3, 3})).set_requires_grad();
  const Tensor weight = ones({2});
  const Tensor bias = zeros({2});
  const Tensor mean = zeros({2});
  const Tensor var = ones({2});
  const auto name = [&](const BatchNormOptions& options) {
    const std::string text = printed(print_graph, batch_norm(x, weight, bias, mean, var, options));
    return text.substr(text.find(' ') + 1, text.find(" [") - text.find(' ') - 1);
  };
  CHECK(name({}) == "batch_norm");
  CHECK(name({.activation = Activation::Relu}) == "batch_norm + relu");
  CHECK(name({.activation = Activation::Relu, .max_pool = 2}) == "batch_norm + relu + max_pool");
  CHECK(name({.residual = x}) == "batch_norm + residual");
  CHECK(name({.activation = Activation::Relu, .residual = x}) == "batch_norm + residual + relu");
}

// The numbers are those of its README: https://github.com/karpathy/micrograd.
TEST_CASE("micrograd's example with its values and gradients", "[graph_print][quick]") {
  const auto leaf = [](double value) {
    return scalar(value, {.dtype = DType::Float64}).set_requires_grad();
  };
  const Tensor a = leaf(-4);
  const Tensor b = leaf(2);
  const LeafNames names = {{"a", a}, {"b", b}};
  Tensor g;
  {
    const GraphValues values;
    Tensor c = a + b;
    Tensor d = a * b + pow(b, 3);
    c = c + (c + 1.0);
    c = c + (1.0 + c + (-a));
    d = d + (d * 2 + relu(b + a));
    d = d + (3 * d + relu(b - a));
    const Tensor f = pow(c - d, 2);
    g = f / 2.0;
    g = g + 10.0 / f;
  }
  require_contains(printed(print_graph, g, names), "b [] = 2\n");
  g.backward();
  const std::string text = printed(print_graph, g, names);
  const std::string dot = printed(print_graph_dot, g, names);
  require_contains(text, "add [] (freed) = 24.7, gradient 1 <- #");
  require_contains(text, "pow [] (freed) = 49, gradient 0.4958 <- #");
  require_contains(text, "\na [] = -4, gradient 138.8\nb [] = 2, gradient 645.6\n");
  require_contains(dot, "[shape=ellipse, label=\"b\\n[]\\n= 2\\ngradient 645.6\"]");
  // This tape was made without keeping values.
  require_contains(printed(print_graph, relu(a)), "relu [] <- leaf []\n");
}

TEST_CASE("of many values their mean and deviation are shown", "[graph_print][quick]") {
  const GraphValues values;
  const Tensor w = Tensor(to(arange(6), DType::Float32)).set_requires_grad();
  const Tensor loss = sum(w * w);
  loss.backward();
  const std::string text = printed(print_graph, loss, {{"w", w}});
  require_contains(text, "w [6] = 2.5 ± 1.708, gradient 5 ± 3.416\n");
  require_contains(text, "mul [6] (freed) = 9.167 ± 8.896, gradient 1 ± 0 <- w [6], w [6]\n");
}

TEST_CASE("an operation with two outputs, values of a part, and one keeper inside another",
          "[graph_print][quick]") {
  const Tensor x = tensor<float>({1, 2}).set_requires_grad();
  const Tensor before = x * 3;
  Tensor y;
  {
    const GraphValues outer;
    const GraphValues inner;
    const std::vector<Tensor> both = differentiable(
        "both", std::vector{before}, std::vector{tensor<float>({3, 6}), tensor<float>({9})},
        [](std::span<const Tensor> dy) -> Gradients { return {dy[0] + dy[1]}; });
    y = sum(both[0]) + sum(both[1]);
  }
  y.backward();
  require_contains(printed(print_graph, y), "both [2] [1] (freed) = 3 6, 9, gradient 1 1, 1 <- #");
  require_contains(printed(print_graph, y), "mul [2] (freed) <- leaf [2]\n");
  const std::string dot = printed(print_graph_dot, y);
  require_contains(dot, "label=\"both\\n[2] [1]\\n= 3 6, 9\\ngradient 1 1, 1\"");
  require_contains(dot, "label=\"mul\\n[2]\"");
}

TEST_CASE("a leaf is a graph of one node, named or not", "[graph_print][quick]") {
  const Tensor x = Tensor(ones({2})).set_requires_grad();
  const Tensor other = Tensor(ones({2})).set_requires_grad();
  CHECK(printed(print_graph, x).empty());  // leaves are shown where they are reached
  const auto shown = [&](const LeafNames& names) { return printed(print_graph_dot, x, names); };
  require_contains(shown({{"other", other}}), "label=\"leaf\\n[2]\"");
  require_contains(shown({{"x", x}}), "label=\"x\\n[2]\"");
}

TEST_CASE("a tensor without graph cannot be printed", "[graph_print][quick]") {
  require_error<Error>("print_graph: the tensor has no graph",
                       [] { printed(print_graph, ones({1})); });
  require_error<Error>("print_graph_dot: the tensor has no graph",
                       [] { printed(print_graph_dot, Tensor()); });
}

}  // namespace ringgrad::test::graph_print_test
