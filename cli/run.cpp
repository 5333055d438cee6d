#include "run.hpp"

#include <cmath>
#include <cstdio>
#include <sstream>
#include <utility>

#include <fmt/format.h>

#include "array_file.hpp"
#include "exit_code.hpp"
#include "interrupt.hpp"
#include "npy.hpp"
#include "ranks.hpp"

namespace monge::cli {
namespace {

/// The result of `read` on the first rank. It goes to the other ranks as the contents of a .npy file.
template <class Read, class Parse>
auto read_on_first_rank(Read const& read, Parse const& parse) {
  if (is_first_rank()) {
    auto numbers = read();
    of_first_rank([&] {
      std::ostringstream out;
      write_npy(out, numbers);
      return out.str();
    });
    return numbers;
  }
  std::istringstream in(of_first_rank({}));
  return parse(in);
}

}  // namespace

DeviceChoice begin_run(Run& run, RunArguments const& arguments) {
  leave_on_interrupt();
  DeviceChoice device = choose_device(arguments.device, arguments.threads, arguments.rank_limit);
  run.arguments = arguments;
  run.device = device.info;
  return device;
}

Array read_input(Run& run, char const* field, std::string const& path) {
  run.files[field] = path;
  return read_on_first_rank([&] { return read_array(field, path); },
                            [&](std::istream& in) { return read_npy(in, path); });
}

IndexArray read_index_input(Run& run, char const* field, std::string const& path) {
  run.files[field] = path;
  return read_on_first_rank([&] { return read_index_array(field, path); },
                            [&](std::istream& in) { return read_index_npy(in, path); });
}

std::optional<Array> read_optional_input(Run& run, char const* field, std::string const& path) {
  return path.empty() ? std::nullopt : std::optional(read_input(run, field, path));
}

std::optional<Array> read_optional_costs(Run& run, char const* field, std::string const& path) {
  if (path.empty()) return std::nullopt;
  run.files[field] = path;
  std::optional<Array> mapped = map_matrix(field, path);
  return mapped ? std::move(mapped) : read_input(run, field, path);
}

std::string passes_text(Report const& report) {
  bool const one = report.iterations == 1;
  std::string const coarse =
      report.coarse_iterations > 0 ? fmt::format("{} sweeps of coarse clouds and ", report.coarse_iterations) : "";
  return fmt::format("{}{} {}", coarse, report.iterations,
                     report.newton_steps > 0 ? (one ? "pass" : "passes") : (one ? "sweep" : "sweeps"));
}

std::string value_text(double value) {
  return std::isnan(value) ? "not evaluated (certificate is false)" : fmt::format("{:.9g}", value);
}

void print_line(std::string_view label, std::string_view text) {
  fmt::print("{:<15} {}\n", label, text);
}

void print_result(RunArguments const& run, std::string const& json, std::function<void()> const& print_summary) {
  if (run.json) {
    fmt::print("{}", json);
  } else if (!run.quiet) {
    print_summary();
  }
}

int final_code(int code, std::string const& where) {
  if (!interrupted()) return code;
  fmt::print(stderr, "monge: interrupted{}; the results were written\n", where);
  return kInterrupted;
}

}  // namespace monge::cli
