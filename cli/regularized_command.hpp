// `monge regularized`: transport with a regulariser that keeps the plan sparse or grouped.
#pragma once
#include <CLI/App.hpp>

namespace monge::cli {

void add_regularized_command(CLI::App& app, int& exit_code);

}  // namespace monge::cli
