#include "ringgrad/models/program/run/own_pictures.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "ringgrad/core/base/check.h"
#include "ringgrad/distributed/transport/frame.h"

namespace ringgrad::program {
namespace fs = std::filesystem;
namespace {

constexpr size_t kTestShare = 5;  // one of so many

OwnPictures divided(const LabelledPictures& all, const fs::path& path, const fs::path& base) {
  OwnPictures own{all.classes, {}, {}, "a fifth of each class is for the test, by a hash of the file's name"};
  std::vector<std::vector<std::pair<uint64_t, const LabelledPictures::Picture*>>> of_class(all.classes.size());
  for (const auto& picture : all.pictures) {
    const std::string name = picture.file.lexically_relative(base).generic_string();
    of_class[picture.label].emplace_back(hash_of(name.data(), name.size()), &picture);
  }
  for (size_t label = 0; label < of_class.size(); ++label) {
    auto& pictures = of_class[label];
    CHECK_AS(DataError, pictures.size() >= 2, "pictures: ", path.string(), ": class '", all.classes[label],
             "' has one picture, expected two or more, one of them for the test");
    std::sort(pictures.begin(), pictures.end(), [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first < b.first : a.second->file < b.second->file;
    });
    const size_t test = std::max<size_t>(1, pictures.size() / kTestShare);
    for (size_t i = 0; i < pictures.size(); ++i) (i < test ? own.test : own.train).push_back(*pictures[i].second);
  }
  return own;
}

// Classes of the test are found again by their names.
OwnPictures joined(const LabelledPictures& train, const LabelledPictures& test, const fs::path& folder,
                   const std::string& division) {
  OwnPictures own{train.classes, train.pictures, test.pictures, division};
  for (auto& picture : own.test) {
    const std::string& name = test.classes[picture.label];
    const auto found = std::lower_bound(train.classes.begin(), train.classes.end(), name);
    CHECK_AS(DataError, found != train.classes.end() && *found == name, "pictures: ", folder.string(),
             " has no class '", name, "' in train/, as there is for the test");
    picture.label = found - train.classes.begin();
  }
  return own;
}

// Names go into JSON, which has no other letters.
void check_letters(const std::string& name) {
  try {
    (void)nlohmann::json(name).dump();
  } catch (const nlohmann::json::exception&) {
    throw DataError(str("pictures: the name '", name, "' is not UTF-8; rename it"));
  }
}

}  // namespace

OwnPictures find_own_pictures(const fs::path& given) {
  check_letters(given.string());
  const fs::path path = fs::absolute(given).lexically_normal();  // names are hashed: the same ones from everywhere
  OwnPictures own;
  std::error_code none;
  if (path.extension() == ".csv") {
    own = divided(pictures_in_csv(path), path, path.parent_path());
  } else {
    const bool has_train = fs::is_directory(path / "train", none);
    for (const char* test : {"val", "test"})
      if (has_train && own.classes.empty() && fs::is_directory(path / test, none))
        own = joined(pictures_in_folders(path / "train"), pictures_in_folders(path / test), path,
                     str("trained on train/, tested on ", test, "/"));
    if (own.classes.empty()) own = divided(pictures_in_folders(path), path, path);
  }
  for (const std::string& name : own.classes) check_letters(name);
  CHECK_AS(DataError, own.classes.size() >= 2, "pictures: ", path.string(), " has one class, '", own.classes[0],
           "', expected two or more");
  return own;
}

}  // namespace ringgrad::program
