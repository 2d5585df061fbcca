#include "ringgrad/autograd/graph_print.h"

#include <algorithm>
#include <cmath>
#include <ostream>
#include <unordered_map>

#include "ringgrad/autograd/graph.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/letters.h"
#include "ringgrad/core/factory.h"

namespace ringgrad {
namespace {

bool is_leaf(const Node& node) { return node.sequence == kLeafSequence; }

struct Graph {
  Edge root;  // keeps the nodes alive
  std::vector<const Node*> nodes;
};

// Returns every node that a gradient of `tensor` reaches, newest first, leaves last. Iterative,
// because graphs may be deep.
Graph graph_of(const char* operation, const Tensor& tensor) {
  CHECK(tensor.defined() && tensor.requires_grad(), operation,
        ": the tensor has no graph: it does not depend on any leaf that requires grad");
  std::unordered_map<const Node*, bool> seen;
  Graph graph{gradient_edge(tensor), {}};
  std::vector<const Node*>& nodes = graph.nodes;
  nodes.push_back(graph.root.node.get());
  seen[graph.root.node.get()] = true;
  for (size_t i = 0; i < nodes.size(); ++i)
    for (const Edge& edge : nodes[i]->next)
      if (edge.node && !std::exchange(seen[edge.node.get()], true))
        nodes.push_back(edge.node.get());
  std::stable_sort(nodes.begin(), nodes.end(), [](const Node* a, const Node* b) {
    return is_leaf(*a) != is_leaf(*b) ? is_leaf(*b) : a->sequence > b->sequence;
  });
  return graph;
}

// Formats elements or statistics: "24.7", "1 -2 0.5", "0.0012 ± 0.027".
std::string numbers(const Tensor& x) {
  const Tensor doubles = copy_of(x, {.dtype = DType::Float64});
  const std::span<const double> values(doubles.data<double>(), static_cast<size_t>(x.numel()));
  const auto short_form = [](double v) { return formatted(v, std::chars_format::general, 4); };
  std::string text;
  if (values.size() <= 4) {
    for (const double v : values) text += (text.empty() ? "" : " ") + short_form(v);
    return text;
  }
  double sum = 0;
  double squares = 0;
  for (const double v : values) sum += v;
  const double mean = sum / static_cast<double>(values.size());
  for (const double v : values) squares += (v - mean) * (v - mean);
  return short_form(mean) + " ± " +
         short_form(std::sqrt(squares / static_cast<double>(values.size())));
}

// The label of a node. An operation has its own name, and a leaf the caller's name for it.
class Labels {
 public:
  explicit Labels(const LeafNames& leaves) : leaves_(leaves) {
    for (size_t i = 0; i < leaves.size(); ++i) {
      edges_.push_back(gradient_edge(leaves[i].second));
      number_.emplace(edges_.back().node.get(), i);
    }
  }
  std::string name(const Node& node) const {
    if (const auto found = number_.find(&node); found != number_.end())
      return leaves_[found->second].first;
    if (is_leaf(node)) return "leaf";
    return *node.fused ? str(node.name, ' ', node.fused) : node.name;
  }
  // Returns the node's output values and their gradients, each "" if it was not kept.
  std::pair<std::string, std::string> values(const Node& node) const {
    std::string value;
    std::string gradient;
    const auto add = [](std::string& text, const Tensor& x) {
      if (x) text += (text.empty() ? "" : ", ") + numbers(x);
    };
    for (const Node::Seen& output : node.seen) {
      add(value, output.value);
      add(gradient, output.gradient);
    }
    if (const auto found = number_.find(&node); found != number_.end()) {
      const Tensor& leaf = leaves_[found->second].second;
      add(value, leaf);
      add(gradient, leaf.grad());
    }
    return {value, gradient};
  }

 private:
  const LeafNames& leaves_;
  std::vector<Edge> edges_;  // keep the nodes alive, whose addresses are the keys
  std::unordered_map<const Node*, size_t> number_;
};

bool has_values(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(),
                     [](const Node* node) { return !node->seen.empty(); });
}

// Returns the output shapes: "[64, 10] [64]".
std::string shapes(const Node& node) {
  std::string text;
  for (const OutputInfo& output : node.outputs) text += str(text.empty() ? "" : " ", output.shape);
  return text;
}

}  // namespace

void GraphValues::recorded(Node& node, std::span<const Tensor> inputs,
                           std::span<const Tensor> outputs) {
  if (before_) before_->recorded(node, inputs, outputs);
  if (!node.seen.empty()) return;  // one around this one keeps them
  for (const Tensor& output : outputs) {
    const size_t i = node.seen.size();
    node.seen.push_back({copy_of(output, {output.dtype(), output.device()}), {}});
    // The hook belongs to the node, so it may hold the node's address.
    output.register_hook([seen = &node.seen, i](const Tensor& gradient) {
      (*seen)[i].gradient = copy_of(gradient, {gradient.dtype(), gradient.device()});
      return Tensor();
    });
  }
}

void print_graph(std::ostream& out, const Tensor& tensor, const LeafNames& leaves) {
  const Labels labels(leaves);
  const Graph graph = graph_of("print_graph", tensor);
  const bool valued = has_values(graph);
  for (const Node* node : graph.nodes) {
    // Leaves are printed where operations refer to them.
    if (is_leaf(*node) && (!valued || labels.values(*node).first.empty())) continue;
    if (!is_leaf(*node)) out << '#' << std::to_string(node->sequence) << ' ';
    out << labels.name(*node) << ' ' << shapes(*node);
    if (!is_leaf(*node) && !node->backward) out << " (freed)";
    if (valued) {
      const auto [value, gradient] = labels.values(*node);
      if (!value.empty()) out << " = " << value;
      if (!gradient.empty()) out << ", gradient " << gradient;
    }
    const char* separator = " <- ";
    for (const Edge& edge : node->next) {
      if (!edge.node) continue;
      out << std::exchange(separator, ", ");
      if (is_leaf(*edge.node))
        out << labels.name(*edge.node) << ' ' << shapes(*edge.node);
      else
        out << '#' << std::to_string(edge.node->sequence);
    }
    out << '\n';
  }
}

void print_graph_dot(std::ostream& out, const Tensor& tensor, const LeafNames& leaves) {
  const Labels labels(leaves);
  const Graph graph = graph_of("print_graph_dot", tensor);
  const bool valued = has_values(graph);
  std::unordered_map<const Node*, std::string> number;  // addresses would differ from run to run
  for (const Node* node : graph.nodes) number.emplace(node, std::to_string(number.size()));
  out << "digraph gradients {\n  node [fontname=\"monospace\"];\n";
  for (const Node* node : graph.nodes) {
    out << "  n" << number[node] << " [shape=" << (is_leaf(*node) ? "ellipse" : "box")
        << ", label=\"" << labels.name(*node) << "\\n"
        << shapes(*node);
    if (valued) {
      const auto [value, gradient] = labels.values(*node);
      if (!value.empty()) out << "\\n= " << value;
      if (!gradient.empty()) out << "\\ngradient " << gradient;
    }
    out << "\"];\n";
    for (const Edge& edge : node->next)
      if (edge.node) out << "  n" << number[node] << " -> n" << number[edge.node.get()] << ";\n";
  }
  out << "}\n";
}

}  // namespace ringgrad
