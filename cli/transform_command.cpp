#include "transform_command.hpp"

#include <cstdint>
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
#include "geometry_input.hpp"
#include "interrupt.hpp"
#include "report_json.hpp"
#include "result_folder.hpp"
#include "stopwatch.hpp"

namespace monge::cli {
namespace {

struct TransformArguments {
  GeometryArguments geometry;
  std::string a, b, f, g, out;
  RunArguments run;
};

void print_summary(TransformRun const& run, DeviceChoice const& device, std::string const& written) {
  print_line("problem", fmt::format("{} x {}, c-transform of {}", run.n, run.m, run.given));
  print_line("device", device_text(device));
  print_line("semi-dual value", fmt::format("{:.9g}", run.semi_dual_value));
  print_line("seconds",
             fmt::format("{:.3f} (read {:.3f})", run.read_seconds + run.transform_seconds, run.read_seconds));
  print_line("written", written);
}

int transform_files(TransformArguments const& given) {
  check_geometry(given.geometry);
  if (given.f.empty() == given.g.empty())
    refuse("g: is {}; must be given, or f in its place{}", given.g.empty() ? "missing" : given.g,
           given.f.empty() ? "" : ", which is " + given.f);
  bool const to_rows = given.f.empty();
  ResultFolder const folder(given.out);
  TransformRun run;
  DeviceChoice const device = begin_run(run, given.run);
  run.given = to_rows ? "g" : "f";

  Stopwatch watch;
  GeometryInput const in = read_geometry(run, given.geometry);
  Geometry const geometry = in.geometry();
  auto const potential = read_optional_input(run, run.given, to_rows ? given.g : given.f);
  auto const a = read_optional_input(run, "a", given.a), b = read_optional_input(run, "b", given.b);
  run.note(in);
  run.read_seconds = watch.lap();

  std::vector<double> result(static_cast<std::size_t>(to_rows ? run.n : run.m));
  std::int64_t const size = std::ssize(result);
  IndexArray argmin = zero_indices({size});
  auto const transform = to_rows ? c_transform : c_transform_transpose;
  VectorView const from = vector(run.given, potential), onto = result;
  transform(device.context, geometry, from, result, indices(argmin));
  run.semi_dual_value =
      semi_dual_value(device.context, vector("a", a), vector("b", b), to_rows ? onto : from, to_rows ? from : onto);
  run.transform_seconds = watch.lap();

  note_interrupt();  // The result is complete; a half-written file must not stay behind.
  std::string const name = to_rows ? "f.npy" : "g.npy", json = json_text(report_json(run));
  std::string const written =
      folder.fill({{name, Array{{size}, std::move(result)}}, {"argmin.npy", std::move(argmin)}}, json);
  print_result(given.run, json, [&] { print_summary(run, device, written); });
  return interrupted() ? kInterrupted : kDone;
}

}  // namespace

void add_transform_command(CLI::App& app, int& exit_code) {
  CLI::App& command = *app.add_subcommand(
      "transform", "The hard c-transform of a potential: f_i = min_j C_ij - g_j with its argmin, or g_j from f");
  auto const arguments = std::make_shared<TransformArguments>();
  add_point_options(command, arguments->geometry);
  add_cost_option(command, arguments->geometry);
  add_out_folder(command, arguments->out, "folder for f.npy (of --f: g.npy), argmin.npy and report.json");
  add_file(command, "--g", arguments->g, "the potential of the targets (m)");
  add_file(command, "--f", arguments->f, "or the potential of the sources (n)");
  add_file(command, "--a", arguments->a, "weights of the sources (n) in the semi-dual value; uniform if not given");
  add_file(command, "--b", arguments->b, "weights of the targets (m)");
  add_run_options(command, arguments->run);
  command.callback([arguments, &exit_code] { exit_code = transform_files(*arguments); });
}

}  // namespace monge::cli
