// Ctrl-C: the first asks the running solve to stop, the second ends the program at once.
#pragma once

namespace monge::cli {

void catch_interrupt();
bool interrupted();

}  // namespace monge::cli
