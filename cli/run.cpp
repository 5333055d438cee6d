#include "run.hpp"

#include <cmath>

#include <fmt/format.h>

#include "array_file.hpp"
#include "interrupt.hpp"

namespace monge::cli {

DeviceChoice begin_run(Run& run, RunArguments const& arguments) {
  leave_on_interrupt();
  DeviceChoice const device = choose_device(arguments.device, arguments.threads, arguments.rank_limit);
  run.arguments = arguments;
  run.device = device.info;
  return device;
}

Array read_input(Run& run, char const* field, std::string const& path, Order order) {
  run.files[field] = path;
  return read_array(field, path, order);
}

IndexArray read_index_input(Run& run, char const* field, std::string const& path) {
  run.files[field] = path;
  return read_index_array(field, path);
}

std::optional<Array> read_optional_input(Run& run, char const* field, std::string const& path, Order order) {
  return path.empty() ? std::nullopt : std::optional(read_input(run, field, path, order));
}

std::string passes_text(Report const& report) {
  bool const one = report.iterations == 1;
  return fmt::format("{} {}", report.iterations,
                     report.newton_steps > 0 ? (one ? "pass" : "passes") : (one ? "sweep" : "sweeps"));
}

std::string value_text(double value) {
  return std::isnan(value) ? "not evaluated (certificate is false)" : fmt::format("{:.9g}", value);
}

void print_line(std::string_view label, std::string_view text) {
  fmt::print("{:<15} {}\n", label, text);
}

}  // namespace monge::cli
