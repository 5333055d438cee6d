// The monge program: arguments in, an exit code and one line for every error out.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <iostream>
#include <new>
#include <string>
#include <system_error>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <monge/context.hpp>

#include "assign_command.hpp"
#include "divergence_command.hpp"
#include "exact_command.hpp"
#include "exit_code.hpp"
#include "info_command.hpp"
#include "project_command.hpp"
#include "ranks.hpp"
#include "regularized_command.hpp"
#include "solve_command.hpp"
#include "transform_command.hpp"

namespace {

int fail(std::string message) {
  std::replace(message.begin(), message.end(), '\n', ' ');
  monge::cli::print_error(message);
  return monge::cli::kFailed;
}

/// Throws std::system_error if something that was printed could not be written.
void flush_output() {
  std::cout.flush();
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0 || !std::cout)
    throw std::system_error(errno, std::generic_category(), "standard output: cannot be written");
}

}  // namespace

int main(int argc, char** argv) {
  int exit_code = monge::cli::kDone;
  CLI::App app("Optimal transport.", "monge");
  app.footer(
      "Exit codes: 0 converged, completed or optimal, 3 ended short of the tolerance, 2 error, 130 interrupted.");
  app.set_version_flag("--version", "monge " + monge::version());
  app.require_subcommand(1);
  monge::cli::add_solve_command(app, exit_code);
  monge::cli::add_exact_command(app, exit_code);
  monge::cli::add_assign_command(app, exit_code);
  monge::cli::add_regularized_command(app, exit_code);
  monge::cli::add_divergence_command(app, exit_code);
  monge::cli::add_transform_command(app, exit_code);
  monge::cli::add_project_command(app, exit_code);
  monge::cli::add_info_command(app, exit_code);
  try {
    monge::cli::begin_ranks();
    try {
      app.parse(argc, argv);
    } catch (CLI::Success const& request) {  // --help and --version
      app.exit(request);
    }
    flush_output();
    return monge::cli::end_ranks(exit_code);
  } catch (CLI::ParseError const& error) {
    std::string command = "monge";
    for (CLI::App const* const chosen : app.get_subcommands()) command += " " + chosen->get_name();
    return fail(fmt::format("{}; see {} --help", error.what(), command));
  } catch (std::bad_alloc const&) {
    return fail("memory: ran out; the problem must fit into this machine's memory");
  } catch (std::exception const& error) {
    return fail(error.what());
  }
}
