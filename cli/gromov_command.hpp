// `monge gromov`: a plan between clouds of different spaces, from files.
#pragma once
#include <CLI/App.hpp>

namespace monge::cli {

/// Adds the command to `app`; its callback leaves the exit code in `exit_code`.
void add_gromov_command(CLI::App& app, int& exit_code);

}  // namespace monge::cli
