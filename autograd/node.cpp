#include "ringgrad/autograd/node.h"

#include <atomic>

namespace ringgrad {

Node::~Node() {
  // Take over this node's edges, and those of every node that dies with it in turn, so that none is destroyed
  // recursively. Where two edges lead to one node, the second to let go of it finds itself the last.
  // A node reached here has no closure left to run: closures hold saved tensors, which own no nodes.
  std::vector<std::shared_ptr<Node>> owned;
  const auto take = [&owned](std::vector<Edge>& edges) {
    for (Edge& edge : edges)
      if (edge.node && !edge.node->next.empty()) owned.push_back(std::move(edge.node));
  };
  take(next);
  while (!owned.empty()) {
    const std::shared_ptr<Node> node = std::move(owned.back());
    owned.pop_back();
    if (node.use_count() == 1) take(node->next);
  }
}

uint64_t next_sequence() {
  static std::atomic<uint64_t> counter{0};
  return counter.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace ringgrad
