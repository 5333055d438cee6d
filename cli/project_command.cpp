#include "project_command.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>
#include <monge/monge.hpp>

#include "array_file.hpp"
#include "device_choice.hpp"
#include "exit_code.hpp"
#include "option_text.hpp"

namespace monge::cli {
namespace {

/// Only what was given on the command line changes the preset.
struct Arguments {
  std::string logits, out, preset = "mhc_paper", device = "auto", order;
  int rows = 0, iterations = 0, threads = 0;
  double tolerance = -1, temperature = 0;
  bool quiet = false;
};

ProjectionOptions options_of(Arguments const& arguments) {
  ProjectionOptions options = projection_preset(arguments.preset);
  if (arguments.iterations != 0) options.iterations = arguments.iterations;
  if (arguments.tolerance >= 0) options.tolerance = arguments.tolerance;
  if (arguments.temperature != 0) options.temperature = arguments.temperature;
  if (arguments.order == "rows_first") {
    options.order = ProjectionOrder::rows_first;
  } else if (arguments.order == "columns_first") {
    options.order = ProjectionOrder::columns_first;
  } else if (!arguments.order.empty()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("order: is '{}'; must be rows_first or columns_first", arguments.order));
  }
  return options;
}

int project_file(Arguments const& arguments) {
  ProjectionOptions const options = options_of(arguments);
  Array const input = read_array("logits", arguments.logits);
  std::vector<float> logits;
  std::visit([&](auto const& values) { logits.assign(values.begin(), values.end()); }, input.values);
  int const columns = static_cast<int>(input.columns());
  int const rows = arguments.rows > 0 ? arguments.rows : columns;
  if (input.rows() % rows != 0)
    throw Error(ErrorCode::invalid_argument,
                fmt::format("logits: has {} rows; must be a multiple of the {} of a matrix", input.rows(), rows));
  std::int64_t const batch = input.rows() / rows;
  int const n = rows + options.dustbin, m = columns + options.dustbin;
  DeviceChoice const device = choose_device(arguments.device, arguments.threads);
  std::vector<float> out(static_cast<std::size_t>(batch * n * m));
  project(device.context, {logits.data(), batch, rows, columns}, {out.data(), batch, n, m}, options);

  double row_error = 0, column_error = 0;
  for (std::int64_t t = 0; t < batch; ++t) {
    float const* const matrix = out.data() + t * n * m;
    auto const worse = [](double& error, double sum, double target) {
      double const off = std::abs(sum / target - 1);
      error = off <= error ? error : off;  // NaN is worse than anything
    };
    for (int i = 0; i < n; ++i) {
      double sum = 0;
      for (int j = 0; j < m; ++j) sum += matrix[i * m + j];
      worse(row_error, sum, options.dustbin && i == n - 1 ? columns : 1.0);
    }
    for (int j = 0; j < m; ++j) {
      double sum = 0;
      for (int i = 0; i < n; ++i) sum += matrix[i * m + j];
      worse(column_error, sum, options.dustbin ? (j == m - 1 ? rows : 1.0) : static_cast<double>(rows) / columns);
    }
  }
  write_array(arguments.out, Array{{batch * n, m}, std::move(out)});
  if (!arguments.quiet) {
    fmt::print("{:<15} {} matrices of {} x {}, {}, {} iterations\n", "problem", batch, rows, columns, arguments.preset,
               options.iterations);
    fmt::print("{:<15} {}\n", "device", to_string(device.info.device));
    fmt::print("{:<15} {:.3g} (largest relative error of a sum)\n", "row error", row_error);
    fmt::print("{:<15} {:.3g}\n", "column error", column_error);
    fmt::print("{:<15} {}\n", "written", arguments.out);
  }
  double const first = options.order == ProjectionOrder::rows_first ? row_error : column_error;
  return options.tolerance > 0 && !(first <= options.tolerance + 1e-6) ? kShort : kDone;
}

}  // namespace

void add_project_command(CLI::App& app, int& exit_code) {
  CLI::App& command =
      *app.add_subcommand("project", "Project a batch of small matrices onto the doubly stochastic ones");
  auto const arguments = std::make_shared<Arguments>();
  command.add_option("logits", arguments->logits, "matrices one below the other, (B n) x m: .npy or .csv")
      ->type_name("FILE")
      ->required();
  command.add_option("--out", arguments->out, "the projections, stacked likewise: .npy")->type_name("FILE")->required();
  command.add_option("--rows", arguments->rows, "rows of a matrix; as many as columns if not given")
      ->type_name("VALUE");
  command.add_option("--preset", arguments->preset, fmt::format("{}", fmt::join(projection_preset_names(), ", ")))
      ->type_name("NAME")
      ->capture_default_str();
  command.add_option("--iterations", arguments->iterations, "instead of the preset's")->type_name("VALUE");
  command.add_option("--tolerance", arguments->tolerance, "instead of the preset's")->type_name("VALUE");
  command.add_option("--temperature", arguments->temperature, "instead of the preset's")->type_name("VALUE");
  command.add_option("--order", arguments->order, "rows_first or columns_first")->type_name("VALUE");
  command.add_option("--device", arguments->device, "auto, cpu or cuda:0")->type_name("VALUE")->capture_default_str();
  command.add_option("--threads", arguments->threads, "threads on the CPU; 0 is all cores")->type_name("VALUE");
  command.add_flag("--quiet", arguments->quiet, "print nothing");
  command.callback([arguments, &exit_code] { exit_code = project_file(*arguments); });
}

}  // namespace monge::cli
