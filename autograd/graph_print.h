// The graph behind a tensor, to look at: as text for a terminal, and in Graphviz's DOT.
#pragma once

#include <iosfwd>
#include <string>
#include <utility>
#include <vector>

#include "ringgrad/autograd/graph.h"

namespace ringgrad {

// Leaves with the names they are known by, such as a module's named_parameters().
using LeafNames = std::vector<std::pair<std::string, Tensor>>;

// While one lives, operations of this thread keep what they compute, and backward what gradients
// arrive, for the two functions below. It costs a copy of everything.
class GraphValues : public TapeObserver {
 public:
  GraphValues() : before_(std::exchange(tape_observer, this)) {}
  ~GraphValues() { tape_observer = before_; }
  GraphValues(const GraphValues&) = delete;
  void recorded(Node& node, std::span<const Tensor> inputs,
                std::span<const Tensor> outputs) override;

 private:
  TapeObserver* before_;
};

// One line per node, newest first: #sequence name [output shapes] <- the nodes that receive its
// gradients; "freed" where backward has run and the saved tensors are gone. What was fused into an
// operation stands beside its name. A leaf without a name is a "leaf".
//
//   #12 cross_entropy [] <- #11
//   #11 linear [64, 10] <- #10, fc.weight [10, 512], fc.bias [10]
//   #10 batch_norm + relu [64, 512] <- #9, bn.weight [512], bn.bias [512]
//
// Where values were kept, they follow the shapes, up to four numbers, or else their mean ± standard
// deviation, and named leaves have lines of their own at the end:
//
//   #12 cross_entropy [] = 2.31, gradient 1 <- #11
//   fc.bias [10] = 0.0012 ± 0.027, gradient -1.1e-10 ± 0.041
void print_graph(std::ostream& out, const Tensor& tensor, const LeafNames& names = {});

// The same as `digraph`, for `dot -Tsvg`: operations are boxes, leaves ellipses, arrows point where
// gradients go.
void print_graph_dot(std::ostream& out, const Tensor& tensor, const LeafNames& names = {});

}  // namespace ringgrad
