#include "gromov_command.hpp"

#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
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

constexpr Field kLoss{"loss", OneOf<GromovLoss>(), "loss of two entries of the matrices"};

struct GromovArguments {
  std::string x, y, source, target, cost, s, t, a, b, cross_moment, values, out;
  std::optional<GromovLoss> loss;
  GromovOptions options;
  RunArguments run;
};

/// The average of the targets' values for each source.
Array average_targets(Gromov const& result, Array const& values, std::int64_t n) {
  std::int64_t const q = values.columns();
  std::vector<double> map(static_cast<std::size_t>(n * q), 0.0);
  MatrixView const targets = points("values", values);
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

std::vector<ResultFile> result_files(GromovRun const& run, Gromov&& result, Array const* values) {
  std::int64_t const n = run.n, m = run.m;
  std::vector<ResultFile> files;
  auto const add = [&](char const* name, std::int64_t rows, std::vector<double> values) {
    std::int64_t const columns = std::ssize(values) / rows;
    files.push_back({name, Array{{rows, columns}, std::move(values)}});
  };
  if (values) files.push_back({"map.npy", average_targets(result, *values, n)});
  bool const balanced = result.report.marginals == GromovMarginals::balanced;
  std::int64_t const rows = run.loss ? n : balanced ? run.p : 3 + run.p + run.q;
  add("cross_moment.npy", rows, std::move(result.cross_moment));
  add("u.npy", n, std::move(result.u));
  if (!run.loss) add("v.npy", m, std::move(result.v));
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
  std::string const features = run.r > 0 ? fmt::format("; {} features", run.r) : "";
  print_line("problem",
             run.loss ? fmt::format("matrices of {0} x {0} and {1} x {1}, loss {2}{3}", run.n, run.m, name(*run.loss),
                                    features)
                      : fmt::format("{} points of {} dimensions, {} of {}{}", run.n, run.p, run.m, run.q, features));
  print_line("device", device_text(device));
  print_line("status", fmt::format("{} after {} steps from {} {}", name(report.status), report.iterations,
                                   report.starts.size(), report.starts.size() == 1 ? "start" : "starts"));
  if (report.status != Status::converged) print_line("", report.message);
  print_line("value", fmt::format("{:.9g}", report.value));
  if (run.fused)
    print_line("", fmt::format("{:.9g} within, {:.9g} of {}", report.quadratic, report.linear,
                               run.r > 0 ? "features" : "the cost"));
  print_line("lower bound",
             fmt::format("{:.9g} for all plans without entropy, where this one has {:.9g}", report.lower_bound,
                         report.alpha * report.quadratic + (1 - report.alpha) * report.linear));
  if (report.problems > 0)
    print_line("", fmt::format("a gap of {:.2g} after {} exact problems", report.gap, report.problems));
  if (report.marginals != GromovMarginals::balanced)
    print_line("marginals", fmt::format("{}, of mass {:.9g}", name(report.marginals), report.mass));
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

/// Throws unless the files are those of points, or those of matrices.
void check_files(GromovArguments const& given) {
  bool const matrices = !given.source.empty() || !given.target.empty();
  for (auto const& [field, path, instead] : {std::tuple{"x", &given.x, "source"}, {"y", &given.y, "target"}}) {
    if (!matrices && path->empty())
      refuse("{}: is missing; must be a file of points, or a matrix in their place: {}", field, flag(instead));
    if (matrices && !path->empty()) refuse("{}: is given beside matrices; must be left out", field);
  }
  for (auto const& [field, path] : {std::pair{"source", &given.source}, {"target", &given.target}})
    if (matrices && path->empty()) refuse("{}: is missing; must be a file of a matrix", field);
  if (matrices) return;
  for (auto const& [field, is_given] :
       {std::pair{"cost", !given.cost.empty()}, {"values", !given.values.empty()}, {"loss", given.loss.has_value()}})
    if (is_given) refuse("{}: is given beside points; is for matrices, source and target", field);
}

int solve_gromov_files(GromovArguments arguments) {
  check_files(arguments);
  ResultFolder const folder(arguments.out);
  GromovRun run;
  DeviceChoice const device = begin_run(run, arguments.run);

  ProgressLine progress(!arguments.run.quiet);
  progress.show("reading");
  Stopwatch watch;
  auto const read = [&](char const* field, std::string const& path) { return read_optional_input(run, field, path); };
  auto const x = read("x", arguments.x), y = read("y", arguments.y), source = read("source", arguments.source),
             target = read("target", arguments.target), cost = read("cost", arguments.cost), s = read("s", arguments.s),
             t = read("t", arguments.t), a = read("a", arguments.a), b = read("b", arguments.b),
             start = read("cross_moment", arguments.cross_moment), values = read("values", arguments.values);
  auto const view = [](char const* field, std::optional<Array> const& array) {
    return array ? points(field, *array) : MatrixView();
  };
  GromovClouds const clouds{view("x", x), view("y", y), view("s", s), view("t", t)};
  GromovMatrices const matrices{view("source", source),
                                view("target", target),
                                view("cost", cost),
                                clouds.s,
                                clouds.t,
                                arguments.loss.value_or(GromovLoss::square)};
  GromovOptions& options = arguments.options;
  options.cross_moment = view("cross_moment", start);
  if (source) run.loss = matrices.loss;
  run.n = source ? source->rows() : x->rows();
  run.m = target ? target->rows() : y->rows();
  run.p = clouds.x.columns();
  run.q = clouds.y.columns();
  run.r = clouds.s.columns();
  run.fused = s || cost;
  if (values && values->rows() != run.m) refuse("values: has {} rows; must have {}", values->rows(), run.m);
  run.read_seconds = watch.lap();

  options.progress = shown_by(progress);
  note_interrupt();
  progress.show("solving");
  VectorView const of_a = vector("a", a), of_b = vector("b", b);
  Gromov result = source ? solve_gromov(device.context, matrices, of_a, of_b, options)
                         : solve_gromov(device.context, clouds, of_a, of_b, options);
  GromovReport const report = result.report;
  progress.erase();

  std::string const json = json_text(report_json(run, options, report));
  std::string const written = folder.fill(result_files(run, std::move(result),
                                                       y        ? &*y
                                                       : values ? &*values
                                                                : nullptr),
                                          json);
  print_result(arguments.run, json, [&] { print_summary(run, report, device, written); });
  return final_code(report.status == Status::converged ? kDone : kShort,
                    fmt::format(" after {} steps", report.iterations));
}

}  // namespace

void add_gromov_command(CLI::App& app, int& exit_code) {
  CLI::App& command = *app.add_subcommand(
      "gromov", "Clouds of different spaces, matched by their squared distances within, or matrices");
  auto const arguments = std::make_shared<GromovArguments>();
  add_file(command, "x", arguments->x, "points, n x p: .npy (float32 or float64) or .csv");
  add_file(command, "y", arguments->y, "points of another space, m x q");
  add_out_folder(
      command, arguments->out,
      "folder for map.npy, the average y for each x, for the plan and its costs -<u_i, v_j>, u.npy, v.npy, f.npy and "
      "g.npy, without eps plan_indptr.npy, plan_indices.npy and plan_data.npy, for cross_moment.npy and report.json; "
      "for matrices u.npy is the cost and cross_moment.npy the plan");
  add_file(command, "--source", arguments->source,
           "a matrix in the place of the distances within x, n x n, with target");
  add_file(command, "--target", arguments->target, "a matrix in the place of the distances within y, m x m");
  add_option(command, kLoss, arguments->loss, option_text(GromovMatrices().loss));
  add_file(command, "--cost", arguments->cost, "costs beside the matrices, n x m: the problem is fused");
  add_file(command, "--s", arguments->s, "features of the sources, n x r, in one space with t: the problem is fused");
  add_file(command, "--t", arguments->t, "features of the targets, m x r");
  add_file(command, "--a", arguments->a, "weights of the sources (n); uniform if not given");
  add_file(command, "--b", arguments->b, "weights of the targets (m); uniform if not given");
  add_file(command, "--cross-moment", arguments->cross_moment,
           "start from that of an earlier result; for matrices a plan (n x m)");
  add_file(command, "--values", arguments->values, "values of the targets of matrices (m x k), averaged in map.npy");
  visit_gromov_options(arguments->options, [&](auto const& field, auto& value) { add_option(command, field, value); });
  add_run_options(command, arguments->run);
  command.callback([arguments, &exit_code] { exit_code = solve_gromov_files(std::move(*arguments)); });
}

}  // namespace monge::cli
