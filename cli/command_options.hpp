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
template <class Value>
CLI::Option* add_option(CLI::App& command, char const* name, Value& value, char const* constraint,
                        char const* description, std::string const& standard) {
  // Of enums and booleans the constraint lists the values.
  static constexpr char const* kKind = std::is_same_v<Value, int>      ? "a whole number, "
                                       : std::is_same_v<Value, double> ? "a number, "
                                                                       : "";
  auto const store = [&value, name, constraint](std::string const& text) {
    if (!parse(text, value))
      throw CLI::ValidationError(fmt::format("{}: is '{}'; must be {}{}", name, text, kKind, constraint));
  };
  return command.add_option_function<std::string>(flag(name), store, fmt::format("{} ({})", description, constraint))
      ->type_name("VALUE")
      ->default_str(standard);
}
template <class Value>
CLI::Option* add_option(CLI::App& command, char const* name, Value& value, char const* constraint,
                        char const* description) {
  return add_option(command, name, value, constraint, description, option_text(value));
}

inline void add_run_options(CLI::App& command, RunArguments& run) {
  add_option(command, "threads", run.threads, ">= 0", "threads on the CPU; 0 is all cores");
  command.add_option("--device", run.device, "where to run: auto, cpu or cuda:0; auto takes a GPU if it can")
      ->type_name("VALUE")
      ->default_str("auto");
  command.add_flag("--json", run.json, "print the report as JSON instead of the summary");
  command.add_flag("--quiet", run.quiet, "print no summary and no progress");
}

}  // namespace monge::cli
