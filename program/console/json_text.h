// Reads JSON from files that any program may have written. The whole program reads JSON by these
// two functions.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace ringgrad::program {

// Throws nlohmann's parse_error, also if brackets are nested more than 100 deep: nlohmann copies,
// compares and prints a document by recursion, which would overflow the stack.
nlohmann::json json_from(const std::string& text);
// Does the same, but returns a document that is_discarded() and is no object if json_from() would
// throw.
nlohmann::json json_if_whole(const std::string& text);

}  // namespace ringgrad::program
