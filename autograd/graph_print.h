// The graph behind a tensor, to look at: as text for a terminal, and in Graphviz's DOT.
#pragma once

#include <iosfwd>

#include "core/tensor.h"

namespace ringgrad {

// One line per node, newest first: #sequence name [output shapes] <- the nodes that receive its gradients; "freed"
// where backward has run and the saved tensors are gone.
//
//   #12 cross_entropy [] <- #11
//   #11 linear [64, 10] <- #10, leaf [10, 512], leaf [10]
void print_graph(std::ostream& out, const Tensor& tensor);

// The same as `digraph`, for `dot -Tsvg`: operations are boxes, leaves ellipses, arrows point where gradients go.
void print_graph_dot(std::ostream& out, const Tensor& tensor);

}  // namespace ringgrad
