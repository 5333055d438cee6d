// `monge divergence`: the Sinkhorn divergence of two point clouds, from files.
#pragma once
#include <CLI/App.hpp>

namespace monge::cli {

/// Adds the command to `app`; its callback leaves the exit code in `exit_code`.
void add_divergence_command(CLI::App& app, int& exit_code);

}  // namespace monge::cli
