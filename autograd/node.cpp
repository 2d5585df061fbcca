#include "autograd/node.h"

#include <atomic>

namespace ringgrad {

Node::~Node() {
  // Take over the nodes that only this one keeps alive, and theirs in turn, so that none is destroyed recursively.
  // A node reached here has no closure left to run: closures hold saved tensors, which own no nodes.
  std::vector<std::shared_ptr<Node>> owned;
  const auto take = [&owned](std::vector<Edge>& edges) {
    for (Edge& edge : edges)
      if (edge.node && edge.node.use_count() == 1 && !edge.node->next.empty()) owned.push_back(std::move(edge.node));
  };
  take(next);
  while (!owned.empty()) {
    const std::shared_ptr<Node> node = std::move(owned.back());
    owned.pop_back();
    take(node->next);
  }
}

uint64_t next_sequence() {
  static std::atomic<uint64_t> counter{0};
  return counter.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace ringgrad
