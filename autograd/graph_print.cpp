#include "ringgrad/autograd/graph_print.h"

#include <algorithm>
#include <ostream>
#include <unordered_map>

#include "ringgrad/autograd/graph.h"
#include "ringgrad/core/base/check.h"

namespace ringgrad {
namespace {

bool is_leaf(const Node& node) { return node.sequence == kLeafSequence; }

struct Graph {
  Edge root;  // keeps the nodes
  std::vector<const Node*> nodes;
};

// Every node that a gradient of `tensor` reaches, newest first, leaves last. Iterative, as graphs may be deep.
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
      if (edge.node && !std::exchange(seen[edge.node.get()], true)) nodes.push_back(edge.node.get());
  std::stable_sort(nodes.begin(), nodes.end(), [](const Node* a, const Node* b) {
    return is_leaf(*a) != is_leaf(*b) ? is_leaf(*b) : a->sequence > b->sequence;
  });
  return graph;
}

// What each node is called: an operation by its own name, a leaf by the one that the caller knows it by.
class Names {
 public:
  explicit Names(const LeafNames& leaves) {
    for (const auto& [name, tensor] : leaves) {
      edges_.push_back(gradient_edge(tensor));
      names_.emplace(edges_.back().node.get(), name);
    }
  }
  std::string operator()(const Node& node) const {
    const auto found = names_.find(&node);
    return found != names_.end() ? found->second : is_leaf(node) ? "leaf" : node.name;
  }

 private:
  std::vector<Edge> edges_;  // keep the nodes, whose addresses are the keys
  std::unordered_map<const Node*, std::string> names_;
};

// "[64, 10] [64]"
std::string shapes(const Node& node) {
  std::string text;
  for (const OutputInfo& output : node.outputs) text += str(text.empty() ? "" : " ", output.shape);
  return text;
}

}  // namespace

void print_graph(std::ostream& out, const Tensor& tensor, const LeafNames& leaves) {
  const Names name_of(leaves);
  const Graph graph = graph_of("print_graph", tensor);
  for (const Node* node : graph.nodes) {
    if (is_leaf(*node)) continue;  // shown where they are reached
    out << '#' << node->sequence << ' ' << node->name << ' ' << shapes(*node);
    if (!node->backward) out << " (freed)";
    const char* separator = " <- ";
    for (const Edge& edge : node->next) {
      out << std::exchange(separator, ", ");
      if (!edge.node)
        out << "no gradient";
      else if (is_leaf(*edge.node))
        out << name_of(*edge.node) << ' ' << shapes(*edge.node);
      else
        out << '#' << edge.node->sequence;
    }
    out << '\n';
  }
}

void print_graph_dot(std::ostream& out, const Tensor& tensor, const LeafNames& leaves) {
  const Names name_of(leaves);
  const Graph graph = graph_of("print_graph_dot", tensor);
  std::unordered_map<const Node*, size_t> number;  // addresses would differ from run to run
  for (const Node* node : graph.nodes) number.emplace(node, number.size());
  out << "digraph gradients {\n  node [fontname=\"monospace\"];\n";
  for (const Node* node : graph.nodes) {
    out << "  n" << number[node] << " [shape=" << (is_leaf(*node) ? "ellipse" : "box") << ", label=\"" << name_of(*node)
        << "\\n"
        << shapes(*node) << "\"];\n";
    for (const Edge& edge : node->next)
      if (edge.node) out << "  n" << number[node] << " -> n" << number[edge.node.get()] << ";\n";
  }
  out << "}\n";
}

}  // namespace ringgrad
