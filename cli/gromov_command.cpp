#include "gromov_command.hpp"

#include <iterator>
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
#include "plan_entries.hpp"
#include "progress_line.hpp"
#include "report_json.hpp"
#include "result_folder.hpp"
#include "stopwatch.hpp"

namespace monge::cli {
namespace {

struct GromovArguments {
  std::string x, y, s, t, a, b, cross_moment, out;
  GromovOptions options;
  RunArguments run;
};

/// The average target of each source.
Array average_targets(Gromov const& result, Array const& y, std::int64_t n) {
  std::int64_t const q = y.columns();
  std::vector<double> map(static_cast<std::size_t>(n * q), 0.0);
  MatrixView const targets = points("y", y);
  if (result.plan) {
    result.plan->barycentric_projection(targets, MutableMatrixView(map.data(), n, q));
    return {{n, q}, std::move(map)};
  }
  ExactPlan const& plan = *result.exact;
  auto const at = [&](std::int64_t j, std::int64_t k) {
    std::int64_t const index = j * targets.row_stride() + k;
    return targets.type() == DataType::float32 ? static_cast<double>(targets.as<float>()[index])
                                               : targets.as<double>()[index];
  };
  for (std::int64_t i = 0; i < n; ++i) {
    double mass = 0;
    auto const first = static_cast<std::size_t>(plan.row_begin[static_cast<std::size_t>(i)]);
    auto const end = static_cast<std::size_t>(plan.row_begin[static_cast<std::size_t>(i) + 1]);
    for (std::size_t e = first; e < end; ++e) mass += plan.values[e];
    for (std::size_t e = first; e < end; ++e)
      for (std::int64_t k = 0; k < q; ++k)
        map[static_cast<std::size_t>(i * q + k)] += plan.values[e] / mass * at(plan.column_indices[e], k);
  }
  return {{n, q}, std::move(map)};
}

std::vector<ResultFile> result_files(GromovRun const& run, Gromov&& result, Array const& y) {
  std::int64_t const n = run.n, m = run.m;
  std::vector<ResultFile> files;
  auto const add = [&](char const* name, std::int64_t rows, std::vector<double> values) {
    std::int64_t const columns = std::ssize(values) / rows;
    files.push_back({name, Array{{rows, columns}, std::move(values)}});
  };
  files.push_back({"map.npy", average_targets(result, y, n)});
  add("cross_moment.npy", run.p, std::move(result.cross_moment));
  add("u.npy", n, std::move(result.u));
  add("v.npy", m, std::move(result.v));
  if (result.plan) {
    files.push_back({"f.npy", Array{{n}, result.plan->f()}});
    files.push_back({"g.npy", Array{{m}, result.plan->g()}});
    return files;
  }
  for (ResultFile& file : exact_plan_files(std::move(*result.exact))) files.push_back(std::move(file));
  return files;
}

void print_summary(GromovRun const& run, GromovReport const& report, DeviceChoice const& device,
                   std::string const& written) {
  print_line("problem", fmt::format("{} points of {} dimensions, {} of {}{}", run.n, run.p, run.m, run.q,
                                    run.r > 0 ? fmt::format("; {} features", run.r) : ""));
  print_line("device", device_text(device));
  print_line("status", fmt::format("{} after {} steps from {} {}", name(report.status), report.iterations,
                                   report.starts.size(), report.starts.size() == 1 ? "start" : "starts"));
  if (report.status != Status::converged) print_line("", report.message);
  print_line("value", fmt::format("{:.9g}", report.value));
  if (run.r > 0) print_line("", fmt::format("{:.9g} within, {:.9g} of features", report.quadratic, report.linear));
  print_line("lower bound", fmt::format("{:.9g}, of all plans without entropy", report.lower_bound));
  if (report.problems > 0)
    print_line("", fmt::format("a gap of {:.2g} after {} exact problems", report.gap, report.problems));
  print_line("stationarity", fmt::format("{:.3g}", report.stationarity));
  print_line("marginal error", fmt::format("{:.3g}", report.marginal_error));
  for (GromovStart const& start : report.starts)
    print_line(&start == &report.starts.front() ? "starts" : "",
               fmt::format("{:.9g} from {}{}", start.value, name(start.kind),
                           start.finished ? "" : fmt::format(", given up after {} steps", start.iterations)));
  print_line("seconds", fmt::format("{:.3f} (bounds {:.3f}, steps {:.3f}, branch and bound {:.3f})",
                                    run.read_seconds + report.seconds.total, report.seconds.bounds,
                                    report.seconds.steps, report.seconds.partition));
  print_line("written", written);
}

int solve_gromov_files(GromovArguments arguments) {
  for (auto const& [path, field] : {std::pair{&arguments.x, "x"}, {&arguments.y, "y"}})
    if (path->empty()) refuse("{}: is missing; must be a file of points", field);
  ResultFolder const folder(arguments.out);
  GromovRun run;
  DeviceChoice const device = begin_run(run, arguments.run);

  ProgressLine progress(!arguments.run.quiet);
  progress.show("reading");
  Stopwatch watch;
  Array const x = read_input(run, "x", arguments.x), y = read_input(run, "y", arguments.y);
  auto const s = read_optional_input(run, "s", arguments.s), t = read_optional_input(run, "t", arguments.t);
  auto const a = read_optional_input(run, "a", arguments.a), b = read_optional_input(run, "b", arguments.b);
  auto const start = read_optional_input(run, "cross_moment", arguments.cross_moment);
  GromovClouds clouds{points("x", x), points("y", y)};
  if (s) clouds.s = points("s", *s);
  if (t) clouds.t = points("t", *t);
  GromovOptions& options = arguments.options;
  if (start) options.cross_moment = points("cross_moment", *start);
  run.n = x.rows();
  run.m = y.rows();
  run.p = x.columns();
  run.q = y.columns();
  run.r = s ? s->columns() : 0;
  run.read_seconds = watch.lap();

  options.progress = shown_by(progress);
  note_interrupt();
  progress.show("solving");
  Gromov result = solve_gromov(device.context, clouds, vector("a", a), vector("b", b), options);
  GromovReport const report = result.report;
  progress.erase();

  std::string const json = json_text(report_json(run, options, report));
  std::string const written = folder.fill(result_files(run, std::move(result), y), json);
  print_result(arguments.run, json, [&] { print_summary(run, report, device, written); });
  return final_code(report.status == Status::converged ? kDone : kShort,
                    fmt::format(" after {} steps", report.iterations));
}

}  // namespace

void add_gromov_command(CLI::App& app, int& exit_code) {
  CLI::App& command =
      *app.add_subcommand("gromov", "Clouds of different spaces, matched by their squared distances within");
  auto const arguments = std::make_shared<GromovArguments>();
  add_file(command, "x", arguments->x, "points, n x p: .npy (float32 or float64) or .csv");
  add_file(command, "y", arguments->y, "points of another space, m x q");
  add_out_folder(
      command, arguments->out,
      "folder for map.npy, the average y for each x, for the plan and its costs -<u_i, v_j>, u.npy, v.npy, f.npy and "
      "g.npy, without eps plan_indptr.npy, plan_indices.npy and plan_data.npy, for cross_moment.npy and report.json");
  add_file(command, "--s", arguments->s, "features of the points x, n x r, in one space with t: the problem is fused");
  add_file(command, "--t", arguments->t, "features of the points y, m x r");
  add_file(command, "--a", arguments->a, "weights of x (n); uniform if not given");
  add_file(command, "--b", arguments->b, "weights of y (m); uniform if not given");
  add_file(command, "--cross-moment", arguments->cross_moment, "start from that of an earlier result (p x q)");
  visit_gromov_options(arguments->options, [&](auto const& field, auto& value) { add_option(command, field, value); });
  add_run_options(command, arguments->run);
  command.callback([arguments, &exit_code] { exit_code = solve_gromov_files(std::move(*arguments)); });
}

}  // namespace monge::cli
