// `ringgrad graph`: the tape of one training step of a model, as text or for Graphviz.
#include <sstream>

#include "autograd/graph_print.h"
#include "autograd/ops.h"
#include "core/factory.h"
#include "models/program/commands.h"
#include "models/program/console.h"
#include "models/program/exit_code.h"
#include "models/program/saved_model.h"

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
