// `monge assign`: linear sum assignments of the matrices in a file.
#pragma once
#include <CLI/App.hpp>

namespace monge::cli {

/// Adds the command to `app`; its callback leaves the exit code in `exit_code`.
void add_assign_command(CLI::App& app, int& exit_code);

}  // namespace monge::cli
