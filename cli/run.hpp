// A run of a command: its arguments, its inputs and its summary.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include <monge/context.hpp>
#include <monge/report.hpp>
#include <nlohmann/json.hpp>

#include "array.hpp"
#include "device_choice.hpp"

namespace monge::cli {

/// The arguments about the device and the output of a command.
struct RunArguments {
  std::string device = "auto";
  int threads = 0;
  double rank_limit = kRankLimit;
  bool json = false, quiet = false;
};

/// The part of every command's report that is not a result of the library.
struct Run {
  RunArguments arguments;
  DeviceInfo device;             ///< The one that was chosen.
  nlohmann::ordered_json files;  ///< Field to path, for the inputs that were given.
  double read_seconds = 0;
};

/// Chooses the device, and notes it and the arguments. From here on Ctrl-C ends the program. Throws Error.
DeviceChoice begin_run(Run& run, RunArguments const& arguments);
// Each function notes the file of the input. Rank 0 reads the file and sends its numbers to the others. Throws Error.
Array read_input(Run& run, char const* field, std::string const& path);
IndexArray read_index_input(Run& run, char const* field, std::string const& path);
/// Empty if the path is empty.
std::optional<Array> read_optional_input(Run& run, char const* field, std::string const& path);
/// The same for costs, which stay in their file if they can: each rank then reads its own rows alone.
std::optional<Array> read_optional_costs(Run& run, char const* field, std::string const& path);

/// "1 sweep", "12 passes".
std::string passes_text(Report const& report);
/// A number of the certificate, as summaries print it.
std::string value_text(double value);
/// One line of a summary.
void print_line(std::string_view label, std::string_view text);

/// Prints the report, if it is wanted as JSON, or else calls print_summary(), unless the run is quiet.
void print_result(RunArguments const& run, std::string const& json, std::function<void()> const& print_summary);
/// The exit code of a command whose solve a noted Ctrl-C may have stopped: `code`, or kInterrupted with a line on
/// standard error. `where` says how far the solve was, as in " after 12 sweeps".
int final_code(int code, std::string const& where = "");

}  // namespace monge::cli
