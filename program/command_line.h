// Parses the command line: finds the command and its options.
#pragma once

namespace ringgrad::program {

// Runs the command and returns its exit code (exit_code.h). Throws UsageError, with a suggestion,
// for unknown commands and options. Throws the command's exceptions.
int run_command_line(int argc, char** argv);

}  // namespace ringgrad::program
