// Ctrl-C and SIGTERM ask for a clean end: the step in progress is finished and saved. A second one, half a second later
// or more, ends at once.
#pragma once

namespace ringgrad::program {

void catch_interrupts();
int interrupted();  // the signal that asked for the end, or 0

}  // namespace ringgrad::program
