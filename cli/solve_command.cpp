#include "solve_command.hpp"

#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <monge/monge.hpp>

#include "array_file.hpp"
#include "command_options.hpp"
#include "device_choice.hpp"
#include "exit_code.hpp"
#include "interrupt.hpp"
#include "progress_line.hpp"
#include "report_json.hpp"
#include "result_folder.hpp"
#include "stopwatch.hpp"

namespace monge::cli {
namespace {

struct Arguments {
  std::string x, y, a, b, f, g, out;
  double scale = 1;
  SolveOptions options;
  RunArguments run;
};

std::string value_text(double value) {
  return std::isnan(value) ? "not evaluated (certificate is false)" : fmt::format("{:.9g}", value);
}

void print_summary(SolveRun const& run, SolveOptions const& options, Report const& report, DeviceChoice const& device,
                   std::filesystem::path const& out) {
  print_line("problem", fmt::format("{} x {} points in {} dimension{}, eps {}", run.n, run.m, run.d,
                                    run.d == 1 ? "" : "s", options.eps));
  print_line("device", device_text(device));
  std::string const refined =
      report.refinement_iterations > 0 ? fmt::format(", the last {} in float64", report.refinement_iterations) : "";
  print_line("status", fmt::format("{} after {} sweeps{}", name(report.status), report.iterations, refined));
  if (report.status != Status::converged && !report.message.empty()) print_line("", report.message);
  print_line("marginal error", std::isnan(report.marginal_error)
                                   ? value_text(report.marginal_error)
                                   : fmt::format("{:.3g}{}", report.marginal_error,
                                                 options.tolerance > 0 ? fmt::format(" (tolerance {:.3g})",
                                                                                     options.tolerance * report.mass)
                                                                       : ""));
  print_line("transport cost", value_text(report.transport_cost));
  print_line("primal", value_text(report.primal));
  print_line("dual", value_text(report.dual));
  print_line("gap", std::isnan(report.gap) ? value_text(report.gap) : fmt::format("{:.3g}", report.gap));
  print_line("seconds", fmt::format("{:.3f} (sweeps {:.3f}, certificate {:.3f}, map {:.3f})",
                                    run.read_seconds + report.seconds.total + run.map_seconds, report.seconds.sweeps,
                                    report.seconds.certificate, run.map_seconds));
  print_line("written", fmt::format("{}: f.npy, g.npy, map.npy, report.json", out.string()));
}

int solve_files(Arguments arguments) {
  catch_interrupt();
  SolveOptions& options = arguments.options;
  ResultFolder const folder(arguments.out);
  DeviceChoice device = choose_device(arguments.run.device, arguments.run.threads);
  SolveRun run;
  run.scale = arguments.scale;
  run.arguments = arguments.run;
  run.device = device.info;

  Stopwatch watch;
  Array const x = read_input(run, "x", arguments.x), y = read_input(run, "y", arguments.y);
  auto const a = read_optional_input(run, "a", arguments.a), b = read_optional_input(run, "b", arguments.b);
  auto const f = read_optional_input(run, "f", arguments.f), g = read_optional_input(run, "g", arguments.g);
  options.f = vector("f", f);
  options.g = vector("g", g);
  run.n = x.rows();
  run.m = y.rows();
  run.d = x.columns();
  run.read_seconds = watch.lap();

  ProgressLine progress(!arguments.run.quiet);
  options.progress = [&](Progress const& state) {
    progress.show(state);
    return !interrupted();
  };
  Plan const plan =
      solve(device.context, PointCloud{points("x", x), points("y", y), arguments.scale}, vector("a", a), vector("b", b), options);
  progress.erase();
  Report const& report = plan.report();

  Array map = x.zeros_like();
  if (!interrupted()) {
    watch.lap();
    plan.barycentric_projection(points("map", map));
    run.map_seconds = watch.lap();
  }
  if (interrupted()) {
    fmt::print(stderr, "monge: interrupted after {} sweeps; nothing was written\n", report.iterations);
    return kInterrupted;
  }

  std::string const json = json_text(report_json(run, options, report));
  folder.fill([&](std::filesystem::path const& into) {
    write_array(into / "f.npy", {{run.n}, plan.f()});
    write_array(into / "g.npy", {{run.m}, plan.g()});
    write_array(into / "map.npy", map);
    write_text(into / "report.json", json);
  });
  if (arguments.run.json) {
    fmt::print("{}", json);
  } else if (!arguments.run.quiet) {
    print_summary(run, options, report, device, folder.path());
  }
  return report.status == Status::converged || report.status == Status::completed ? kDone : kShort;
}

}  // namespace

void add_solve_command(CLI::App& app, int& exit_code) {
  CLI::App& command =
      *app.add_subcommand("solve", "Transport one point cloud to another; leave the result in a folder");
  auto const arguments = std::make_shared<Arguments>();

  command.add_option("x", arguments->x, "source points, n x d: .npy (float32 or float64) or .csv")
      ->type_name("FILE")
      ->required();
  command.add_option("y", arguments->y, "target points, m x d")->type_name("FILE")->required();
  command.add_option("--out", arguments->out, "folder for f.npy, g.npy, map.npy and report.json")
      ->type_name("FOLDER")
      ->required();
  command.add_option("--a", arguments->a, "weights of the source points (n); uniform if not given")->type_name("FILE");
  command.add_option("--b", arguments->b, "weights of the target points (m); uniform if not given")->type_name("FILE");
  command.add_option("--f", arguments->f, "start from this potential (n), with --g")->type_name("FILE");
  command.add_option("--g", arguments->g, "start from this potential (m), with --f")->type_name("FILE");
  visit_solve_options(arguments->options,
                      [&](char const* option, auto& value, char const* constraint, char const* description) {
                        add_option(command, option, value, constraint, description);
                      });
  add_option(command, "scale", arguments->scale, "> 0", "the cost is this times the squared distance");
  command.get_option("--eps")->required()->default_str("");
  add_run_options(command, arguments->run);
  command.callback([arguments, &exit_code] { exit_code = solve_files(std::move(*arguments)); });
}

}  // namespace monge::cli
