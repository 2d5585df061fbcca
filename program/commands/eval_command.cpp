// `ringgrad eval`: the accuracy of a network on the test images, class by class, and its errors.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <numeric>

#include <nlohmann/json.hpp>

#include "ringgrad/core/factory.h"
#include "ringgrad/data/image_grid.h"
#include "ringgrad/data/registry.h"
#include "ringgrad/program/commands/checkpoint_options.h"
#include "ringgrad/program/console/console.h"
#include "ringgrad/program/console/exit_code.h"
#include "ringgrad/program/run/own_data.h"
#include "ringgrad/program/run/saved_model.h"
#include "ringgrad/program/train/training.h"

namespace ringgrad::program {
namespace {

struct EvalOptions : CheckpointOptions {
  std::string provider = "auto";
  bool confusion = false;
  // Skips broken pictures of one's own.
  bool skip_broken = false;
  // The number of images with the highest loss, as a table and a picture …
  int worst = 0;
  // … in this file; "" : worst.png beside the weights.
  std::string out;
};

constexpr size_t kColumns = 80;
constexpr size_t kLabelColumns = 13;
constexpr size_t kMostRows = 20;

struct ClassResult {
  size_t label;
  int64_t images = 0;
  int64_t right = 0;
  size_t taken_for = 0;  // the most frequent wrong answer
  int64_t taken = 0;     // how often
  double recall() const {
    return images ? static_cast<double>(right) / static_cast<double>(images) : 0;
  }
};

std::vector<ClassResult> by_class(const Evaluation& evaluation, size_t classes) {
  std::vector<ClassResult> results;
  for (size_t label = 0; label < classes; ++label) {
    ClassResult& r = results.emplace_back(ClassResult{label});
    for (size_t answer = 0; answer < classes; ++answer) {
      const int64_t count = evaluation.confusion[label * classes + answer];
      r.images += count;
      if (answer == label)
        r.right = count;
      else if (count > r.taken) {
        r.taken = count;
        r.taken_for = answer;
      }
    }
  }
  return results;
}

// The classes in their order; of many, those that are recognised least.
void print_recall(std::vector<ClassResult> results, const std::vector<std::string>& classes) {
  result("\n{:>24}{:>9}{:>11}  {}", "class", "images", "recall", "else most often");
  if (results.size() > kMostRows) {
    std::stable_sort(results.begin(), results.end(),
                     [](const auto& a, const auto& b) { return a.recall() < b.recall(); });
    results.resize(kMostRows);
  }
  for (const ClassResult& r : results)
    result("{:>24}{:>9}{:>11}  {}", classes[r.label].substr(0, 23), with_commas(r.images),
           r.images ? fmt::format("{:.2f} %", 100 * r.recall()) : "",
           r.taken
               ? fmt::format("{} ({})", classes[r.taken_for].substr(0, 24), with_commas(r.taken))
               : "");
  if (results.size() < classes.size())
    result("the {} of {} classes that are recognised least; --json has all", results.size(),
           classes.size());
}

// Prints a matrix if it fits into 80 columns, else its largest numbers.
void print_confusion(const Evaluation& evaluation, const std::vector<std::string>& classes) {
  const size_t n = classes.size();
  const std::string most =
      std::to_string(*std::max_element(evaluation.confusion.begin(), evaluation.confusion.end()));
  const size_t width = std::min<size_t>(7, (kColumns - kLabelColumns) / n);
  if (width > std::max<size_t>(most.size(), 3)) {
    result("\nrow: the label, column: the answer");
    std::string head(kLabelColumns, ' ');
    for (const std::string& name : classes)
      head += fmt::format("{:>{}}", name.substr(0, width - 1), width);
    result(head);
    for (size_t label = 0; label < n; ++label) {
      std::string row =
          fmt::format("{:>{}}", classes[label].substr(0, kLabelColumns - 1), kLabelColumns);
      for (size_t answer = 0; answer < n; ++answer)
        row += fmt::format("{:>{}}", evaluation.confusion[label * n + answer], width);
      result(row);
    }
    return;
  }
  std::vector<size_t> cells(n * n);
  std::iota(cells.begin(), cells.end(), 0);
  std::erase_if(cells, [&](size_t i) { return i / n == i % n || evaluation.confusion[i] == 0; });
  std::stable_sort(cells.begin(), cells.end(), [&](size_t a, size_t b) {
    return evaluation.confusion[a] > evaluation.confusion[b];
  });
  result("\nwhat is taken for what most often; --json has the whole matrix of {} x {}", n, n);
  for (size_t i = 0; i < std::min(cells.size(), kMostRows); ++i)
    result("{:>24}  as {:<24}{:>9}", classes[cells[i] / n].substr(0, 23),
           classes[cells[i] % n].substr(0, 23), with_commas(evaluation.confusion[cells[i]]));
}

// Prints a table row for each image, and draws the images in that order in one picture.
nlohmann::json show_worst(const Evaluation& evaluation, const ImageDataset& set,
                          const std::vector<std::string>& files, int count,
                          const std::filesystem::path& file) {
  const auto shown = std::min<size_t>(static_cast<size_t>(count), evaluation.worst.size());
  const Shape& shape = set.images.shape();
  const int64_t bytes = shape[1] * shape[2] * shape[3];
  const Tensor images =
      empty({static_cast<int64_t>(shown), shape[1], shape[2], shape[3]}, {.dtype = DType::UInt8});
  nlohmann::json listed = nlohmann::json::array();
  result("\n{:>4}{:>9}  {:<24}{:<24}{:>14}{}", "", "image", "label", "answer", "of the label",
         files.empty() ? "" : "  file");
  for (size_t i = 0; i < shown; ++i) {
    const ImageResult& image = evaluation.worst[i];
    std::memcpy(images.data<uint8_t>() + static_cast<int64_t>(i) * bytes,
                set.images.data<uint8_t>() + image.index * bytes, static_cast<size_t>(bytes));
    const auto index = static_cast<size_t>(image.index);
    const std::string name = index < files.size() ? files[index] : "";
    result("{:>4}{:>9}  {:<24}{:<24}{:>12.2g} %{}{}", i + 1, image.index,
           set.classes[image.label].substr(0, 23), set.classes[image.answer].substr(0, 23),
           100 * std::exp(-image.loss), name.empty() ? "" : "  ", name);
    listed.push_back({{"index", image.index},
                      {"label", set.classes[image.label]},
                      {"answer", set.classes[image.answer]},
                      {"loss", image.loss}});
    if (!name.empty()) listed.back()["file"] = name;
  }
  const auto columns = static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(shown))));
  if (shown > 0) save_image(images, file, {.nrow = columns, .padding = 1, .pad_value = 40});
  if (shown > 0) result("in {}, row by row", file.string());
  return listed;
}

