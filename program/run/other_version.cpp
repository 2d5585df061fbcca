#include "ringgrad/program/run/other_version.h"

#include <algorithm>

namespace ringgrad::program {
namespace {

// Lists the first few names, and says how many more there are.
std::string some_of(const std::vector<std::string>& names) {
  constexpr size_t kMost = 4;
  const size_t shown = std::min(names.size(), kMost);
  const std::vector<std::string> first(names.begin(),
                                       names.begin() + static_cast<std::ptrdiff_t>(shown));
  const std::string more =
      names.size() > shown ? fmt::format(" and {} more", names.size() - shown) : "";
  return fmt::format("{}{}", fmt::join(first, ", "), more);
}

}  // namespace

std::vector<std::string> sentences(const OtherVersion& other, const std::string& file) {
  std::vector<std::string> all;
  if (!other.lacking.empty())
    all.push_back(
        fmt::format("{} lacks {}, as older versions wrote it", file, some_of(other.lacking)));
  if (!other.unknown.empty())
    all.push_back(fmt::format("{} has settings that this version does not know and ignores: {}",
                              file, some_of(other.unknown)));
  return all;
}

std::string without_number(const nlohmann::json::exception& error) {
  const std::string text = error.what();
  const size_t end = text.starts_with("[json.exception.") ? text.find("] ") : std::string::npos;
  return end == std::string::npos ? text : text.substr(end + 2);
}

void note_unknown(const nlohmann::json& group, const nlohmann::json& known,
                  const std::string& within, OtherVersion& other) {
  for (const auto& [key, value] : group.items())
    if (!known.contains(key)) other.unknown.push_back(within + key);
}

const nlohmann::json& group_of(const nlohmann::json& json, const char* key) {
  if (!json.is_object() || !json.contains(key) || !json[key].is_object())
    throw UsageError("it lacks the group '{}', which every run needs", key);
  return json[key];
}

}  // namespace ringgrad::program
