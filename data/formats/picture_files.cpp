#include "ringgrad/data/formats/picture_files.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
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

// What a field says, without the blanks around it: in double quotes it may hold commas, and a quote as two of them (RFC
// 4180). Nothing where a quote stands alone.
std::optional<std::string> field(std::string_view text) {
  constexpr const char* kBlank = " \t\v\f";
  text.remove_prefix(std::min(text.find_first_not_of(kBlank), text.size()));
  text = text.substr(0, text.find_last_not_of(kBlank) + 1);
  const bool quoted = text.starts_with('"');
  std::string value;
  for (size_t i = quoted; i < text.size(); ++i) {
    if (quoted && text[i] == '"' && i + 1 == text.size()) return value;
    if (text[i] == '"' && (!quoted || text[++i] != '"')) return {};
    value += text[i];
  }
  return quoted ? std::nullopt : std::optional(value);
}

// The last one that is not between quotes.
size_t last_comma(std::string_view line) {
  size_t last = std::string_view::npos;
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '"') quoted = !quoted;
    if (line[i] == ',' && !quoted) last = i;
  }
  return last;
}

// Lines end in LF, CR LF or CR.
std::vector<std::string> lines_of(const fs::path& file) {
  std::error_code none;
  CHECK_AS(DataError, !fs::exists(file, none) || fs::is_regular_file(file, none), "pictures: ", file.string(),
           " is not a regular file");
  std::ifstream in(file, std::ios::binary);
  CHECK_AS(DataError, in.good(), "pictures: cannot open ", file.string(), ": ", std::strerror(errno));
  std::vector<std::string> lines(1);
  for (char c, before = 0; in.get(c); before = c)
    if (c == '\r' || (c == '\n' && before != '\r'))
      lines.emplace_back();
    else if (c != '\n')
      lines.back() += c;
  if (lines[0].starts_with("\xef\xbb\xbf")) lines[0].erase(0, 3);  // as spreadsheets mark UTF-8
  return lines;
}

}  // namespace

LabelledPictures pictures_in_folders(const fs::path& folder) {
  LabelledPictures found;
  try {
    const fs::path root = fs::canonical(folder);
    std::error_code none;  // a link that leads nowhere is neither
    const auto is_class = [&](const fs::directory_entry& entry) {
      if (!entry.is_directory(none) || entry.path().filename().string().starts_with('.')) return false;
      const fs::path real = fs::canonical(entry.path(), none);  // a link to `root`, or above it, has everything again
      return std::mismatch(real.begin(), real.end(), root.begin(), root.end()).first != real.end();
    };
    const auto is_picture = [&](const fs::directory_entry& entry) {
      return entry.is_regular_file(none) && is_called_as_a_picture(entry.path());
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
  LabelledPictures found;
  std::vector<std::string> labels;
  int64_t number = 0;
  for (const std::string& line : lines_of(file)) {
    ++number;
    if (field(line) == "") continue;
    const size_t comma = last_comma(line);
    const std::optional<std::string> path = field(std::string_view(line).substr(0, comma)),
                                     label = comma == std::string::npos ? "" : field(line.substr(comma + 1));
    CHECK_AS(DataError, path && label, "pictures: ", file.string(), ": line ", number,
             " has a quote that stands alone; put the whole path or label in quotes, and write \"\" for one within");
    CHECK_AS(DataError, !path->empty() && !label->empty(), "pictures: ", file.string(), ": line ", number,
             " lacks a path or a label, expected PATH,LABEL");
    if (number == 1 && !is_called_as_a_picture(*path)) continue;
    found.pictures.push_back({file.parent_path() / *path, 0});
    labels.push_back(*label);
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
