// `ringgrad predict`: one image, what the network sees in it, and how sure it is.
#include <algorithm>
#include <numeric>

#include <nlohmann/json.hpp>

#include "ringgrad/autograd/engine.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/data/datasets/catalog.h"
#include "ringgrad/data/formats/image_file.h"
#include "ringgrad/data/registry.h"
#include "ringgrad/program/commands/checkpoint_options.h"
#include "ringgrad/program/commands/drawn_digit.h"
#include "ringgrad/program/console/console.h"
#include "ringgrad/program/console/exit_code.h"
#include "ringgrad/program/run/own_data.h"
#include "ringgrad/program/run/saved_model.h"

namespace ringgrad::program {
namespace {

struct PredictOptions : CheckpointOptions {
  std::string image;  // a picture's file, or an index into the test set
};

constexpr int kTop = 5;  // classes shown

// It need not be one of an image that there is.
bool is_number(const std::string& text) {
  const size_t sign = text.starts_with('-') ? 1 : 0;
  return text.size() > sign && text.find_first_not_of("0123456789", sign) == std::string::npos;
}

// The gray values as characters, two columns to a pixel, which is about square on a terminal.
void draw(const Tensor& image) {
  constexpr std::string_view kInk = " .:-=+*#%@";
  const Tensor gray = fit_image(image, 1, 28);
  for (int64_t y = 0; y < 28; ++y) {
    std::string line;
    for (int64_t x = 0; x < 28; ++x) {
      const auto level = static_cast<size_t>(gray.data<float>()[y * 28 + x] / 256 *
                                             static_cast<float>(kInk.size()));
      line += std::string(2, kInk[level]);
    }
    result(line);
  }
}

int predict(const PredictOptions& options) {
  const Device device(options.device);
  check_device("predict", device);
  const SavedModel saved = load_model(options.checkpoint, options.model, options.data);
  const DataFacts& info = saved.facts;
  Tensor image;
  std::string label;
  if (is_number(options.image)) {
    const std::string directory = directory_of_data(saved.data, options.data_dir, saved.data_dir);
    const ImageDataset test_set =
        load_images(saved.data, Split::Test, info, saved.skip_broken, directory);
    const int64_t index = parse_number<int64_t>(options.image).value_or(-1);
    if (index < 0 || index >= test_set.size())
      throw UsageError("test image {} of {} does not exist, expected 0 to {}", options.image,
                       saved.data, test_set.size() - 1);
    image = select(test_set.images, 0, index);
    label = info.classes[test_set.labels.data<int64_t>()[index]];
  } else {
    image = read_image(options.image);
    if (std::string done; info.channels == 1 && info.classes == dataset_info("mnist").classes) {
      image = like_mnist(image, &done);
      if (!done.empty()) message("note: {}", done);
    }
  }

  NoGradGuard no_grad;
  saved.module->eval();
  saved.module->to(device);
  const auto per_channel = [&](const std::vector<float>& values) {
    return tensor(values, {1, static_cast<int64_t>(values.size()), 1, 1});
  };
  const Tensor pixels = fit_image(image, info.channels, info.image_size) / 255.0;
  const Tensor x = to((pixels - per_channel(info.mean)) / per_channel(info.std), device);
  const auto probability = to_vector<float>(softmax(saved.module->forward(x)));

  std::vector<size_t> order(probability.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return probability[a] > probability[b]; });
  draw(image);
  nlohmann::json probabilities;
  for (size_t i = 0; i < order.size(); ++i) {
    const std::string& name = info.classes[order[i]];
    const float p = probability[order[i]];
    probabilities[name] = p;
    if (i >= kTop) continue;
    std::string bar;
    for (int block = 0; block < static_cast<int>(p * 40 + 0.5f); ++block) bar += "█";
    result("{:>14} {:6.2f} %  {}{}", name, 100 * p, bar, name == label ? "  ← the label" : "");
  }
  print_json({{"prediction", info.classes[order[0]]},
              {"label", label.empty() ? nlohmann::json() : nlohmann::json(label)},
              {"probabilities", probabilities}});
  return kOk;
}

void add_options(CLI::App* app, PredictOptions& o) {
  add_checkpoint_options(app, o);
  add_data_dir_option(app, o.data_dir);
  add_device_option(app, o.device);
  app->add_option("image", o.image, "a PNG, JPEG, PGM or PPM file, or a number: that test image")
      ->required();
}

const Command kPredict(30, "predict", "What a network sees in one image", predict, add_options);

}  // namespace
}  // namespace ringgrad::program
