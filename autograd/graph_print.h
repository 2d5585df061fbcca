// The graph behind a tensor, to look at: as text for a terminal, and in Graphviz's DOT.
#pragma once

#include <iosfwd>
#include <string>
#include <utility>
#include <vector>

#include "ringgrad/core/tensor.h"

namespace ringgrad {

// Leaves with the names they are known by, such as a module's named_parameters().
using LeafNames = std::vector<std::pair<std::string, Tensor>>;

// One line per node, newest first: #sequence name [output shapes] <- the nodes that receive its gradients; "freed"
// where backward has run and the saved tensors are gone. A leaf without a name is a "leaf".
//
//   #12 cross_entropy [] <- #11
//   #11 linear [64, 10] <- #10, fc.weight [10, 512], fc.bias [10]
void print_graph(std::ostream& out, const Tensor& tensor, const LeafNames& names = {});

// The same as `digraph`, for `dot -Tsvg`: operations are boxes, leaves ellipses, arrows point where gradients go.
void print_graph_dot(std::ostream& out, const Tensor& tensor, const LeafNames& names = {});

}  // namespace ringgrad
