// Ctrl-C, and SIGTERM, which means the same here. Before a solve runs, Ctrl-C ends the program. Then the first one asks
// the solve to stop, and its results are kept; the second one ends the program.
#pragma once

namespace monge::cli {

/// From here on Ctrl-C ends the program at once, with one line and the exit code kInterrupted.
void leave_on_interrupt();
/// From here on the first Ctrl-C is only noted, and the next has its usual effect.
void note_interrupt();
/// Whether a Ctrl-C was noted.
bool interrupted();

}  // namespace monge::cli