int eval(const EvalOptions& options) {
  const Device device(options.device);
  set_provider(provider_named(options.provider, device));
  check_device("eval", device);
  const SavedModel saved = load_model(options.checkpoint, options.model, options.data);
  const std::string directory = directory_of_data(saved.data, options.data_dir, saved.data_dir);
  std::vector<std::string> files;
  const ImageDataset test_set =
      load_images(saved.data, Split::Test, saved.facts, saved.skip_broken || options.skip_broken,
                  directory, &files);
  const auto run = std::filesystem::path(saved.file).parent_path();
  if (options.worst > 0 && options.out.empty()) check_links(run.empty() ? "." : run);
  saved.module->to(device);
  const Evaluation evaluation =
      evaluate(*saved.module, test_set, normalization_of(saved.facts), device);
  result("{} on {}: {:.2f} % ({} of {} correct), loss {:.4f}", saved.model, saved.facts.name,
         100 * evaluation.accuracy(), evaluation.correct, evaluation.total, evaluation.loss);
  const std::vector<ClassResult> results = by_class(evaluation, test_set.classes.size());
  print_recall(results, test_set.classes);
  if (options.confusion) print_confusion(evaluation, test_set.classes);
  nlohmann::json worst;
  nlohmann::json recall;
  if (options.worst > 0)
    worst =
        show_worst(evaluation, test_set, files, options.worst,
                   options.out.empty() ? run / "worst.png" : std::filesystem::path(options.out));
  for (const ClassResult& r : results)
    recall[test_set.classes[r.label]] = r.images ? nlohmann::json(r.recall()) : nlohmann::json();
  print_json({{"model", saved.model},
              {"data", saved.data},
              {"accuracy", evaluation.accuracy()},
              {"correct", evaluation.correct},
              {"total", evaluation.total},
              {"loss", evaluation.loss},
              {"classes", test_set.classes},
              {"recall", recall},
              {"confusion", evaluation.confusion},
              {"worst", worst}});
  return kOk;
}

void add_options(CLI::App* app, EvalOptions& o) {
  add_checkpoint_options(app, o);
  add_data_dir_option(app, o.data_dir);
  add_device_option(app, o.device);
  app->add_option("--provider", o.provider, recipe_field("provider").help);
  app->add_flag("--confusion", o.confusion, "print the confusion matrix");
  auto* worst =
      app->add_option("--worst", o.worst, "show so many of the images that it gets most wrong");
  worst->check(CLI::Range(1, static_cast<int>(kWorst)));
  const auto is_picture = [](const std::string& name) -> std::string {
    const std::string ending = std::filesystem::path(name).extension().string();
    const bool fits = ending == ".png" || ending == ".ppm" || ending.empty();
    return fits ? "" : name + ": expected a name that ends in .png or .ppm";
  };
  app->add_option("--out", o.out, "--worst's picture (default: worst.png beside the weights)")
      ->needs(worst)
      ->check(is_picture);
  app->add_flag("--skip-broken", o.skip_broken, recipe_field("skip_broken").help);
}

const Command kEval(20, "eval", "Accuracy of a checkpoint, and where it errs", eval, add_options);

}  // namespace
}  // namespace ringgrad::program
