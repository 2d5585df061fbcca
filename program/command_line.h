// The command line: which command it names, and what that is told.
#pragma once

namespace ringgrad::program {

// Runs the command and returns its exit code (exit_code.h). Throws UsageError, with a suggestion,
// on what there is not; and what the command throws.
int run_command_line(int argc, char** argv);

}  // namespace ringgrad::program
