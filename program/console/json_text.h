// Reads JSON from files that any program may have written, and writes it. The whole program reads
// JSON by these functions.
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
// Returns it in one line, or indented. Bytes that are not UTF-8, such as those of a file's name,
// are replaced.
std::string json_text(const nlohmann::json& document, int indent = -1);
// Throws DataError unless the text is UTF-8, as a name must be that JSON hands on. `what` begins
// the message.
void check_utf8(const std::string& what, const std::string& text);

}  // namespace ringgrad::program
