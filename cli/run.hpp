// A run of a command: what it was asked for, what it reads, and what it tells.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include <monge/context.hpp>
#include <monge/report.hpp>
#include <nlohmann/json.hpp>

#include "array.hpp"
#include "npy.hpp"

namespace monge::cli {

/// How and where a command runs, as the command line says it.
struct RunArguments {
  std::string device = "auto";
  int threads = 0;
  bool json = false, quiet = false;
};

/// What every command knows of its run beyond the library's results.
struct Run {
  RunArguments arguments;
  DeviceInfo device;             ///< The one that was chosen.
  nlohmann::ordered_json files;  ///< Field to path, for the inputs that were given.
  double read_seconds = 0;
};

/// Reads an input and notes its file. Throws Error.
Array read_input(Run& run, char const* field, std::string const& path, Order order = Order::rows);
IndexArray read_index_input(Run& run, char const* field, std::string const& path);
/// None where there is no path.
std::optional<Array> read_optional_input(Run& run, char const* field, std::string const& path,
                                         Order order = Order::rows);

/// "1 sweep", "12 passes".
std::string passes_text(Report const& report);
/// A number that the certificate finds, as summaries say it.
std::string value_text(double value);
/// One line of a summary.
void print_line(std::string_view label, std::string_view text);

}  // namespace monge::cli
