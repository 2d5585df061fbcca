#include "ringgrad/program/console/json_text.h"

#include <fmt/format.h>

#include "ringgrad/core/error.h"

namespace ringgrad::program {
namespace {

using nlohmann::json;

constexpr int kMostLevels = 100;

// Returns the byte at which brackets are nested too deep, or the text's size. If the text is no
// JSON, the parser notices it at the latest at the byte where this count goes wrong.
size_t end_of_shallow(const std::string& text) {
  int level = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      quoted = !quoted;
    } else if (quoted) {
      i += c == '\\';
    } else if (c == '[' || c == '{') {
      if (++level > kMostLevels) return i;
    } else if (c == ']' || c == '}') {
      --level;
    }
  }
  return text.size();
}

}  // namespace

json json_from(const std::string& text) {
  if (const size_t end = end_of_shallow(text); end < text.size())
    throw json::parse_error::create(
        101, end, fmt::format("brackets are nested more than {} deep", kMostLevels), nullptr);
  return json::parse(text);
}

json json_if_whole(const std::string& text) {
  return end_of_shallow(text) < text.size() ? json(json::value_t::discarded)
                                            : json::parse(text, nullptr, false);
}

std::string json_text(const json& document, int indent) {
  return document.dump(indent, ' ', false, json::error_handler_t::replace);
}

void check_utf8(const std::string& what, const std::string& text) {
  try {
    (void)json(text).dump();
  } catch (const json::exception&) {
    throw DataError(fmt::format("{} '{}' is not UTF-8; rename it", what, text));
  }
}

}  // namespace ringgrad::program
