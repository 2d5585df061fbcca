// `ringgrad eval`
#include <nlohmann/json.hpp>

#include "ringgrad/data/registry.h"
#include "ringgrad/models/program/commands/commands.h"
#include "ringgrad/models/program/console/console.h"
#include "ringgrad/models/program/console/exit_code.h"
#include "ringgrad/models/program/run/saved_model.h"
#include "ringgrad/models/program/train/training.h"

namespace ringgrad::program {
namespace {

void print_confusion(const Evaluation& evaluation, const std::vector<std::string>& classes) {
  result("\nrow: the label, column: the answer");
  std::string head = fmt::format("{:>12}", "");
  for (const std::string& name : classes) head += fmt::format("{:>7}", name.substr(0, 6));
  result(head);
  for (size_t label = 0; label < classes.size(); ++label) {
    std::string row = fmt::format("{:>12}", classes[label].substr(0, 12));
    for (size_t answer = 0; answer < classes.size(); ++answer)
      row += fmt::format("{:>7}", evaluation.confusion[label * classes.size() + answer]);
    result(row);
  }
}

}  // namespace

int eval(const EvalOptions& options) {
  const Device device(options.device);
  check_device("eval", device);
  set_provider(provider_named(options.provider));
  const SavedModel saved = load_model(options.checkpoint, options.model, options.data);
  const std::string directory = data_directory(options.data_dir.empty() ? saved.data_dir : options.data_dir);
  const ImageDataset test_set = load_dataset(saved.data, Split::Test, directory);
  saved.module->to(device);
  const Evaluation evaluation = evaluate(*saved.module, test_set, test_transform(saved.data), device);
  result("{} on {}: {:.2f} % ({} of {} correct), loss {:.4f}", saved.model, saved.data, 100 * evaluation.accuracy(),
         evaluation.correct, evaluation.total, evaluation.loss);
  if (options.confusion) print_confusion(evaluation, test_set.classes);
  print_json({{"model", saved.model},
              {"data", saved.data},
              {"accuracy", evaluation.accuracy()},
              {"correct", evaluation.correct},
              {"total", evaluation.total},
              {"loss", evaluation.loss},
              {"classes", test_set.classes},
              {"confusion", evaluation.confusion}});
  return kOk;
}

}  // namespace ringgrad::program
