// `ringgrad predict`: the network's class for one image or many, with its probability.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>

#include <nlohmann/json.hpp>

#include "ringgrad/autograd/engine.h"
#include "ringgrad/autograd/ops.h"
#include "ringgrad/core/base/check.h"
#include "ringgrad/data/datasets/catalog.h"
#include "ringgrad/data/datasets/program_command.h"
#include "ringgrad/data/formats/image_file.h"
#include "ringgrad/data/formats/picture_files.h"
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
  // Pictures' files, folders of them, - for one on stdin; or an index into the test set.
  std::vector<std::string> images;
  // The format for several pictures: table or csv.
  std::string format = "table";
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

// The network, and the form of its input.
class Predictor {
 public:
  Predictor(const SavedModel& saved, Device device) : saved_(saved), device_(device) {
    saved_.module->eval();
    saved_.module->to(device);
  }

  // Returns the probability of each class, for uint8 [C, H, W].
  std::vector<float> operator()(const Tensor& image) const {
    const DataFacts& info = saved_.facts;
    const NoGradGuard no_grad;
    const auto per_channel = [&](const std::vector<float>& values) {
      return tensor(values, {1, static_cast<int64_t>(values.size()), 1, 1});
    };
    const Tensor pixels = fit_image(image, info.channels, info.image_size) / 255.0;
    const Tensor x = to((pixels - per_channel(info.mean)) / per_channel(info.std), device_);
    return to_vector<float>(softmax(saved_.module->forward(x)));
  }

  // A picture's pixels as the network knows them: digits as MNIST has them.
  Tensor read(const std::string& file) const {
    Tensor image = read_image(file);
    const DataFacts& info = saved_.facts;
    if (std::string done; info.channels == 1 && info.classes == dataset_info("mnist").classes) {
      image = like_mnist(image, &done);
      if (!done.empty()) message("note: {}", done);
    }
    return image;
  }

 private:
  const SavedModel& saved_;
  const Device device_;
};

// Returns the classes, the likeliest first.
std::vector<size_t> by_probability(const std::vector<float>& probability) {
  std::vector<size_t> order(probability.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return probability[a] > probability[b]; });
  return order;
}

// All of stdin as a file in memory, which is there while the process is.
std::string file_of_stdin() {
  const int file = memfd_create("stdin", MFD_CLOEXEC);
  char block[1 << 16];
  for (ssize_t got; (got = ::read(STDIN_FILENO, block, sizeof block)) > 0;)
    CHECK_AS(IoError, write(file, block, static_cast<size_t>(got)) == got,
             "predict: cannot keep what is on standard input");
  return "/proc/self/fd/" + std::to_string(file);
}

// The pictures that the words name: in a folder all below it whose names say that they are some.
std::vector<std::string> files_of(const std::vector<std::string>& words) {
  std::vector<std::string> files;
  for (const std::string& word : words) {
    std::error_code none;
    if (!std::filesystem::is_directory(word, none)) {
      files.push_back(word);
      continue;
    }
    std::vector<LabelledPictures::LeftOut> left_out;
    for (const auto& file : pictures_below(word, left_out)) files.push_back(file.string());
    if (!left_out.empty()) message("note    {}: {}", word, in_words(left_out));
  }
  return files;
}

// As RFC 4180 has it.
std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
  return quoted + '"';
}

