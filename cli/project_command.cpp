#include "project_command.hpp"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>
#include <monge/monge.hpp>

#include "array_file.hpp"
#include "command_options.hpp"
#include "device_choice.hpp"
#include "exit_code.hpp"
#include "interrupt.hpp"
#include "report_json.hpp"
#include "result_folder.hpp"
#include "stopwatch.hpp"

namespace monge::cli {
namespace {

namespace fs = std::filesystem;

constexpr ProjectionPreset kStandardPreset = ProjectionPreset::mhc_paper;
constexpr double kWideSpread = 80;  // Spread of a matrix's logits: exp(-80) is about the least float32.

struct ProjectArguments {
  std::string logits, out, row_marginal, column_marginal;
  std::string preset{name(kStandardPreset)};
  int rows = 0;
  ProjectionOptions options = projection_preset(kStandardPreset);
  RunArguments run;
};

/// An array as a batch of matrices: its last two dimensions or, if it is 2-D, stacks of `rows_given` rows (0: all).
struct Batch {
  std::int64_t size;
  int rows, columns;
};

Batch batch_of(Array const& logits, int rows_given) {
  std::vector<std::int64_t> const& shape = logits.shape;
  if (shape.size() == 1) refuse("logits: has shape {}; must be 2-D or 3-D", shape_text(shape));
  std::int64_t const lines = shape[shape.size() - 2], columns = shape.back();
  if (columns > kLargestProjection || (lines > kLargestProjection && rows_given == 0)) {
    bool const stack = shape.size() == 2 && columns <= kLargestProjection;
    refuse("logits: has shape {}; a matrix must be at most {} x {}{}", shape_text(shape), kLargestProjection,
           kLargestProjection, stack ? "; of a stack of them, rows says how many one has" : "");
  }
  if (shape.size() == 3) {
    if (rows_given != 0) refuse("rows: is {}; is for 2-D logits, these have shape {}", rows_given, shape_text(shape));
    return {shape[0], static_cast<int>(lines), static_cast<int>(columns)};
  }
  if (rows_given == 0) return {1, static_cast<int>(lines), static_cast<int>(columns)};
  if (rows_given < 0 || lines % rows_given != 0)
    refuse("rows: is {}; must be positive and divide the {} rows of the logits", rows_given, lines);
  return {lines / rows_given, rows_given, static_cast<int>(columns)};
}

/// Throws Error for a NaN in a file, which the library would pass on to one matrix. -inf masks an entry.
void check_values(Array const& logits, ProjectionStart start) {
  bool const positive = start == ProjectionStart::positive;
  constexpr double largest = std::numeric_limits<float>::max();
  auto const check = [&](auto const& values) {
    for (std::size_t e = 0; e < values.size(); ++e) {
      double const x = to_double(values[e]);
      if (std::abs(x) <= largest ? !positive || x >= 0 : !positive && std::isinf(x) && x < 0) continue;
      std::vector<std::int64_t> index;
      std::int64_t rest = static_cast<std::int64_t>(e);
      for (std::size_t d = logits.shape.size(); d-- > 0; rest /= logits.shape[d])
        index.insert(index.begin(), rest % logits.shape[d]);
      refuse("logits: entry [{}] is {}; must be {}", fmt::join(index, ", "), x,
             positive ? "a float32 number >= 0 with start positive" : "a float32 number, or -inf");
    }
  };
  std::visit(check, logits.values);
}

/// The largest difference of two finite logits of a matrix.
double largest_spread(Array const& logits, Batch const& batch) {
  auto const of = [&](auto const& values) {
    double spread = 0;
    auto at = values.begin();
    for (std::int64_t t = 0; t < batch.size; ++t) {
      double least = std::numeric_limits<double>::infinity(), largest = -least;
      for (int e = 0; e < batch.rows * batch.columns; ++e) {
        double const x = to_double(*at++);
        if (!std::isfinite(x)) continue;
        least = std::min(least, x);
        largest = std::max(largest, x);
      }
      spread = std::max(spread, largest - least);
    }
    return spread;
  };
  return std::visit(of, logits.values);
}

/// The largest relative error of the row sums and of the column sums. Where a sum should be 0, it is measured against
/// the mean of its side. NaN if any sum is NaN.
std::pair<double, double> sum_errors(std::vector<float> const& matrices, std::int64_t batch,
                                     ProjectionMarginals const& marginals) {
  std::size_t const n = marginals.rows.size(), m = marginals.columns.size();
  double mass = 0;
  for (float const a : marginals.rows) mass += a;
  std::vector<double> column_sums(m);
  auto const worst = [](double error, double sum, double wanted, double mean) {
    double const off = std::abs(sum - wanted) / (wanted > 0 ? wanted : mean);
    return off <= error ? error : off;
  };
  double row_error = 0, column_error = 0;
  float const* at = matrices.data();
  for (std::int64_t t = 0; t < batch && !std::isnan(row_error + column_error); ++t) {
    std::fill(column_sums.begin(), column_sums.end(), 0.0);
    for (std::size_t i = 0; i < n; ++i) {
      double sum = 0;
      for (std::size_t j = 0; j < m; ++j, ++at) {
        sum += *at;
        column_sums[j] += *at;
      }
      row_error = worst(row_error, sum, marginals.rows[i], mass / static_cast<double>(n));
    }
    for (std::size_t j = 0; j < m; ++j)
      column_error = worst(column_error, column_sums[j], marginals.columns[j], mass / static_cast<double>(m));
  }
  return {row_error, column_error};
}

void print_summary(ProjectRun const& run, ProjectionOptions const& options, DeviceChoice const& device,
                   std::string const& out) {
  print_line("problem", fmt::format("{} matri{} of {} x {}, preset {}", run.batch, run.batch == 1 ? "x" : "ces",
                                    run.rows, run.columns, run.preset));
  print_line("device", device_text(device));
  print_line("status", fmt::format("{}, {}{} iterations", name(run.status), options.tolerance > 0 ? "at most " : "",
                                   options.iterations));
  print_line("row error", fmt::format("{:.3g} (largest relative error of a sum)", run.row_error));
  print_line("column error", fmt::format("{:.3g}", run.column_error));
  if (!run.message.empty()) print_line("note", run.message);
  print_line("milliseconds", fmt::format("{:.2f} (read {:.2f}, project {:.2f}, check {:.2f})",
                                         1e3 * (run.read_seconds + run.project_seconds + run.check_seconds),
                                         1e3 * run.read_seconds, 1e3 * run.project_seconds, 1e3 * run.check_seconds));
  print_line("written", out);
}

int project_file(ProjectArguments arguments) {
  fs::path const out = arguments.out;
  if (out.extension() != ".npy") refuse("out: {}: must be a file with the extension .npy", out.string());
  if (fs::is_directory(out)) refuse("out: {}: is a folder; must be a file", out.string());
  ResultFolder const folder(out.has_parent_path() ? out.parent_path() : ".");
  ProjectRun run;
  DeviceChoice const device = begin_run(run, arguments.run);
  run.preset = arguments.preset;

  Stopwatch watch;
  Array logits = read_input(run, "logits", arguments.logits);
  auto const row_marginal = read_optional_input(run, "row_marginal", arguments.row_marginal);
  auto const column_marginal = read_optional_input(run, "column_marginal", arguments.column_marginal);
  ProjectionOptions& options = arguments.options;
  options.row_marginal = vector("row_marginal", row_marginal);
  options.column_marginal = vector("column_marginal", column_marginal);
  Batch const batch = batch_of(logits, arguments.rows);
  ProjectionMarginals const marginals = projection_marginals(device.context, batch.rows, batch.columns, options);
  check_values(logits, options.start);
  if (!options.log_domain && options.epsilon == 0 && options.start != ProjectionStart::positive) {
    double const spread = largest_spread(logits, batch) / options.temperature;
    if (spread > kWideSpread)
      run.message = fmt::format(
          "logits of one matrix are up to {:.3g} apart; beyond {} float32 loses entries of their "
          "exponential, and log_domain keeps them",
          spread, kWideSpread);
  }
  if (auto const* const values = std::get_if<std::vector<double>>(&logits.values))
    logits.values = std::vector<float>(values->begin(), values->end());
  run.batch = batch.size;
  run.rows = batch.rows;
  run.columns = batch.columns;
  run.read_seconds = watch.lap();

  int const n = static_cast<int>(marginals.rows.size()), m = static_cast<int>(marginals.columns.size());
  std::vector<float> projections(static_cast<std::size_t>(batch.size) * marginals.rows.size() *
                                 marginals.columns.size());
  BatchView const input(logits.data(), logits.type(), batch.size, batch.rows, batch.columns);
  project(device.context, input, {projections.data(), batch.size, n, m}, options);
  run.project_seconds = watch.lap();
  std::tie(run.row_error, run.column_error) = sum_errors(projections, batch.size, marginals);
  run.check_seconds = watch.lap();

  if (options.tolerance > 0) {
    // A matrix stops by the sums of its first side, which it adds in float32, one term after another.
    bool const rows_first = options.order == ProjectionOrder::rows_first;
    double const rounding = ((rows_first ? m : n) + 8) * (0.5 * std::numeric_limits<float>::epsilon());
    bool const within = (rows_first ? run.row_error : run.column_error) <= options.tolerance + rounding;
    run.status = within ? Status::converged : Status::iteration_limit;
  }
  note_interrupt();  // The result is complete; a half-written file must not stay behind.
  std::vector<std::int64_t> shape{batch.size, n, m};
  if (logits.shape.size() == 2) shape = {batch.size * n, m};
  folder.fill([&](fs::path const& into) { write_array(into / out.filename(), {shape, std::move(projections)}); });
  print_result(arguments.run, json_text(report_json(run, options)),
               [&] { print_summary(run, options, device, arguments.out); });
  return interrupted() ? kInterrupted : run.status == Status::iteration_limit ? kShort : kDone;
}

}  // namespace

void add_project_command(CLI::App& app, int& exit_code) {
  CLI::App& command =
      *app.add_subcommand("project", "Project a batch of small matrices onto the doubly stochastic ones");
  auto const arguments = std::make_shared<ProjectArguments>();
  add_file(command, "logits", arguments->logits, "B x n x m, or one n x m matrix: .npy (float16, 32 or 64) or .csv")
      ->required();
  add_file(command, "--out", arguments->out, "the projections, of the same shape, float32: .npy")->required();
  command.add_option("--rows", arguments->rows, "2-D logits are matrices of so many rows, one below the other")
      ->type_name("VALUE");
  // Options take effect in the order in which they are added here: first the preset, then the options that change it.
  auto const take_preset = [arguments](std::string const& text) {
    arguments->options = projection_preset(text);
    arguments->preset = text;
  };
  command
      .add_option_function<std::string>("--preset", take_preset,
                                        fmt::format("the convention ({})", names_text<ProjectionPreset>()))
      ->type_name("NAME")
      ->default_str(arguments->preset);
  visit_forward_options(arguments->options, [&](auto const& field, auto& value) {
    add_option(command, field, value, "")->group("Options that replace those of the preset");
  });
  add_file(command, "--row-marginal", arguments->row_marginal, "sums of the rows (n), instead of row_sum");
  add_file(command, "--column-marginal", arguments->column_marginal, "sums of the columns (m); equal if not given");
  add_run_options(command, arguments->run);
  command.callback([arguments, &exit_code, &command] {
    ProjectionOptions const& options = arguments->options;
    if (command.count("--dustbin-score") > 0 && !options.dustbin)
      refuse("dustbin_score: is {}; is for a dustbin, set --dustbin true", options.dustbin_score);
    if (command.count("--row-sum") > 0 && !arguments->row_marginal.empty())
      refuse("row_sum: is {}; must not be given with row_marginal, which says every sum", options.row_sum);
    exit_code = project_file(std::move(*arguments));
  });
}

}  // namespace monge::cli
