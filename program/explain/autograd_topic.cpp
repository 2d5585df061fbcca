// `explain autograd`: micrograd's example (Karpathy 2020), with every gradient as the engine passes
// it on.
#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "ringgrad/autograd/accumulate_grad.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/program/explain/explain.h"
#include "ringgrad/program/explain/page.h"

namespace ringgrad::program::autograd_topic {
namespace {

struct Line {
  std::string code;
  double value;
  const Node* node;  // that made it; null for a leaf
};

// Records what the engine does in one pass, by closures around those of the nodes.
class Tape {
 public:
  struct Event {
    const Node* node;
    double arrived;                 // the gradient of its output, all parts summed
    std::vector<double> delivered;  // to each of node->next
  };

  explicit Tape(const Tensor& loss) { walk(gradient_edge(loss).node); }

  // In the order in which forward has made them.
  std::vector<Node*> nodes() const {
    std::vector<Node*> all;
    for (const auto& [sequence, node] : nodes_) all.push_back(node);
    return all;
  }
  int number(const Node* node) const {
    return static_cast<int>(std::distance(nodes_.begin(), nodes_.find(node->sequence))) + 1;
  }
  const std::vector<Event>& events() const { return events_; }

 private:
  void walk(const std::shared_ptr<Node>& node) {
    if (!node || node->sequence == kLeafSequence ||
        !nodes_.emplace(node->sequence, node.get()).second)
      return;
    node->backward = [this, node = node.get(), own = node->backward](std::span<const Tensor> dy) {
      Gradients grads = own(dy);
      Event event{node, dy[0].item<double>(), {}};
      for (const Tensor& g : grads) event.delivered.push_back(g ? g.item<double>() : 0);
      events_.push_back(std::move(event));
      return grads;
    };
    for (const Edge& edge : node->next) walk(edge.node);
  }

