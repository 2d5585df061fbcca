// Output that nobody reads: a pager that stands still, a stopped terminal, a reader that has gone.
#pragma once

namespace ringgrad::program {

// From now on the process's lines on stdout and stderr, where these are pipes or terminals, hold it
// up for ten seconds at most, or a quarter of the timeout for ranks. Then lines are dropped until
// the reader reads on, which is told how many. The other stream is told at once.
void go_on_unread();

}  // namespace ringgrad::program
