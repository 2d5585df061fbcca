#include "ringgrad/data/formats/picture_files.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string_view>

#include "ringgrad/core/base/check.h"

namespace ringgrad {
namespace fs = std::filesystem;
namespace {

bool is_called_as_a_picture(const fs::path& file) {
  std::string extension = file.extension().string();
  for (char& c : extension) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  constexpr std::string_view kKnown[] = {".png", ".jpg", ".jpeg", ".ppm", ".pgm"};
  return std::find(std::begin(kKnown), std::end(kKnown), extension) != std::end(kKnown);
}

// What lies in a folder (and with an Iterator that does so, below it), in the order of the names.
template <class Iterator, class Predicate>
std::vector<fs::path> listed(const fs::path& folder, Predicate wanted) {
  std::vector<fs::path> all;
  for (const fs::directory_entry& entry : Iterator(folder))
    if (wanted(entry)) all.push_back(entry.path());
  std::sort(all.begin(), all.end());
  return all;
}

std::string unquoted(std::string text) {
  const auto blank = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
  while (!text.empty() && blank(text.back())) text.pop_back();
  while (!text.empty() && blank(text.front())) text.erase(0, 1);
  if (text.size() >= 2 && text.front() == '"' && text.back() == '"') text = text.substr(1, text.size() - 2);
  return text;
}

}  // namespace

LabelledPictures pictures_in_folders(const fs::path& folder) {
  LabelledPictures found;
  try {
    const auto is_class = [](const fs::directory_entry& entry) {
      return entry.is_directory() && !entry.path().filename().string().starts_with('.');
    };
    const auto is_picture = [](const fs::directory_entry& entry) {
      return entry.is_regular_file() && is_called_as_a_picture(entry.path());
    };
    for (const fs::path& path : listed<fs::directory_iterator>(folder, is_class)) {
      const auto files = listed<fs::recursive_directory_iterator>(path, is_picture);
      CHECK_AS(DataError, !files.empty(), "pictures: ", path.string(),
               " has no picture, expected some called .png, .jpg, .jpeg, .ppm or .pgm");
      for (const fs::path& file : files) found.pictures.push_back({file, static_cast<int64_t>(found.classes.size())});
      found.classes.push_back(path.filename().string());
    }
  } catch (const fs::filesystem_error& error) {
    throw DataError(str("pictures: ", error.path1().string(), ": ", error.code().message()));
  }
  CHECK_AS(DataError, !found.classes.empty(), "pictures: ", folder.string(),
           " has no folder in it, expected one for each class, with its pictures");
  return found;
}

LabelledPictures pictures_in_csv(const fs::path& file) {
  std::ifstream in(file);
  CHECK_AS(IoError, in.good(), "pictures: cannot open ", file.string(), ": ", std::strerror(errno));
  LabelledPictures found;
  std::vector<std::string> labels;
  int64_t number = 0;
  for (std::string line; std::getline(in, line);) {
    if (++number == 1 && line.starts_with("\xef\xbb\xbf")) line.erase(0, 3);  // as spreadsheets mark UTF-8
    if (unquoted(line).empty()) continue;
    const size_t comma = line.rfind(',');
    const std::string path = unquoted(line.substr(0, comma)),
                      label = comma == std::string::npos ? "" : unquoted(line.substr(comma + 1));
    CHECK_AS(DataError, !path.empty() && !label.empty(), "pictures: ", file.string(), ": line ", number,
             " lacks a path or a label, expected PATH,LABEL");
    if (number == 1 && !is_called_as_a_picture(path)) continue;
    found.pictures.push_back({file.parent_path() / path, 0});
    labels.push_back(label);
  }
  CHECK_AS(DataError, !labels.empty(), "pictures: ", file.string(), " names no picture, expected lines of PATH,LABEL");
  found.classes = labels;
  std::sort(found.classes.begin(), found.classes.end());
  found.classes.erase(std::unique(found.classes.begin(), found.classes.end()), found.classes.end());
  for (size_t i = 0; i < labels.size(); ++i)
    found.pictures[i].label =
        std::lower_bound(found.classes.begin(), found.classes.end(), labels[i]) - found.classes.begin();
  return found;
}

}  // namespace ringgrad
