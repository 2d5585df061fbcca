#include "ringgrad/data/formats/picture_files.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <span>
#include <string_view>

#include "ringgrad/core/base/check.h"
#include "ringgrad/core/base/letters.h"

namespace ringgrad {
namespace fs = std::filesystem;
namespace {

constexpr std::string_view kRead[] = {".png", ".jpg", ".jpeg", ".webp", ".gif",
                                      ".bmp", ".tif", ".tiff", ".ppm",  ".pgm"};
// Common picture formats that this program cannot read.
constexpr std::string_view kUnread[] = {".heic", ".heif", ".avif", ".jxl",
                                        ".jp2",  ".pbm",  ".svg",  ".ico"};

std::string extension_of(const fs::path& file) { return lower_case(file.extension().string()); }
bool is_one_of(const std::string& extension, std::span<const std::string_view> known) {
  return std::find(known.begin(), known.end(), extension) != known.end();
}
bool is_called_as_a_picture(const fs::path& file) { return is_one_of(extension_of(file), kRead); }
bool is_hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

std::vector<fs::path> in_order(std::vector<fs::path> all) {
  std::sort(all.begin(), all.end());
  return all;
}

DataError unreadable(const fs::filesystem_error& error) {
  return DataError(str("pictures: ", error.path1().string(), ": ", error.code().message()));
}

using LeftOut = std::vector<LabelledPictures::LeftOut>;

void leave_out(LeftOut& all, const std::string& kind, const fs::path& path, int64_t count = 1) {
  const auto known =
      std::find_if(all.begin(), all.end(), [&](const auto& entry) { return entry.kind == kind; });
  if (known == all.end()) {
    all.push_back({kind, count, path});
    return;
  }
  known->count += count;
  known->first = std::min(known->first, path);
}

// Returns the content of a field without the blanks around it. In double quotes it may contain
// commas, and a quote as two quotes (RFC 4180). Returns nothing if a quote stands alone.
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

// Returns the position of the last comma that is not between quotes.
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
  CHECK_AS(DataError, !fs::exists(file, none) || fs::is_regular_file(file, none),
           "pictures: ", file.string(), " is not a regular file");
  Classic<std::ifstream> in(file, std::ios::binary);
  CHECK_AS(DataError, in.good(), "pictures: cannot open ", file.string(), ": ",
           std::strerror(errno));
  std::vector<std::string> lines(1);
  for (char c, before = 0; in.get(c); before = c)
    if (c == '\r' || (c == '\n' && before != '\r'))
      lines.emplace_back();
    else if (c != '\n')
      lines.back() += c;
  if (lines[0].starts_with("\xef\xbb\xbf")) lines[0].erase(0, 3);  // the mark of UTF-8
  return lines;
}

}  // namespace

std::vector<fs::path> pictures_below(const fs::path& folder, LeftOut& left_out) try {
  std::vector<fs::path> pictures;
  std::error_code none;  // a broken link is neither
  for (fs::recursive_directory_iterator entry(folder), end; entry != end; ++entry) {
    const fs::path& path = entry->path();
    const std::string extension = extension_of(path);
    const bool directory = entry->is_directory(none);
    if (is_hidden(path)) {
      if (directory) entry.disable_recursion_pending();
      if (directory || is_called_as_a_picture(path)) leave_out(left_out, "hidden", path);
    } else if (directory) {
      if (entry->is_symlink(none)) leave_out(left_out, "link to a folder", path);
    } else if (!entry->is_regular_file(none)) {
      leave_out(left_out, "no regular file", path);
    } else if (is_one_of(extension, kRead)) {
      pictures.push_back(path);
    } else {
      leave_out(left_out, extension.empty() ? "no extension" : extension, path);
    }
  }
  return in_order(std::move(pictures));
} catch (const fs::filesystem_error& error) {
  throw unreadable(error);
}

