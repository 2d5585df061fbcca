// Handles output without a reader: a pager that stands still, a stopped terminal, a reader that has
// gone.
#pragma once

namespace ringgrad::program {

// Limits how long output to a pipe or terminal may block the process: ten seconds, or a quarter of
// the timeout for ranks. After that, lines on stdout and stderr are dropped until the reader reads
// again; it is told how many. The other stream is told at once.
void go_on_unread();

}  // namespace ringgrad::program