  std::map<uint64_t, Node*> nodes_;
  std::vector<Event> events_;
};

std::string joined(const std::vector<double>& parts) {
  std::string sum;
  for (const double x : parts)
    sum += fmt::format("{}{:.4f}",
                       sum.empty() ? ""
                       : x < 0     ? " - "
                                   : " + ",
                       sum.empty() ? x : std::abs(x));
  return sum;
}

// Upright at both ends, so that it can be followed past other nodes.
std::string curve_between(int from_x, int from_y, int to_x, int to_y) {
  return fmt::format("<path class=\"line\" d=\"M{0} {1}C{0} {2} {3} {4} {3} {5}\"/>\n", from_x,
                     from_y, from_y + 24, to_x, to_y - 24, to_y);
}

// The graph from the leaves at the top to the loss at the bottom, with value-free boxes: operation
// and gradient.
std::string drawing(const Tape& tape, const std::map<const Node*, std::string>& leaves,
                    const std::map<const Node*, double>& grads_of_leaves) {
  std::map<const Node*, int> depth;
  std::map<int, int> used;
  std::map<const Node*, std::pair<int, int>> at;
  std::map<const Node*, double> grads = grads_of_leaves;
  for (const Tape::Event& event : tape.events()) grads[event.node] = event.arrived;
  int width = 0;
  int height = 0;
  std::string boxes;
  std::string lines;
  std::vector<const Node*> all;
  for (const auto& [leaf, name] : leaves) all.push_back(leaf);
  for (const Node* node : tape.nodes()) all.push_back(node);
  for (const Node* node : all) {
    const auto leaf = leaves.find(node);
    for (const Edge& edge : node->next)
      if (edge.node && depth.contains(edge.node.get()))
        depth[node] = std::max(depth[node], depth[edge.node.get()] + 1);
    // Every other row is half a column aside, so that lines past it do not cross its boxes.
    const int x = 10 + 100 * used[depth[node]]++ + 50 * (depth[node] % 2);
    const int y = 10 + 76 * depth[node];
    at[node] = {x, y};
    for (const Edge& edge : node->next)
      if (edge.node && at.contains(edge.node.get()))
        lines += curve_between(at[edge.node.get()].first + 39, at[edge.node.get()].second + 40,
                               x + 39, y);
    boxes += fmt::format(
        "<rect class=\"box\" x=\"{}\" y=\"{}\" width=\"78\" height=\"40\" rx=\"4\"/><text x=\"{}\" "
        "y=\"{}\">{}</text><text x=\"{}\" y=\"{}\">{:.2f}</text>\n",
        x, y, x + 5, y + 16,
        leaf != leaves.end() ? "leaf " + leaf->second
                             : fmt::format("#{} {}", tape.number(node), escaped(node->name)),
        x + 5, y + 33, grads[node]);
    width = std::max(width, x + 90);
    height = std::max(height, y + 50);
  }
  return svg_begin(width, height,
                   "the tape from the leaves at the top to the loss at the bottom: each box is an "
                   "operation, with the gradient of its output") +
         lines + boxes + "</svg>\n";
}

void tell(Page& page, const ExplainOptions&) {
  const auto leaf = [](double value) {
    return scalar(value, {.dtype = DType::Float64}).set_requires_grad();
  };
  const Tensor a = leaf(-4);
  const Tensor b = leaf(2);
  std::vector<Line> lines;
  const auto line = [&](const char* code, const Tensor& x) {
    lines.push_back({code, x.item<double>(), x.is_leaf() ? nullptr : gradient_edge(x).node.get()});
    return x;
  };
  line("a", a);
  line("b", b);
  Tensor c = line("c = a + b", a + b);
  Tensor d = line("d = a · b + b³", a * b + pow(b, 3));
  c = line("c += c + 1", c + (c + 1.0));
  c = line("c += 1 + c + (-a)", c + (1.0 + c + (-a)));
  d = line("d += d · 2 + relu(b + a)", d + (d * 2 + relu(b + a)));
  d = line("d += 3 · d + relu(b - a)", d + (3 * d + relu(b - a)));
  const Tensor e = line("e = c - d", c - d);
  const Tensor f = line("f = e²", pow(e, 2));
  Tensor g = line("g = f / 2", f / 2.0);
  g = line("g += 10 / f", g + 10.0 / f);

  page.text(
      "An operation that needs a gradient puts a node on the tape: what it was, "
      "whose gradients it must compute, and a closure that does. Nothing else happens in forward. "
      "This is the example in micrograd's README, in tensors of one float64 each.");
  Tape tape(g);
  std::vector<Row> rows;
  for (const Line& l : lines) {
    const bool made = l.node != nullptr;
    rows.push_back({l.code, fmt::format("{:.4f}", l.value),
                    made ? fmt::format("#{} {}", tape.number(l.node), l.node->name) : "a leaf"});
  }
  page.section("Forward");
  page.table({"line", "value", "its last node"}, rows);

  // The hooks of the leaves fire once, when all parts of their gradients have come.
  std::vector<std::pair<std::string, size_t>> fired;  // and how many nodes had run by then
  const HookHandle of_a = register_post_accumulate_grad_hook(
      a, [&](const Tensor&) { fired.emplace_back("a", tape.events().size()); });
  const HookHandle of_b = register_post_accumulate_grad_hook(
      b, [&](const Tensor&) { fired.emplace_back("b", tape.events().size()); });
  const std::map<const Node*, std::string> leaves = {{gradient_edge(a).node.get(), "a"},
                                                     {gradient_edge(b).node.get(), "b"}};
  // Closures are freed as they run, edges are not.
  std::map<const Node*, std::vector<std::pair<int, std::string>>> edges;
  for (const Node* node : tape.nodes())
    for (const Edge& edge : node->next)
      edges[node].emplace_back(0, !edge.node ? ""
                                  : leaves.contains(edge.node.get())
                                      ? leaves.at(edge.node.get())
                                      : fmt::format("#{}", tape.number(edge.node.get())));
  g.backward();

  page.section("Backward: the tape, newest node first");
  page.text(
      "backward() begins with dg/dg = 1. A node runs when all parts of its own gradient have "
      "arrived, and delivers one part to each of its inputs. The engine alone adds parts up: "
      "`arrived` is a sum wherever a value was used twice.");
  rows.clear();
  std::map<std::string, std::vector<double>> parts;
  for (size_t i = 0; i < tape.events().size(); ++i) {
    const Tape::Event& event = tape.events()[i];
    std::string delivers;
    for (size_t k = 0; k < event.delivered.size(); ++k) {
      const std::string& to = edges[event.node][k].second;
      if (to.empty()) continue;
      delivers +=
          fmt::format("{}{:.4f} to {}", delivers.empty() ? "" : ", ", event.delivered[k], to);
      parts[to].push_back(event.delivered[k]);
    }
    rows.push_back({fmt::format("#{} {}", tape.number(event.node), event.node->name),
                    fmt::format("{:.4f}", event.arrived), delivers});
    for (const auto& [name, after] : fired)
      if (after == i + 1) rows.push_back({"hook of " + name, "", "its gradient is complete"});
  }
  page.table({"node", "arrived", "delivers"}, rows);
  page.picture(drawing(tape, leaves,
                       {{gradient_edge(a).node.get(), a.grad().item<double>()},
                        {gradient_edge(b).node.get(), b.grad().item<double>()}}),
               {{"node", "arrived", "delivers"}, rows});

  page.section("What came together in the leaves");
  for (const auto& [name, x] : {std::pair("a", a), std::pair("b", b)}) {
    page.listing(
        fmt::format("{}.grad = {} = {:.4f}", name, joined(parts[name]), x.grad().item<double>()));
    page.facts[name] = {{"grad", x.grad().item<double>()}, {"parts", parts[name]}};
  }
  page.facts["g"] = g.item<double>();
  page.facts["nodes"] = tape.events().size();
  page.text(
      "A hook fires once, the moment when the last part of its leaf's gradient has come. "
      "Here that is the last node, because the first line uses both leaves; "
      "in a network the last layer's weights are complete while the first layers still wait, "
      "and data parallelism may begin to send them: see `explain buckets`.");
  page.read("autograd/engine.cpp", "void BackwardPass::deliver(",
            "the one place where gradients are summed");
}

}  // namespace
}  // namespace ringgrad::program::autograd_topic

const ringgrad::program::Topic ringgrad::program::kAutograd{
    "autograd", "the tape of one expression, and each gradient as it is delivered",
    autograd_topic::tell};
