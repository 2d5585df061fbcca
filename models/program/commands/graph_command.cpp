// `ringgrad graph`: the tape of a training step.
#include <sstream>

#include "ringgrad/autograd/graph_print.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/models/program/commands/commands.h"
#include "ringgrad/models/program/console/console.h"
#include "ringgrad/models/program/console/exit_code.h"
#include "ringgrad/models/registry.h"

namespace ringgrad::program {

int graph(const GraphOptions& options) {
  recipe_field("model").check_choice(options.model);
  const models::ModelOptions sizes = models::usual_images(options.model);
  const auto model = models::make_model(options.model, sizes);
  const Tensor x = zeros({2, sizes.in_channels, sizes.image_size, sizes.image_size});
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
