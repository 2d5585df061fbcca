// Prints the graph behind a tensor, as text for a terminal or in Graphviz's DOT.
#pragma once

#include <iosfwd>
#include <string>
#include <utility>
#include <vector>

#include "ringgrad/autograd/graph.h"

namespace ringgrad {

// Leaves and their names, such as a module's named_parameters().
using LeafNames = std::vector<std::pair<std::string, Tensor>>;

// While one lives, this thread's operations keep their results, and backward keeps the gradients,
// for the two functions below. It copies everything.
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

// Prints one line per node, newest first: #sequence name [output shapes] <- the nodes that receive
// its gradients. "freed" means that backward has run and the saved tensors are gone. Operations
// that were fused into another are printed beside its name. A leaf without a name is printed as
// "leaf".
//
//   #12 cross_entropy [] <- #11
//   #11 linear [64, 10] <- #10, fc.weight [10, 512], fc.bias [10]
//   #10 batch_norm + relu [64, 512] <- #9, bn.weight [512], bn.bias [512]
//
// If values were kept, they follow the shapes: up to four numbers, or else their mean ± standard
// deviation. Named leaves then have lines of their own at the end:
//
//   #12 cross_entropy [] = 2.31, gradient 1 <- #11
//   fc.bias [10] = 0.0012 ± 0.027, gradient -1.1e-10 ± 0.041
void print_graph(std::ostream& out, const Tensor& tensor, const LeafNames& names = {});

// Prints the same as a `digraph` for `dot -Tsvg`. Operations are boxes, leaves are ellipses, and
// arrows point in the direction of the gradients.
void print_graph_dot(std::ostream& out, const Tensor& tensor, const LeafNames& names = {});

}  // namespace ringgrad