// A line for each picture, in their order. One that cannot be read has its reason in that line;
// returns kBadData then.
int predict_many(const PredictOptions& options, const std::vector<std::string>& files,
                 const SavedModel& saved, const Predictor& predictor) {
  const auto& classes = saved.facts.classes;
  const bool csv = options.format == "csv";
  nlohmann::json listed = nlohmann::json::array();
  int64_t broken = 0;
  if (csv) result("file,prediction,probability,second,its probability,error");
  if (!csv) result("{:<40}{:<16}{:>9}  {}", "file", "prediction", "", "else");
  for (const std::string& file : files) {
    const std::string name = file.starts_with("/proc/self/fd/") ? "-" : file;
    std::vector<float> probability;
    std::string problem;
    try {
      probability = predictor(predictor.read(file));
    } catch (const DataError& error) {
      problem = error.what();
    } catch (const OutOfMemoryError& error) {
      problem = error.what();
    }
    if (!problem.empty()) {
      ++broken;
      if (csv)
        result("{},,,,,{}", csv_field(name), csv_field(problem));
      else
        result("{:<40}{}", name, problem);
      listed.push_back({{"file", name}, {"error", problem}});
      continue;
    }
    const std::vector<size_t> order = by_probability(probability);
    const auto of = [&](size_t place) { return probability[order[place]]; };
    const auto class_of = [&](size_t place) { return classes[order[place]]; };
    const bool alone = order.size() == 1;  // there is no second class
    if (csv)
      result("{},{},{:.6f},{},", csv_field(name), csv_field(class_of(0)), of(0),
             alone ? "," : fmt::format("{},{:.6f}", csv_field(class_of(1)), of(1)));
    else
      result("{:<40}{:<16}{:>7.2f} %  {}", name, class_of(0), 100 * of(0),
             alone ? "" : fmt::format("{} ({:.2f} %)", class_of(1), 100 * of(1)));
    nlohmann::json probabilities;
    for (size_t i = 0; i < classes.size(); ++i) probabilities[classes[i]] = probability[i];
    listed.push_back(
        {{"file", name}, {"prediction", class_of(0)}, {"probabilities", probabilities}});
  }
  if (broken > 0)
    complain(fmt::format("{} of {} cannot be read", counted(broken, "picture"), files.size()));
  print_json({{"predictions", listed}, {"unreadable", broken}});
  return broken > 0 ? kBadData : kOk;
}

int predict(const PredictOptions& options) {
  const Device device(options.device);
  check_device("predict", device);
  const SavedModel saved = load_model(options.checkpoint, options.model, options.data);
  const DataFacts& info = saved.facts;
  const Predictor predictor(saved, device);
  std::vector<std::string> words = options.images;
  for (std::string& name : words)
    if (name == "-") name = file_of_stdin();
  const std::string& word = words.front();
  std::error_code none;
  if (words.size() > 1 || std::filesystem::is_directory(word, none) || options.format == "csv") {
    for (const std::string& number : words)
      if (is_number(number) && !std::filesystem::exists(number, none))
        throw UsageError("predict: test images have numbers, and are shown one at a time: {}",
                         program_command("predict " + options.checkpoint + " " + number));
    const std::vector<std::string> files = files_of(words);
    CHECK_AS(DataError, !files.empty(), "predict: ", word, " has no picture");
    return predict_many(options, files, saved, predictor);
  }
  Tensor image;
  std::string label;
  if (is_number(word)) {
    const std::string directory = directory_of_data(saved.data, options.data_dir, saved.data_dir);
    const ImageDataset test_set =
        load_images(saved.data, Split::Test, info, saved.skip_broken, directory);
    const int64_t index = parse_number<int64_t>(word).value_or(-1);
    if (index < 0 || index >= test_set.size())
      throw UsageError("test image {} of {} does not exist, expected 0 to {}", word, saved.data,
                       test_set.size() - 1);
    image = select(test_set.images, 0, index);
    label = info.classes[test_set.labels.data<int64_t>()[index]];
  } else {
    image = predictor.read(word);
  }

  const std::vector<float> probability = predictor(image);
  const std::vector<size_t> order = by_probability(probability);
  if (on_terminal()) draw(image);
  const int most = on_terminal() ? std::min(40, line_width() - 40) : 0;  // blocks of a bar
  nlohmann::json probabilities;
  for (size_t i = 0; i < order.size(); ++i) {
    const std::string& name = info.classes[order[i]];
    const float p = probability[order[i]];
    probabilities[name] = p;
    if (i >= kTop) continue;
    std::string bar;
    for (int block = 0; block < std::lround(p * static_cast<float>(most)); ++block) bar += "█";
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
  app->add_option("image", o.images,
                  "pictures, folders of them, - for one on standard input, or one "
                  "number: that test image")
      ->required();
  app->add_option("--format", o.format, "of several: table or csv")
      ->capture_default_str()
      ->check(CLI::IsMember({"table", "csv"}));
}

const Command kPredict(30, "predict", "What a network sees in an image, or in each of many",
                       predict, add_options);

}  // namespace
}  // namespace ringgrad::program