std::vector<fs::path> class_folders(const fs::path& folder) {
  std::vector<fs::path> folders;
  try {
    const fs::path root = fs::canonical(folder);
    std::error_code none;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
      if (!entry.is_directory(none) || is_hidden(entry.path())) continue;
      const fs::path real = fs::canonical(entry.path(), none);
      const bool holds_all =
          std::mismatch(real.begin(), real.end(), root.begin(), root.end()).first == real.end();
      if (!holds_all) folders.push_back(entry.path());
    }
  } catch (const fs::filesystem_error& error) {
    throw unreadable(error);
  }
  return in_order(std::move(folders));
}

LabelledPictures pictures_in_folders(const fs::path& folder) {
  return pictures_in_folders(folder, class_folders(folder));
}

LabelledPictures pictures_in_folders(const fs::path& folder, const std::vector<fs::path>& classes) {
  CHECK_AS(DataError, !classes.empty(), "pictures: ", folder.string(),
           " has no folder in it, expected one for each class, with its pictures");
  LabelledPictures found;
  try {
    for (const fs::path& path : classes) {
      LeftOut left_out;
      const std::vector<fs::path> files = pictures_below(path, left_out);
      CHECK_AS(DataError, !files.empty(), "pictures: ", path.string(),
               " has no picture, expected some called .png, .jpg, .jpeg, .webp, .gif, .bmp, .tif, "
               ".tiff, .ppm or .pgm",
               left_out.empty() ? "" : "; " + in_words(left_out));
      for (const fs::path& file : files)
        found.pictures.push_back({file, static_cast<int64_t>(found.classes.size())});
      found.classes.push_back(path.filename().string());
      for (const auto& [kind, count, first] : left_out)
        leave_out(found.left_out, kind, first, count);
    }
    std::error_code none;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
      const std::string extension = extension_of(entry.path());
      const bool is_picture = is_one_of(extension, kRead) || is_one_of(extension, kUnread);
      if (is_picture && entry.is_regular_file(none) && !is_hidden(entry.path()))
        leave_out(found.left_out, "beside the classes", entry.path());
    }
  } catch (const fs::filesystem_error& error) {
    throw unreadable(error);
  }
  return found;
}

std::string in_words(const std::vector<LabelledPictures::LeftOut>& left_out) {
  std::string words;
  for (const auto& [kind, count, first] : left_out)
    words += str(words.empty() ? "left out: " : "; ", count, " × ", kind,
                 count > 1 ? " (the first is " : " (", first.string(), ")");
  return words;
}

LabelledPictures pictures_in_csv(const fs::path& file) {
  LabelledPictures found;
  std::vector<std::string> labels;
  int64_t number = 0;
  for (const std::string& line : lines_of(file)) {
    ++number;
    if (field(line) == "") continue;
    const size_t comma = last_comma(line);
    const std::optional<std::string> path = field(std::string_view(line).substr(0, comma));
    const std::optional<std::string> label =
        comma == std::string::npos ? "" : field(line.substr(comma + 1));
    CHECK_AS(DataError, path && label, "pictures: ", file.string(), ": line ", number,
             " has a quote that stands alone; put the whole path or label in quotes, "
             "and write \"\" for one within");
    CHECK_AS(DataError, !path->empty() && !label->empty(), "pictures: ", file.string(), ": line ",
             number, " lacks a path or a label, expected PATH,LABEL");
    if (number == 1 && !is_called_as_a_picture(*path)) continue;
    found.pictures.push_back({file.parent_path() / *path, 0});
    labels.push_back(*label);
  }
  CHECK_AS(DataError, !labels.empty(), "pictures: ", file.string(),
           " names no picture, expected lines of PATH,LABEL");
  found.classes = labels;
  std::sort(found.classes.begin(), found.classes.end());
  found.classes.erase(std::unique(found.classes.begin(), found.classes.end()), found.classes.end());
  for (size_t i = 0; i < labels.size(); ++i)
    found.pictures[i].label =
        std::lower_bound(found.classes.begin(), found.classes.end(), labels[i]) -
        found.classes.begin();
  return found;
}

}  // namespace ringgrad
