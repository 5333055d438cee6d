// `monge project`: a batch of small matrices in a file to couplings with given sums.
#pragma once
#include <CLI/App.hpp>

namespace monge::cli {

/// Adds the command to `app`; its callback leaves the exit code in `exit_code`.
void add_project_command(CLI::App& app, int& exit_code);

}  // namespace monge::cli
