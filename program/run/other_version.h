// Reads settings from a file that another version of this program may have written. A missing
// setting gets its default. Missing and unknown settings are noted, so that the reader of the file
// can report them.
#pragma once

#include <string>
#include <type_traits>
#include <vector>

#include <nlohmann/json.hpp>

#include "ringgrad/program/console/exit_code.h"

namespace ringgrad::program {

struct OtherVersion {
  std::vector<std::string> lacking;  // "cutout (taken as 0)"
  std::vector<std::string> unknown;  // "recipe.magic"
};

// Returns what to report, one sentence for each point. Returns nothing if the file is as this
// version writes it.
std::vector<std::string> sentences(const OtherVersion& other, const std::string& file);

// Returns the message of a nlohmann exception without its number: "key 'lr' not found".
std::string without_number(const nlohmann::json::exception& error);

// Notes the keys of a group of settings that `known` does not have. `within` precedes them in the
// note: "recipe.".
void note_unknown(const nlohmann::json& group, const nlohmann::json& known,
                  const std::string& within, OtherVersion& other);

// Returns a group of settings. Throws UsageError if there is none.
const nlohmann::json& group_of(const nlohmann::json& json, const char* key);

// Returns a setting's value. If the setting is missing, returns `otherwise` and notes it. Throws
// UsageError if the value has another type: a fraction would become a whole number, and `true` a 1.
template <class T>
T read_setting(const nlohmann::json& group, const std::string& key, const T& otherwise,
               OtherVersion& other) {
  const auto found = group.find(key);
  if (found == group.end()) {
    other.lacking.push_back(key + " (taken as " + nlohmann::json(otherwise).dump() + ")");
    return otherwise;
  }
  constexpr const char* kExpected = std::is_same_v<T, bool>          ? "true or false"
                                    : std::is_same_v<T, std::string> ? "a word"
                                    : std::is_floating_point_v<T>    ? "a number"
                                                                     : "a whole number";
  try {
    if (T value = found->get<T>(); nlohmann::json(value) == *found) return value;
  } catch (const nlohmann::json::exception&) {  // it is of another type
  }
  throw UsageError("{} is {}, expected {}", key, found->dump(), kExpected);
}

}  // namespace ringgrad::program
