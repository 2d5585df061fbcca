// `ringgrad data list | make | get | check`
#include <nlohmann/json.hpp>

#include "ringgrad/data/datasets/data_place.h"
#include "ringgrad/data/datasets/dataset_files.h"
#include "ringgrad/data/datasets/get_dataset.h"
#include "ringgrad/data/datasets/program_command.h"
#include "ringgrad/program/command.h"
#include "ringgrad/program/commands/check_pictures.h"
#include "ringgrad/program/console/console.h"
#include "ringgrad/program/console/exit_code.h"
#include "ringgrad/program/run/data_facts.h"
#include "ringgrad/program/run/recipe.h"

namespace ringgrad::program {
namespace {

struct DataOptions {
  std::string name;  // a data set, or own pictures to check
  std::string data_dir;
};

const DatasetInfo& named(const std::string& name) {
  std::vector<std::string> names;
  for (const DatasetInfo& info : datasets()) {
    if (info.name == name) return info;
    names.push_back(info.name);
  }
  throw UsageError("no data set '{}' among {}{}", name, fmt::join(names, ", "),
                   did_you_mean(name, names));
}

int list_data(const DataOptions& options) {
  const DataPlace place = data_place(options.data_dir);
  nlohmann::json report = nlohmann::json::array();
  result("data sets lie in {} ({})", place.directory, place.why);
  for (const DatasetInfo& info : datasets()) {
    const auto folder = find_dataset(info, place.directory);
    result("{:<9}{:>7} + {:>6} images {}×{}×{}  {}", info.name, with_commas(info.train_size),
           with_commas(info.test_size), info.image_size, info.image_size, info.channels,
           folder ? "here" : fmt::format("data {} {}", info.draw ? "make" : "get", info.name));
    result("  {}", info.about);
    report.push_back({{"name", info.name},
                      {"train", info.train_size},
                      {"test", info.test_size},
                      {"classes", info.classes.size()},
                      {"folder", folder ? nlohmann::json(folder->string()) : nlohmann::json()}});
  }
  print_json({{"data_dir", place.directory}, {"why", place.why}, {"data", report}});
  return kOk;
}

int make_or_get(const DataOptions& options, bool download) {
  const std::string directory = data_place(options.data_dir).directory;
  const DatasetInfo& info = named(options.name);
  if (download && info.draw)
    throw UsageError("{} is drawn, not downloaded: {}", info.name,
                     program_command("data make " + info.name));
  if (!download && !info.draw)
    throw UsageError("{} cannot be drawn: {} downloads it", info.name,
                     program_command("data get " + info.name));
  std::optional<Progress> progress;
  std::string current;
  catch_interrupts();
  const auto show = [&](const std::string& file, uint64_t received, uint64_t total) {
    if (interrupted())
      throw JobFailed(128 + interrupted(), "data get: interrupted; nothing was kept of " + file);
    if (file != current) {
      progress.reset();
      progress.emplace(file, static_cast<int64_t>(total));
      current = file;
    }
    const auto bytes = static_cast<int64_t>(received);
    progress->update(bytes, [&] { return human_bytes(bytes); });
  };
  const auto folder = download ? get_dataset(info, directory, show) : make_dataset(info, directory);
  progress.reset();
  result("{} is in {}", info.title, folder.string());
  print_json({{"name", info.name}, {"folder", folder.string()}});
  return kOk;
}

int make_data(const DataOptions& options) { return make_or_get(options, /*download=*/false); }
int get_data(const DataOptions& options) { return make_or_get(options, /*download=*/true); }

int check_data(const DataOptions& options) {
  const std::string directory = data_place(options.data_dir).directory;
  if (is_own_data(options.name)) return check_pictures(options.name);
  const DatasetInfo& info = named(options.name);
  const CheckedDataset checked = check_dataset(info, directory);
  nlohmann::json files = nlohmann::json::array();
  for (const CheckedFile& file : checked.files) {
    result("{}  {:>12}  {}  {}", file.sha256.substr(0, 16),
           human_bytes(static_cast<int64_t>(file.bytes)),
           file.as_published ? "as published" : "well formed, but not the published bytes",
           file.file.string());
    files.push_back({{"file", file.file.string()},
                     {"bytes", file.bytes},
                     {"sha256", file.sha256},
                     {"as_published", file.as_published}});
  }
  result("{}: {} training and {} test images, all well formed", info.title,
         with_commas(checked.train_size), with_commas(checked.test_size));
  print_json({{"name", info.name},
              {"folder", checked.folder.string()},
              {"train", checked.train_size},
              {"test", checked.test_size},
              {"files", files}});
  return kOk;
}

void add_options(CLI::App* app, DataOptions& o) {
  app->add_option("--data-dir", o.data_dir, "where data sets lie");
}

void add_options_for(const std::string& names, CLI::App* app, DataOptions& o) {
  app->add_option("name", o.name, names)->required();
  add_options(app, o);
}

const Command kData(50, "data", "Data sets: list, make, get or check them");
const Command kListData(51, "data list", "What there is, and what is here", list_data, add_options);
const Command kMakeData(52, "data make", "Generate digits or shapes", make_data,
                        [](CLI::App* app, DataOptions& o) {
                          add_options_for("digits or shapes", app, o);
                        });
const Command kGetData(53, "data get", "Download a data set (https, SHA-256 checked)", get_data,
                       [](CLI::App* app, DataOptions& o) {
                         add_options_for("mnist, cifar10 or cifar100", app, o);
                       });
const Command kCheckData(54, "data check", "Read and verify a data set", check_data,
                         [](CLI::App* app, DataOptions& o) {
                           add_options_for(recipe_field("data").help, app, o);
                         });

}  // namespace
}  // namespace ringgrad::program
