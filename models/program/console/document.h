// The one document that --json promises on stdout, however the program ends.
//
// From open_document() on, descriptor 1 is stderr, here and in all that this process starts, so that no other program's
// words can mix with the document. What stdout was is kept for close_document(). The ranks that this process starts
// hand their document, or what went wrong, over to it.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

namespace ringgrad::program {

bool asks_for_document(int argc, char** argv);  // --json stands there, and not behind "--"

void open_document();  // once
bool document_is_open();

// To be printed in the end; the last one counts.
void keep_document(const nlohmann::json& document);
// What stands for a failure: {"error": {"message": …, "exit_code": …}}.
nlohmann::json failure_document(int code, const std::string& message);

// Prints what was kept, else what a rank has handed over, else only how the program has ended. With `error`, the words
// of what went wrong, that is the document. Ranks but the first print nothing. Throws IoError where it cannot be
// written.
void close_document(int exit_code, const std::string& error = "");

// What is started from here on is another program, whose documents are its own.
void keep_document_from_children();

}  // namespace ringgrad::program
