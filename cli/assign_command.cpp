#include "assign_command.hpp"

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
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

struct AssignArguments {
  std::string cost, out, rows, columns;
  bool maximize = false;
  RunArguments run;
};

/// The costs as float32 or float64: float16 has no arithmetic in the library.
void widen(Array& costs) {
  auto const* const halves = std::get_if<std::vector<Half>>(&costs.values);
  if (halves == nullptr) return;
  std::vector<float> values(halves->size());
  std::transform(halves->begin(), halves->end(), values.begin(),
                 [](Half half) { return static_cast<float>(to_double(half)); });
  costs.values = std::move(values);
}

/// The sum of the costs of the pairs of each problem.
std::vector<double> values_of(Array const& costs, IndexArray const& rows, IndexArray const& columns) {
  std::int64_t const problems = rows.shape[0], pairs = rows.shape[1];
  std::int64_t const n = costs.shape[costs.shape.size() - 2], m = costs.shape.back();
  std::vector<double> values(static_cast<std::size_t>(problems), 0.0);
  auto const add = [&](auto const& entries) {
    for (std::int64_t t = 0; t < problems; ++t) {
      for (std::int64_t k = t * pairs; k < (t + 1) * pairs; ++k) {
        std::int64_t const i = rows.values[static_cast<std::size_t>(k)];
        if (i < 0) continue;
        std::int64_t const entry = (t * n + i) * m + columns.values[static_cast<std::size_t>(k)];
        values[static_cast<std::size_t>(t)] += to_double(entries[static_cast<std::size_t>(entry)]);
      }
    }
  };
  std::visit(add, costs.values);
  return values;
}

IndexView sizes(char const* field, IndexArray const& array, std::int64_t problems) {
  if (array.shape.empty()) return {};
  if (array.shape.size() != 1 || array.shape[0] != problems)
    refuse("{}: has shape {}; must be {}, one size for each matrix", field, shape_text(array.shape), problems);
  return {array.values.data(), problems, 1, {}};
}

void print_summary(AssignRun const& run, DeviceChoice const& device, std::string const& written) {
  print_line("problem", fmt::format("{} matri{} of {} x {}", run.problems, run.problems == 1 ? "x" : "ces", run.rows,
                                    run.columns));
  print_line("device", device_text(device));
  print_line("status", run.status());
  if (run.infeasible + run.invalid > 0)
    print_line("", fmt::format("{} infeasible, {} invalid{}", run.infeasible, run.invalid,
                               run.problems == 1 ? "" : "; status.npy has them"));
  print_line("value", value_text(run.value));
  print_line("seconds", fmt::format("{:.3f} (read {:.3f}, assign {:.3f})", run.read_seconds + run.assign_seconds,
                                    run.read_seconds, run.assign_seconds));
  print_line("written", written);
}

int assign_file(AssignArguments const& arguments) {
  ResultFolder const folder(arguments.out);
  AssignRun run;
  DeviceChoice const device = begin_run(run, arguments.run);
  run.maximize = arguments.maximize;

  Stopwatch watch;
  Array costs = read_input(run, "cost", arguments.cost);
  widen(costs);
  bool const one = costs.shape.size() == 2;
  if (!one && costs.shape.size() != 3) refuse("cost: has shape {}; must be 2-D or 3-D", shape_text(costs.shape));
  run.problems = one ? 1 : costs.shape[0];
  run.rows = costs.shape[costs.shape.size() - 2];
  run.columns = costs.shape.back();
  constexpr std::int64_t kMost = std::numeric_limits<int>::max();
  if (run.rows > kMost || run.columns > kMost)
    refuse("cost: has shape {}; a matrix must be at most {} x {}", shape_text(costs.shape), kMost, kMost);
  auto const read_sizes = [&](char const* field, std::string const& path) {
    return path.empty() ? IndexArray() : read_index_input(run, field, path);
  };
  IndexArray const rows = read_sizes("rows", arguments.rows), columns = read_sizes("columns", arguments.columns);
  run.read_seconds = watch.lap();

  std::int64_t const pairs = std::min(run.rows, run.columns);
  IndexArray row_indices = zero_indices({run.problems, pairs}), column_indices = row_indices;
  IndexArray status = zero_indices({run.problems});
  BatchView const batch(costs.data(), costs.type(), run.problems, static_cast<int>(run.rows),
                        static_cast<int>(run.columns));
  linear_sum_assignment(
      device.context, batch, {indices(row_indices), indices(column_indices), indices(status)},
      {arguments.maximize, sizes("rows", rows, run.problems), sizes("columns", columns, run.problems)});
  run.assign_seconds = watch.lap();
  auto const count = [&](AssignmentStatus ended) {
    return std::count(status.values.begin(), status.values.end(), static_cast<std::int64_t>(ended));
  };
  run.infeasible = count(AssignmentStatus::infeasible);
  run.invalid = count(AssignmentStatus::invalid);
  std::vector<double> values = values_of(costs, row_indices, column_indices);
  for (double const value : values) run.value += value;

  note_interrupt();  // The result is complete; a half-written file must not stay behind.
  if (one) row_indices.shape = column_indices.shape = {pairs};
  std::vector<ResultFile> files{{"row_indices.npy", std::move(row_indices)},
                                {"column_indices.npy", std::move(column_indices)}};
  if (!one) {
    files.push_back({"status.npy", std::move(status)});
    files.push_back({"values.npy", Array{{run.problems}, std::move(values)}});
  }
  std::string const json = json_text(report_json(run));
  std::string const written = folder.fill(files, json, {"status.npy", "values.npy"});
  print_result(arguments.run, json, [&] { print_summary(run, device, written); });
  return interrupted() ? kInterrupted : run.infeasible + run.invalid == 0 ? kDone : kShort;
}

}  // namespace

void add_assign_command(CLI::App& app, int& exit_code) {
  CLI::App& command = *app.add_subcommand("assign", "Pair rows and columns of matrices at the least sum of costs");
  auto const arguments = std::make_shared<AssignArguments>();
  add_file(command, "cost", arguments->cost, "costs, n x m or B x n x m: .npy or .csv; inf forbids a pair")->required();
  add_out_folder(command, arguments->out,
                 "folder for the pairs, row_indices.npy and column_indices.npy, for report.json and, of a batch, for "
                 "status.npy (0 optimal, 1 infeasible, 2 invalid) and values.npy, the sums");
  command.add_flag("--maximize", arguments->maximize, "look for the largest sum; -inf forbids a pair");
  add_file(command, "--rows", arguments->rows, "of a batch: the first rows of each matrix that are used (B)");
  add_file(command, "--columns", arguments->columns, "of a batch: the first columns of each matrix that are used (B)");
  arguments->run.device = "cpu";  // A GPU is faster for batches alone, and takes no large matrix.
  add_run_options(command, arguments->run);
  command.callback([arguments, &exit_code] { exit_code = assign_file(*arguments); });
}

}  // namespace monge::cli
