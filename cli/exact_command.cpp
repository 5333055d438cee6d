#include "exact_command.hpp"

#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <monge/monge.hpp>

#include "array_file.hpp"
#include "command_options.hpp"
#include "device_choice.hpp"
#include "exit_code.hpp"
#include "geometry_input.hpp"
#include "interrupt.hpp"
#include "plan_entries.hpp"
#include "progress_line.hpp"
#include "report_json.hpp"
#include "result_folder.hpp"
#include "stopwatch.hpp"

namespace monge::cli {
namespace {

struct ExactArguments {
  GeometryArguments geometry;
  std::string a, b, f, g, out;
  ExactOptions options;
  RunArguments run;
};

void print_summary(CostRun const& run, ExactReport const& report, DeviceChoice const& device,
                   std::string const& written) {
  print_line("problem", fmt::format("{} x {} {}", run.n, run.m, run.d ? "points" : "costs"));
  print_line("device", device_text(device));
  print_line("status", fmt::format("{} after {} {} over all pairs", name(report.status), report.rounds,
                                   report.rounds == 1 ? "pass" : "passes"));
  if (report.status != ExactStatus::optimal) print_line("", report.message);
  print_line("transport cost", value_text(report.transport_cost));
  if (report.value != report.transport_cost) print_line("with penalties", value_text(report.value));
  if (std::abs(report.transported_mass - report.mass) > 1e-12 * report.mass)  // Above the rounding of sums.
    print_line("mass", fmt::format("{:.9g} transported", report.transported_mass));
  print_line("dual", value_text(report.dual));
  print_line("gap", fmt::format("{:.3g} (worst reduced cost {:.3g}, costs up to {:.3g})", report.gap,
                                report.worst_reduced_cost, report.cost_scale));
  print_line("entries", fmt::format("{}, from {} candidates", report.nonzeros, report.candidates));
  print_line("seconds", fmt::format("{:.3f} (start {:.3f}, search {:.3f}, pricing {:.3f})",
                                    run.read_seconds + report.seconds.total, report.seconds.start,
                                    report.seconds.search, report.seconds.pricing));
  print_line("written", written);
}

int solve_exact_files(ExactArguments arguments) {
  check_geometry(arguments.geometry);
  ResultFolder const folder(arguments.out);
  CostRun run;
  DeviceChoice const device = begin_run(run, arguments.run);

  ProgressLine progress(!arguments.run.quiet);
  progress.show("reading");
  Stopwatch watch;
  GeometryInput const in = read_geometry(run, arguments.geometry);
  Geometry const geometry = in.geometry();
  run.note(in);
  auto const a = read_optional_input(run, "a", arguments.a), b = read_optional_input(run, "b", arguments.b);
  auto const f = read_optional_input(run, "f", arguments.f), g = read_optional_input(run, "g", arguments.g);
  ExactOptions& options = arguments.options;
  options.f = vector("f", f);
  options.g = vector("g", g);
  run.read_seconds = watch.lap();

  options.progress = shown_by(progress);
  note_interrupt();
  progress.show("solving");
  ExactPlan plan = solve_exact(device.context, geometry, vector("a", a), vector("b", b), options);
  ExactReport const report = plan.report;
  progress.erase();

  std::string const json = json_text(report_json(run, options, report));
  std::string const written = folder.fill(exact_plan_files(std::move(plan)), json);
  print_result(arguments.run, json, [&] { print_summary(run, report, device, written); });
  return final_code(report.status == ExactStatus::optimal ? kDone : kShort,
                    fmt::format(" with {:.3g} of the mass {:.3g} without a place", report.missing_mass, report.mass));
}

}  // namespace

void add_exact_command(CLI::App& app, int& exit_code) {
  CLI::App& command = *app.add_subcommand("exact", "Optimal transport without regularisation, proved optimal");
  auto const arguments = std::make_shared<ExactArguments>();
  add_point_options(command, arguments->geometry);
  add_cost_option(command, arguments->geometry);
  add_out_folder(command, arguments->out,
                 "folder for the plan as CSR, plan_indptr.npy, plan_indices.npy and plan_data.npy, for the potentials, "
                 "f.npy and g.npy, and for report.json");
  add_file(command, "--a", arguments->a, "weights of the sources (n); uniform if not given");
  add_file(command, "--b", arguments->b, "weights of the targets (m); uniform if not given");
  add_file(command, "--f", arguments->f, "start from this potential (n), with --g");
  add_file(command, "--g", arguments->g, "start from this potential (m), with --f");
  visit_exact_options(arguments->options, [&](auto const& field, auto& value) { add_option(command, field, value); });
  add_run_options(command, arguments->run);
  command.callback([arguments, &exit_code] { exit_code = solve_exact_files(std::move(*arguments)); });
}

}  // namespace monge::cli
