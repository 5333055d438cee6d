// Ctrl-C. While there is nothing to keep it ends the program; once a solve runs, the first asks it to stop and keeps
// what it has, and the second ends the program all the same.
#pragma once

namespace monge::cli {

/// From here on Ctrl-C ends the program at once, with one line and the exit code kInterrupted.
void leave_on_interrupt();
/// From here on the first Ctrl-C is only noted, and the next has its usual effect.
void note_interrupt();
/// Whether one was noted.
bool interrupted();

}  // namespace monge::cli
