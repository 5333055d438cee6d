// The options that commands share, and the way from an option of the library's lists to one of the command line.
#pragma once
#include <string>
#include <type_traits>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include "option_text.hpp"
#include "run.hpp"

namespace monge::cli {

/// --name VALUE sets `value`. The help shows `standard` as its default; by itself, what `value` holds now.
template <class Constraint, class Value>
CLI::Option* add_option(CLI::App& command, Field<Constraint> const& field, Value& value, std::string const& standard) {
  static constexpr char const* kKind = std::is_same_v<Value, int>      ? "a whole number, "
                                       : std::is_same_v<Value, double> ? "a number, "
                                                                       : "";
  auto const store = [&value, field](std::string const& text) {
    if (!parse(text, value))
      throw CLI::ValidationError(
          fmt::format("{}: is '{}'; must be {}{}", field.name, text, kKind, field.constraint.text()));
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

inline void add_run_options(CLI::App& command, RunArguments& run) {
  add_option(command, Field{"threads", at_least(0), "threads on the CPU; 0 is all cores"}, run.threads);
  command.add_option("--device", run.device, "where to run: auto, cpu or cuda:0; auto takes a GPU if it can")
      ->type_name("VALUE")
      ->default_str("auto");
  command.add_flag("--json", run.json, "print the report as JSON instead of the summary");
  command.add_flag("--quiet", run.quiet, "print no summary and no progress");
}

}  // namespace monge::cli
