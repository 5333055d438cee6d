#include "divergence_command.hpp"

#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <monge/monge.hpp>

#include "array_file.hpp"
#include "command_options.hpp"
#include "device_choice.hpp"
#include "exit_code.hpp"
#include "geometry_input.hpp"
#include "interrupt.hpp"
#include "plan_derivatives.hpp"
#include "progress_line.hpp"
#include "report_json.hpp"
#include "result_folder.hpp"
#include "stopwatch.hpp"

namespace monge::cli {
namespace {

struct DivergenceArguments {
  GeometryArguments geometry;
  std::string cost_xx, cost_yy, a, b, out;
  bool gradients = false;
  SolveOptions options;
  RunArguments run;
};

/// A divergence lacks method splr.
struct Methods {
  std::string text() const { return "auto, sinkhorn, newton or multiscale"; }
};

void print_summary(DivergenceRun const& run, Divergence const& divergence, DeviceChoice const& device,
                   std::string const& written) {
  std::string const costs =
      run.d ? fmt::format("{} and {} points in {} dimension{}", run.n, run.m, *run.d, *run.d == 1 ? "" : "s")
            : fmt::format("{} x {} costs", run.n, run.m);
  print_line("problem", fmt::format("{}, eps {:.6g}", costs, divergence.ab.report().eps));
  print_line("device", device_text(device));
  for (auto const& [label, plan] :
       {std::pair("OT(a, b)", &divergence.ab), {"OT(a, a)", &divergence.aa}, {"OT(b, b)", &divergence.bb}}) {
    Report const& report = plan->report();
    print_line(label, fmt::format("{}, {} after {}, marginal error {:.3g}", value_text(report.dual),
                                  name(report.status), passes_text(report), report.marginal_error));
    if (report.status != Status::converged) print_line("", report.message);
  }
  print_line("divergence",
             value_text(divergence.value) +
                 (std::isnan(divergence.gap) ? std::string() : fmt::format(" (gaps {:.3g})", divergence.gap)));
  print_line("seconds", fmt::format("{:.3f} (solve {:.3f}, gradients {:.3f})",
                                    run.read_seconds + run.solve_seconds + run.gradient_seconds, run.solve_seconds,
                                    run.gradient_seconds));
  print_line("written", written);
}

/// A divergence of cost matrices also needs the costs of each measure with itself. Throws Error.
void check_self_costs(DivergenceArguments const& arguments) {
  bool const matrices = !arguments.geometry.cost.empty();
  for (auto const& [field, path] : {std::pair("cost_xx", &arguments.cost_xx), {"cost_yy", &arguments.cost_yy}}) {
    if (matrices && path->empty()) refuse("{}: is missing; must be given with cost", field);
    if (!matrices && !path->empty()) refuse("{}: is {}; is for cost, which is not given", field, *path);
  }
}

int diverge_files(DivergenceArguments arguments) {
  check_geometry(arguments.geometry);
  check_self_costs(arguments);
  SolveOptions& options = arguments.options;
  ResultFolder const folder(arguments.out);
  DivergenceRun run;
  DeviceChoice device = begin_run(run, arguments.run);

  ProgressLine progress(!arguments.run.quiet);
  progress.show("reading");
  Stopwatch watch;
  GeometryInput const in = read_geometry(run, arguments.geometry);
  std::optional<Array> const xx = read_optional_costs(run, "cost_xx", arguments.cost_xx);
  std::optional<Array> const yy = read_optional_costs(run, "cost_yy", arguments.cost_yy);
  std::optional<Array> const a = read_optional_input(run, "a", arguments.a);
  std::optional<Array> const b = read_optional_input(run, "b", arguments.b);
  DivergenceProblem problem;
  problem.a = vector("a", a);
  problem.b = vector("b", b);
  if (in.cost)
    problem.costs = DivergenceCosts{costs("cost", *in.cost), costs("cost_xx", *xx), costs("cost_yy", *yy)};
  else
    problem.costs = std::get<PointCloud>(in.geometry());
  run.note(in);
  run.read_seconds = watch.lap();

  options.progress = shown_by(progress);
  note_interrupt();
  progress.show("solving");
  Divergence const divergence = sinkhorn_divergence(device.context, problem, options);
  run.solve_seconds = watch.lap();

  std::vector<ResultFile> files;
  if (arguments.gradients) {
    progress.show("gradients");
    files = gradient_files(in, [&](GradientViews const& out) { run.gradients = divergence.gradients(out); });
    run.gradient_seconds = watch.lap();
  }
  progress.erase();

  std::string const json = json_text(report_json(run, options, divergence));
  std::string const written = folder.fill(files, json, {std::begin(kGradientFiles), std::end(kGradientFiles)});
  print_result(arguments.run, json, [&] { print_summary(run, divergence, device, written); });
  return final_code(code_of(divergence.status()));
}

}  // namespace

void add_divergence_command(CLI::App& app, int& exit_code) {
  CLI::App& command = *app.add_subcommand(
      "divergence", "Sinkhorn divergence of two measures: OT without the bias of its entropy, and its gradients");
  auto const arguments = std::make_shared<DivergenceArguments>();
  add_point_options(command, arguments->geometry);
  add_cost_option(command, arguments->geometry);
  add_file(command, "--cost-xx", arguments->cost_xx, "with --cost: costs between the rows of it, n x n, symmetric");
  add_file(command, "--cost-yy", arguments->cost_yy, "with --cost: costs between the columns of it, m x m, symmetric");
  add_out_folder(command, arguments->out, "folder for report.json and, with --gradients, grad_x.npy and others");
  add_file(command, "--a", arguments->a, "weights of x (n); uniform if not given");
  add_file(command, "--b", arguments->b, "weights of y (m); uniform if not given");
  command.add_flag("--gradients", arguments->gradients, "write grad_a.npy, grad_b.npy, grad_x.npy and grad_y.npy");
  visit_solve_options(arguments->options, [&]<class Value>(auto const& field, Value& value) {
    if constexpr (std::is_same_v<Value, Method>)
      add_option(command, Field{field.name, Methods(), field.description}, value);
    else if (!std::string_view(field.name).starts_with("splr_"))
      add_option(command, field, value);
  });
  add_eps_rules(command);
  add_run_options(command, arguments->run);
  command.callback([arguments, &exit_code] { exit_code = diverge_files(std::move(*arguments)); });
}

}  // namespace monge::cli
