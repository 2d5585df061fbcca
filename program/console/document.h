// Writes the one document that --json promises on stdout, however the program ends.
//
// From open_document() on, descriptor 1 is stderr, here and in every process that this one starts,
// so that no other program's output can mix with the document. The original stdout is kept for
// close_document(). The ranks that this process starts hand their document, or their error, over to
// it.
#pragma once

#include <map>
#include <string>

#include <nlohmann/json_fwd.hpp>

namespace ringgrad::program {

bool asks_for_document(int argc, char** argv);  // --json stands there, and not behind "--"

void open_document();  // once
bool document_is_open();

// Keeps a document to print at the end. The last one counts.
void keep_document(const nlohmann::json& document);
// Returns the document of a failure: {"error": {"message": …, "exit_code": …}}.
nlohmann::json failure_document(int code, const std::string& message);

// Prints the document that was kept, or else the one that a rank has handed over, or else only the
// exit code. With an `error` message it prints the document of that failure instead. Ranks other
// than the first print nothing. Throws IoError if the document cannot be written.
void close_document(int exit_code, const std::string& error = "");

// The variables with which ranks hand their document over; other programs have documents of their
// own.
std::map<std::string, std::string> document_for_ranks();

}  // namespace ringgrad::program
