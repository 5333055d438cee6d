// Options of the command line: those that commands share, and any option of a list of the library.
#pragma once
#include <limits>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <monge/error.hpp>

#include "option_text.hpp"
#include "run.hpp"
#include "spelling.hpp"

namespace monge::cli {

template <class... Args>
[[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) {
  throw Error(ErrorCode::invalid_argument, fmt::format(format, std::forward<Args>(args)...));
}

/// The kind of value that a text must spell, for messages: the allowed values follow.
template <class Value>
std::string kind_of(Value const&) {
  if constexpr (std::is_integral_v<Value> && !std::is_same_v<Value, bool>)
    return fmt::format("a whole number up to {}, ", std::numeric_limits<Value>::max());
  return std::is_floating_point_v<Value> ? "a number, " : "";
}
template <class Value>
std::string kind_of(std::optional<Value> const&) {
  return kind_of(Value());
}

/// --name VALUE sets `value`. The help shows `standard` as the default, or else the present `value`.
template <class Constraint, class Value>
CLI::Option* add_option(CLI::App& command, Field<Constraint> const& field, Value& value, std::string const& standard) {
  auto const store = [&value, field](std::string const& text) {
    if (!parse(text, value))
      throw CLI::ValidationError(
          fmt::format("{}: is '{}'{}", field.name, text, must_be(text, kind_of(value) + field.constraint.text())));
  };
  return command
      .add_option_function<std::string>(flag(field.name), store,
                                        fmt::format("{} ({})", field.description, field.constraint.text()))
      ->type_name("VALUE")
      ->default_str(standard);
}
template <class Constraint, class Value>
CLI::Option* add_option(CLI::App& command, Field<Constraint> const& field, Value& value) {
  return add_option(command, field, value, option_text(value));
}

/// Adds an option, whose name begins with dashes ("--a"), or an argument, whose name has none ("x"), for a file.
inline CLI::Option* add_file(CLI::App& command, std::string const& name, std::string& path,
                             std::string const& description) {
  return command.add_option(name, path, description)->type_name("FILE");
}
inline void add_out_folder(CLI::App& command, std::string& path, std::string const& description) {
  command.add_option("--out", path, description)->type_name("FOLDER")->required();
}

/// Rules of --eps and --eps-relative, which the command has: one of them, and no 0, which to the library is an eps that
/// is not given.
inline void add_eps_rules(CLI::App& command) {
  command.get_option("--eps")
      ->default_str("")
      ->excludes(command.get_option("--eps-relative"))
      ->each([](std::string const& text) {
        if (double eps; parse(text, eps) && eps == 0) refuse("eps: is 0; must be {}", kPositive.text());
      });
}

inline void add_run_options(CLI::App& command, RunArguments& run) {
  add_option(command, Field{"threads", at_least(0), "threads on the CPU; 0 is all cores"}, run.threads);
  command
      .add_option(
          "--device", run.device,
          "where to run: auto, cpu, cuda or cuda:0; auto takes a GPU if it can; cuda:0,1 and cuda:all take several")
      ->type_name("VALUE")
      ->default_str(run.device);
  add_option(command,
             Field{"rank_limit", Bounds{.least = 0, .most = 1e6, .most_open = false},
                   "seconds that several ranks wait for each other"},
             run.rank_limit);
  command.add_flag("--json", run.json, "print the report as JSON instead of the summary");
  command.add_flag("--quiet", run.quiet, "print no summary and no progress");
}

}  // namespace monge::cli
