// `ringgrad graph`: the tape of one training step of a model, as text or for Graphviz.
#include <sstream>

#include "ringgrad/autograd/graph_print.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/factory.h"
#include "ringgrad/models/program/commands/commands.h"
#include "ringgrad/models/program/console/console.h"
#include "ringgrad/models/program/console/exit_code.h"
#include "ringgrad/models/program/run/saved_model.h"

namespace ringgrad::program {

int graph(const GraphOptions& options) {
  const bool gray = options.model == "cnn" || options.model == "lenet";
  const auto model = make_model_for(options.model, gray ? "digits" : "shapes");
  const Tensor x = gray ? zeros({2, 1, 28, 28}) : zeros({2, 3, 32, 32});
  const Tensor loss = cross_entropy(model->forward(x), zeros({2}, {.dtype = DType::Int64}));
  std::ostringstream text;
  if (options.dot)
    print_graph_dot(text, loss, model->named_parameters());
  else
    print_graph(text, loss, model->named_parameters());
  result(text.str());
  return kOk;
}

}  // namespace ringgrad::program
