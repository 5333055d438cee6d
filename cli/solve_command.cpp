#include "solve_command.hpp"

#include <chrono>
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
#include "device_choice.hpp"
#include "exit_code.hpp"
#include "interrupt.hpp"
#include "option_text.hpp"
#include "progress_line.hpp"
#include "report_json.hpp"
#include "result_folder.hpp"

namespace monge::cli {
namespace {

struct Arguments {
  std::string x, y, a, b, f, g, out;
  std::string device = "auto";
  int threads = 0;
  double scale = 1;
  bool json = false, quiet = false;
  SolveOptions options;
};

class Stopwatch {
 public:
  /// Seconds since construction or the last call.
  double lap() {
    auto const now = std::chrono::steady_clock::now();
    return std::chrono::duration<double>(now - std::exchange(start_, now)).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

std::string value_text(double value) {
  return std::isnan(value) ? "not evaluated (certificate is false)" : fmt::format("{:.9g}", value);
}

void print_summary(SolveRun const& run, SolveOptions const& options, Report const& report, DeviceChoice const& device,
                   std::filesystem::path const& out) {
  auto const line = [](std::string_view label, std::string const& text) { fmt::print("{:<15} {}\n", label, text); };
  bool const cpu = device.info.device.type == DeviceType::cpu;
  line("problem", fmt::format("{} x {} points in {} dimension{}, eps {}", run.n, run.m, run.d, run.d == 1 ? "" : "s",
                              options.eps));
  line("device",
       fmt::format("{}: {}, {} {}{}", to_string(device.info.device), device.info.instruction_set, device.info.units,
                   cpu ? (device.info.units == 1 ? "thread" : "threads") : "multiprocessors",
                   device.reason.empty() ? "" : fmt::format(" ({})", device.reason)));
  line("status", fmt::format("{} after {} sweeps", name(report.status), report.iterations));
  if (report.status != Status::converged && !report.message.empty()) line("", report.message);
  line("marginal error",
       std::isnan(report.marginal_error)
           ? value_text(report.marginal_error)
           : fmt::format(
                 "{:.3g}{}", report.marginal_error,
                 options.tolerance > 0 ? fmt::format(" (tolerance {:.3g})", options.tolerance * report.mass) : ""));
  line("transport cost", value_text(report.transport_cost));
  line("primal", value_text(report.primal));
  line("dual", value_text(report.dual));
  line("gap", std::isnan(report.gap) ? value_text(report.gap) : fmt::format("{:.3g}", report.gap));
  line("seconds", fmt::format("{:.3f} (sweeps {:.3f}, certificate {:.3f}, map {:.3f})",
                              run.read_seconds + report.seconds.total + run.map_seconds, report.seconds.sweeps,
                              report.seconds.certificate, run.map_seconds));
  line("written", fmt::format("{}: f.npy, g.npy, map.npy, report.json", out.string()));
}

int solve_files(Arguments arguments) {
  catch_interrupt();
  SolveOptions& options = arguments.options;
  ResultFolder const folder(arguments.out);
  DeviceChoice device = choose_device(arguments.device, arguments.threads);
  SolveRun run;
  run.scale = arguments.scale;
  run.device_option = arguments.device;
  run.threads = arguments.threads;
  run.device = device.info;

  Stopwatch watch;
  auto const read = [&](char const* field, std::string const& path) {
    run.files[field] = path;
    return read_array(field, path);
  };
  auto const read_if_given = [&](char const* field, std::string const& path) {
    return path.empty() ? std::nullopt : std::optional(read(field, path));
  };
  Array const x = read("x", arguments.x), y = read("y", arguments.y);
  auto const a = read_if_given("a", arguments.a), b = read_if_given("b", arguments.b);
  auto const f = read_if_given("f", arguments.f), g = read_if_given("g", arguments.g);
  auto const view = [](char const* field, std::optional<Array> const& array) {
    return array ? vector(field, *array) : VectorView{};
  };
  options.f = view("f", f);
  options.g = view("g", g);
  run.n = x.rows();
  run.m = y.rows();
  run.d = x.columns();
  run.read_seconds = watch.lap();

  ProgressLine progress(!arguments.quiet);
  options.progress = [&](Progress const& state) {
    progress.show(state);
    return !interrupted();
  };
  Plan const plan = solve(device.context, {points(x), points(y), arguments.scale}, view("a", a), view("b", b), options);
  progress.erase();
  Report const& report = plan.report();

  Array map = x.zeros_like();
  if (!interrupted()) {
    watch.lap();
    plan.barycentric_projection(points(map));
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
  if (arguments.json) {
    fmt::print("{}", json);
  } else if (!arguments.quiet) {
    print_summary(run, options, report, device, folder.path());
  }
  return report.status == Status::converged || report.status == Status::completed ? kDone : kShort;
}

template <class Value>
void add_option(CLI::App& command, char const* option, Value& value, char const* constraint, char const* description) {
  auto const store = [&value, option, constraint](std::string const& text) {
    if (!parse(text, value)) {
      throw CLI::ValidationError(fmt::format("{}: is '{}'; must be {}", option, text, constraint));
    }
  };
  nlohmann::ordered_json const standard = to_json(value);
  command.add_option_function<std::string>(flag(option), store, fmt::format("{} ({})", description, constraint))
      ->type_name("VALUE")
      ->default_str(standard.is_string()         ? standard.get<std::string>()
                    : standard.is_number_float() ? fmt::format("{}", standard.get<double>())
                                                 : standard.dump());
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
  add_option(command, "threads", arguments->threads, ">= 0", "threads on the CPU; 0 is all cores");
  command.get_option("--eps")->required()->default_str("");
  command.add_option("--device", arguments->device, "where to run: auto, cpu or cuda:0; auto takes a GPU if it can")
      ->type_name("VALUE")
      ->default_str("auto");
  command.add_flag("--json", arguments->json, "print report.json instead of the summary");
  command.add_flag("--quiet", arguments->quiet, "print no summary and no progress");
  command.callback([arguments, &exit_code] { exit_code = solve_files(std::move(*arguments)); });
}

}  // namespace monge::cli
