#include "ringgrad/program/run/own_pictures.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <span>
#include <string_view>

#include <nlohmann/json.hpp>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/file.h"
#include "ringgrad/core/base/letters.h"
#include "ringgrad/distributed/transport/frame.h"
#include "ringgrad/program/console/json_text.h"

namespace ringgrad::program {
namespace fs = std::filesystem;
namespace {

constexpr size_t kTestShare = 5;  // one picture of this many is for the test

OwnPictures divided(const LabelledPictures& all, const fs::path& path, const fs::path& base) {
  OwnPictures own{
      .classes = all.classes, .train = {}, .test = {}, .split = {}, .left_out = all.left_out};
  own.split =
      "a fifth of each class is for the test, by a hash of the file's path below the folder";
  std::vector<std::vector<std::pair<uint64_t, const LabelledPictures::Picture*>>> of_class(
      all.classes.size());
  for (const auto& picture : all.pictures) {
    const std::string name = picture.file.lexically_relative(base).generic_string();
    of_class[picture.label].emplace_back(hash_of(name.data(), name.size()), &picture);
  }
  for (size_t label = 0; label < of_class.size(); ++label) {
    auto& pictures = of_class[label];
    CHECK_AS(DataError, pictures.size() >= 2, "pictures: ", path.string(), ": class '",
             all.classes[label],
             "' has one picture, expected two or more, one of them for the test");
    std::sort(pictures.begin(), pictures.end(), [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first < b.first : a.second->file < b.second->file;
    });
    const size_t test = std::max<size_t>(1, pictures.size() / kTestShare);
    for (size_t i = 0; i < pictures.size(); ++i)
      (i < test ? own.test : own.train).push_back(*pictures[i].second);
  }
  return own;
}

// Classes of the test are found again by their names.
OwnPictures joined(const LabelledPictures& train, const LabelledPictures& test,
                   const fs::path& folder, const std::string& split) {
  OwnPictures own{train.classes, train.pictures, test.pictures, split, train.left_out};
  own.left_out.insert(own.left_out.end(), test.left_out.begin(), test.left_out.end());
  for (auto& picture : own.test) {
    const std::string& name = test.classes[picture.label];
    const auto found = std::lower_bound(train.classes.begin(), train.classes.end(), name);
    CHECK_AS(DataError, found != train.classes.end() && *found == name,
             "pictures: ", folder.string(), " has no class '", name,
             "' for training, as there is for the test");
    picture.label = found - train.classes.begin();
  }
  return own;
}

// Returns true if every entry of a folder, except hidden ones, is of this kind. Returns false if
// the folder cannot be read.
bool has_only(const fs::path& folder, const auto& kind) {
  std::error_code none;
  for (const fs::directory_entry& entry : fs::directory_iterator(folder, none)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with('.') && !kind(entry.path(), name)) return false;
  }
  return !none;
}

bool holds_a_run(const fs::path& folder) {
  std::error_code none;
  if (!fs::is_regular_file(folder / "config.json", none)) return false;
  try {
    const auto config = json_if_whole(text_of(folder / "config.json"));
    return config.is_object() &&
           (config.contains("recipe") || config.contains("gan") || config.contains("reinforce"));
  } catch (const Error&) {  // it cannot be read
    return false;
  }
}

// Returns true for a run, for the folder of all runs, and for the folder of cached pictures.
bool is_ours(const fs::path& folder) {
  const auto is_run = [](const fs::path& path, const std::string& name) {
    return name == "latest" ||
           name.substr(0, name.find('-')).find_first_not_of("0123456789") == std::string::npos ||
           holds_a_run(path);
  };
  const auto is_cached = [](const fs::path&, const std::string& name) {
    return name.ends_with(".safetensors");
  };
  return holds_a_run(folder) || (folder.filename() == "runs" && has_only(folder, is_run)) ||
         (folder.filename() == "cache" && has_only(folder, is_cached));
}

// Returns the folder that has one of these names, in upper or lower case. An earlier name takes
// precedence.
std::optional<fs::path> folder_named(const std::vector<fs::path>& folders,
                                     std::span<const std::string_view> names) {
  for (const std::string_view name : names)
    for (const fs::path& folder : folders)
      if (lower_case(folder.filename().string()) == name) return folder;
  return {};
}

OwnPictures in_folders(const fs::path& path) {
  constexpr std::string_view kTrain[] = {"train", "training"};
  constexpr std::string_view kTest[] = {"val", "valid", "validation", "test", "testing"};
  std::vector<fs::path> folders = class_folders(path);
  std::erase_if(folders, is_ours);
  const std::optional<fs::path> train = folder_named(folders, kTrain);
  const std::optional<fs::path> test = folder_named(folders, kTest);
  const auto name = [](const fs::path& folder) { return folder.filename().string() + "/"; };
  if (!train || !test) {
    const bool alone = train && folders.size() == 1;  // a lone class would be refused
    return divided(alone ? pictures_in_folders(*train) : pictures_in_folders(path, folders), path,
                   path);
  }
  OwnPictures own = joined(pictures_in_folders(*train), pictures_in_folders(*test), path,
                           str("trained on ", name(*train), ", tested on ", name(*test)));
  for (const fs::path& folder : folders) {
    if (folder == *train || folder == *test) continue;
    const bool second = folder_named({folder}, kTrain).has_value();
    CHECK_AS(DataError, !second, "pictures: ", path.string(), " has ", name(*train), " and ",
             name(folder), ", expected one of them");
    own.left_out.push_back({"folder beside them", 1, folder});
  }
  return own;
}

}  // namespace

OwnPictures find_own_pictures(const fs::path& given) {
  check_utf8("pictures: the name", given.string());
  // Names are hashed: the same ones from everywhere.
  const fs::path path = fs::absolute(given).lexically_normal();
  OwnPictures own;
  if (path.extension() == ".csv") {
    own = divided(pictures_in_csv(path), path, path.parent_path());
  } else {
    own = in_folders(path);
  }
  for (const std::string& name : own.classes) check_utf8("pictures: the name", name);
  CHECK_AS(DataError, own.classes.size() >= 2, "pictures: ", path.string(), " has one class, '",
           own.classes[0], "', expected two or more");
  return own;
}

}  // namespace ringgrad::program
