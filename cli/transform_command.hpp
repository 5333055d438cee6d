// `monge transform`: the hard c-transform of a potential, and its semi-dual value, from files.
#pragma once
#include <CLI/App.hpp>

namespace monge::cli {

/// Adds the command to `app`; its callback leaves the exit code in `exit_code`.
void add_transform_command(CLI::App& app, int& exit_code);

}  // namespace monge::cli
