// `ringgrad graph`: the tape of a training step.
#include <numeric>
#include <optional>
#include <sstream>

#include <nlohmann/json.hpp>

#include "ringgrad/autograd/graph_print.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/error.h"
#include "ringgrad/core/random.h"
#include "ringgrad/core/random_tensors.h"
#include "ringgrad/data/data_loader.h"
#include "ringgrad/data/datasets/program_command.h"
#include "ringgrad/data/registry.h"
#include "ringgrad/models/registry.h"
#include "ringgrad/program/command.h"
#include "ringgrad/program/console/console.h"
#include "ringgrad/program/console/exit_code.h"
#include "ringgrad/program/run/data_facts.h"
#include "ringgrad/program/run/recipe.h"

namespace ringgrad::program {
namespace {

struct GraphOptions {
  std::string model = "cnn";
  std::string data = "", data_dir = "";  // "": normal noise
  int64_t batch = 0;                     // 0: as train's
  bool values = false;
  bool dot = false;
};

struct FirstBatch {
  models::ModelOptions sizes;
  Tensor x;
  Tensor labels;
};

// Returns the first images of the training set, or noise if no data set is named.
FirstBatch first_batch(const GraphOptions& options) {
  const int64_t batch = options.batch > 0 ? options.batch : Recipe().batch;
  if (options.data.empty()) {
    const models::ModelOptions sizes = models::usual_images(options.model);
    return {sizes, randn({batch, sizes.in_channels, sizes.image_size, sizes.image_size}),
            zeros({batch}, {.dtype = DType::Int64})};
  }
  const DataFacts facts = facts_of_dataset(options.data);
  const ImageDataset images =
      load_dataset(options.data, Split::Train, data_directory(options.data_dir));
  if (batch > images.size())
    throw Error(
        str("graph: a batch of ", batch, " images, and ", options.data, " has ", images.size()));
  std::vector<int64_t> first(static_cast<size_t>(batch));
  std::iota(first.begin(), first.end(), 0);
  const Batch made = image_batches(images, normalization_of(facts))(first, 0);
  return {{facts.channels, static_cast<int64_t>(facts.classes.size()), facts.image_size},
          made.data,
          made.target};
}

int graph(const GraphOptions& options) {
  recipe_field("model").check_choice(options.model);
  manual_seed(1);
  const FirstBatch batch = first_batch(options);
  const auto model = models::make_model(options.model, batch.sizes);
  std::optional<GraphValues> values;
  if (options.values) values.emplace();
  const Tensor loss = cross_entropy(model->forward(batch.x), batch.labels);
  if (options.values) loss.backward();
  std::ostringstream text;
  if (options.dot)
    print_graph_dot(text, loss, model->named_parameters());
  else
    print_graph(text, loss, model->named_parameters());
  result(text.str());
  print_json({{"model", options.model},
              {"batch", batch.labels.numel()},
              {"loss", loss.item<float>()},
              {"format", options.dot ? "dot" : "text"},
              {"graph", text.str()}});
  return kOk;
}

void add_options(CLI::App* app, GraphOptions& o) {
  app->add_option("model", o.model, "as for train")->capture_default_str();
  app->add_option("--data", o.data, "its first images go in, normalised (default: noise)");
  app->add_option("--data-dir", o.data_dir, "where data sets lie");
  app->add_option("--batch", o.batch, "images (default: as train)")->check(kPositive);
  app->add_flag("--values", o.values,
                "also forward's values and the gradients: up to four numbers, or mean ± deviation");
  app->add_flag("--dot", o.dot,
                fmt::format("for Graphviz: {} | dot -Tsvg", program_command("graph --dot")));
}

const Command kGraph(70, "graph", "The autograd graph of a model's loss", graph, add_options);

}  // namespace
}  // namespace ringgrad::program
