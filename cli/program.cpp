#include "program.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <exception>
#include <iostream>
#include <new>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>
#include <monge/context.hpp>

#include "assign_command.hpp"
#include "divergence_command.hpp"
#include "exact_command.hpp"
#include "exit_code.hpp"
#include "gromov_command.hpp"
#include "info_command.hpp"
#include "project_command.hpp"
#include "ranks.hpp"
#include "regularized_command.hpp"
#include "solve_command.hpp"
#include "spelling.hpp"
#include "transform_command.hpp"

namespace monge::cli {
namespace {

int fail_with(std::string message) {
  std::replace(message.begin(), message.end(), '\n', ' ');
  print_error(message);
  return kFailed;
}

/// Throws std::system_error if something that was printed could not be written.
void flush_output() {
  std::cout.flush();
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0 || !std::cout)
    throw std::system_error(errno, std::generic_category(), "standard output: cannot be written");
}

/// "X: is no option of monge; see monge --help", with the name that may be meant.
std::string unknown(std::string_view name, char const* kind, std::string const& of,
                    std::vector<std::string> const& known, std::string_view dashes) {
  std::string const nearest = nearest_name(name.substr(dashes.size()), known);
  std::string const meant = nearest.empty() ? "; see" : fmt::format("; did you mean {}{}? See", dashes, nearest);
  return fmt::format("{}: is no {} of {}{} {} --help", name, kind, of, meant, of);
}

bool has_option(CLI::App const& command, std::string const& name) {
  return command.get_option_no_throw(name) != nullptr;
}

/// "--eps: is before the command; options come after it: monge solve --eps 0.1 x.npy", for an option of a command among
/// the options of monge itself. Empty if no command has it, or the chosen one has not.
std::string misplaced(CLI::App& app, std::string const& name, std::vector<std::string> arguments) {
  std::string const text = name + ": is before the command; options come after it: monge ";
  for (CLI::App const* const chosen : app.get_subcommands()) {
    if (!has_option(*chosen, name)) return {};
    auto const command = std::find(arguments.begin(), arguments.end(), chosen->get_name());
    std::rotate(arguments.begin(), command, command + 1);
    return text + fmt::format("{}", fmt::join(arguments, " "));
  }
  for (CLI::App const* const command : app.get_subcommands([](CLI::App*) { return true; }))
    if (has_option(*command, name)) return text + fmt::format("{} {}", command->get_name(), name);
  return {};
}

/// One line about wrong use. An unknown name comes first: an option that is missing may be the one that was meant.
std::string explain(CLI::App& app, CLI::ParseError const& error, std::vector<std::string> const& arguments) {
  std::string path = "monge";
  std::vector<CLI::App*> commands{&app};
  for (CLI::App* const chosen : app.get_subcommands()) {
    path += " " + chosen->get_name();
    commands.push_back(chosen);
  }
  for (CLI::App* const command : commands) {
    for (std::string const& extra : command->remaining()) {
      std::vector<std::string> known;
      if (extra.starts_with("--")) {
        for (CLI::Option const* const option : commands.back()->get_options())
          known.insert(known.end(), option->get_lnames().begin(), option->get_lnames().end());
        std::string const name = extra.substr(0, extra.find('='));
        std::string elsewhere = command == &app ? misplaced(app, name, arguments) : "";
        if (!elsewhere.empty()) return elsewhere;
        return unknown(name, "option", path, known, "--");
      }
      if (commands.size() == 1) {
        for (CLI::App const* const other : app.get_subcommands([](CLI::App*) { return true; }))
          known.push_back(other->get_name());
        return unknown(extra, "command", path, known, "") + fmt::format("; commands are {}", fmt::join(known, ", "));
      }
    }
  }
  return fmt::format("{}; see {} --help", error.what(), path);
}

}  // namespace

int run_program(int argc, char const* const* argv) {
  int exit_code = kDone;
  CLI::App app("Optimal transport.", "monge");
  std::string const exit_codes =
      "Exit codes: 0 converged, completed or optimal, 3 ended short of the tolerance, 2 error, 130 interrupted.";
  app.footer(exit_codes);  // Commands inherit it.
  app.set_version_flag("--version", "monge " + version());
  app.require_subcommand(1);
  add_solve_command(app, exit_code);
  add_exact_command(app, exit_code);
  add_gromov_command(app, exit_code);
  add_assign_command(app, exit_code);
  add_regularized_command(app, exit_code);
  add_divergence_command(app, exit_code);
  add_transform_command(app, exit_code);
  add_project_command(app, exit_code);
  add_info_command(app, exit_code);
  for (CLI::App* const with_example : {&app, app.get_subcommand("solve")})
    with_example->footer("Example: monge solve x.npy y.npy --out result/\n" + exit_codes);
  try {
    begin_ranks();
    std::vector<std::string> const arguments = spelled_arguments(argc, argv);
    try {
      std::vector<std::string> from_the_back(arguments.rbegin(), arguments.rend());  // The order that CLI11 needs.
      app.parse(std::move(from_the_back));
    } catch (CLI::Success const& request) {  // --help and --version
      app.exit(request);
    } catch (CLI::ParseError const& error) {
      return fail_with(explain(app, error, arguments));
    }
    flush_output();
    return end_ranks(exit_code);
  } catch (std::bad_alloc const&) {
    return fail_with("memory: ran out; the problem must fit into this machine's memory");
  } catch (std::exception const& error) {
    return fail_with(error.what());
  }
}

}  // namespace monge::cli
