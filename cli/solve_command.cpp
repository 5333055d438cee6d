#include "solve_command.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>
#include <monge/monge.hpp>

#include "array_file.hpp"
#include "batch_folder.hpp"
#include "checkpoints.hpp"
#include "command_options.hpp"
#include "device_choice.hpp"
#include "exit_code.hpp"
#include "geometry_input.hpp"
#include "interrupt.hpp"
#include "plan_derivatives.hpp"
#include "plan_entries.hpp"
#include "progress_line.hpp"
#include "report_json.hpp"
#include "result_folder.hpp"
#include "stopwatch.hpp"

namespace monge::cli {
namespace {

struct SolveArguments {
  GeometryArguments geometry;
  std::string a, b, f, g, values, out, batch;
  EntryOptions entries;
  DerivativeOptions derivatives;
  CheckpointOptions checkpoint;
  SolveOptions options;
  RunArguments run;
};

/// Calls visit(field, path) for each file of one problem of a batch.
template <class Given, class Visit>
void visit_files(Given& given, Visit const& visit) {
  visit("x", given.geometry.x);
  visit("y", given.geometry.y);
  visit("cost", given.geometry.cost);
  visit("labels_x", given.geometry.labels_x);
  visit("labels_y", given.geometry.labels_y);
  visit("a", given.a);
  visit("b", given.b);
  visit("f", given.f);
  visit("g", given.g);
  visit("values", given.values);
}

/// The contents of the files; empty where no file is given.
struct Inputs {
  GeometryInput geometry;
  std::optional<Array> a, b, f, g, values, hvp;
};

Inputs read_inputs(SolveRun& run, SolveArguments const& given) {
  auto const read = [&](char const* field, std::string const& path) { return read_optional_input(run, field, path); };
  return {read_geometry(run, given.geometry),
          read("a", given.a),
          read("b", given.b),
          read("f", given.f),
          read("g", given.g),
          read("values", given.values),
          read("hvp", given.derivatives.hvp)};
}

/// The barycentric map of `values` or else, for points, of y; none otherwise.
std::optional<Array> map_of(Plan const& plan, Inputs const& in) {
  if (in.values) return averages_of(plan, *in.values);
  if (!in.geometry.x) return std::nullopt;
  Array map = in.geometry.x->zeros(in.geometry.x->shape);
  plan.barycentric_projection(points("map", map));
  return map;
}

std::string problem_text(SolveRun const& run, Report const& report) {
  std::string const costs =
      run.d ? fmt::format("points in {} dimension{}", *run.d, *run.d == 1 ? "" : "s") : std::string("costs");
  std::string const share =
      std::isnan(report.eps_relative) ? std::string() : fmt::format("{:.3g} of the ", report.eps_relative);
  return fmt::format("{} x {} {}, eps {:.6g} ({}mean cost {:.3g})", run.n, run.m, costs, report.eps, share,
                     report.mean_cost);
}

void print_summary(SolveRun const& run, SolveOptions const& options, Report const& report, DeviceChoice const& device,
                   std::string const& written) {
  print_line("problem", problem_text(run, report));
  print_line("device", device_text(device));
  std::string const refined = report.refinement_iterations == 0 ? ""
                              : report.refinement_iterations == report.iterations
                                  ? ", in float64"
                                  : fmt::format(", the last {} in float64", report.refinement_iterations);
  std::string const steps =
      report.newton_steps > 0
          ? fmt::format(", {} of them in {} steps of {}", report.newton_iterations, report.newton_steps,
                        options.method == Method::splr ? "splr" : "Newton's method")
          : "";
  print_line("status",
             fmt::format("{} after {}{}", name(report.status), passes_text(report), steps.empty() ? refined : steps));
  if (report.status != Status::converged && !report.message.empty()) print_line("", report.message);
  auto const reached = [&](Criterion criterion, double value, double scale) {
    bool const judged = options.criterion == criterion && options.tolerance > 0;
    return std::isnan(value) ? value_text(value)
                             : fmt::format("{:.3g}{}", value,
                                           judged ? fmt::format(" (tolerance {:.3g})", options.tolerance * scale) : "");
  };
  double const mass = std::max(report.mass, report.mass_b);
  print_line("marginal error", reached(Criterion::l1, report.marginal_error, mass));
  if (report.left_out_of_row > 0) {
    std::string const of_mass =
        std::isnan(report.left_out) ? "" : fmt::format("at most {:.2e} of the mass, and ", report.left_out / mass);
    print_line("left out", fmt::format("{}at most {:.2e} of any row or column", of_mass, report.left_out_of_row));
  }
  if (options.criterion == Criterion::gradient)
    print_line("gradient norm", reached(Criterion::gradient, report.gradient_norm, mass));
  if (std::isfinite(report.penalty_a) || std::isfinite(report.penalty_b))
    print_line("mass", fmt::format("{} transported, of {:.9g} and {:.9g}", value_text(report.transported_mass),
                                   report.mass, report.mass_b));
  print_line("transport cost", value_text(report.transport_cost));
  print_line("primal", value_text(report.primal));
  print_line("dual", value_text(report.dual));
  print_line("|gap|",
             reached(Criterion::gap, std::abs(report.gap), std::max(std::abs(report.primal), report.eps * mass)));
  if (run.gradients)
    print_line("gradients", fmt::format("{:.3g} from those at the optimum, relative", run.gradients->distance));
  if (run.hvp)
    print_line("hvp", fmt::format("{} after {} steps, residual {:.3g}", name(run.hvp->status), run.hvp->iterations,
                                  run.hvp->residual));
  print_line(
      "seconds",
      fmt::format(
          "{:.3f} (sweeps {:.3f}, certificate {:.3f}, map {:.3f}{}{})",
          run.read_seconds + report.seconds.total + run.map_seconds + run.derivatives_seconds + run.entries_seconds,
          report.seconds.sweeps, report.seconds.certificate, run.map_seconds,
          run.derivatives_seconds > 0 ? fmt::format(", derivatives {:.3f}", run.derivatives_seconds) : "",
          run.entries_seconds > 0 ? fmt::format(", entries {:.3f}", run.entries_seconds) : ""));
  print_line("written", written);
}

/// The files that a solve writes only on request.
std::vector<std::string> optional_files() {
  std::vector<std::string> files{"plan.npy",        "map.npy",         "topk_indices.npy",
                                 "topk_values.npy", "plan_indptr.npy", "plan_indices.npy",
                                 "plan_values.npy", "pairs.npy",       "hvp.npy"};
  files.insert(files.end(), std::begin(kGradientFiles), std::end(kGradientFiles));
  return files;
}

/// A problem that was read, and the part of its report that is known.
struct Problem {
  Inputs in;
  Geometry geometry;  // Views of `in`.
  SolveRun run;

  BatchProblem views() const {
    return {geometry, vector("a", in.a), vector("b", in.b), vector("f", in.f), vector("g", in.g)};
  }
};

Problem read_problem(SolveArguments const& arguments, DeviceChoice const& device) {
  SolveRun run;
  run.entries = arguments.entries;
  run.derivatives = arguments.derivatives;
  run.arguments = arguments.run;
  run.device = device.info;
  Stopwatch watch;
  Inputs in = read_inputs(run, arguments);
  Geometry geometry = in.geometry.geometry();
  run.note(in.geometry);
  check_values(in.values, run.m);
  validate(run.entries, run.m);
  if (in.hvp) check_direction(*in.hvp, *in.geometry.x);
  run.read_seconds = watch.lap();
  return {std::move(in), geometry, std::move(run)};
}

struct Results {
  std::vector<ResultFile> files;
  std::string lacking;  // The reason why no entries of the plan are there; the other results are kept.
};

/// Results of a plan that are written to files. They take few passes: a stopped solve gets all of its files, too.
Results results_of(Plan const& plan, Problem& problem, ProgressLine& progress) {
  Inputs const& in = problem.in;
  SolveRun& run = problem.run;
  Results results;
  std::vector<ResultFile>& files = results.files;
  files = {{"f.npy", Array{{run.n}, plan.f()}}, {"g.npy", Array{{run.m}, plan.g()}}};
  progress.show("map");
  Stopwatch watch;
  if (auto map = map_of(plan, in)) {
    files.push_back({"map.npy", std::move(*map)});
    run.map_seconds = watch.lap();
  }
  if (run.derivatives.gradients || in.hvp) {
    progress.show("derivatives");
    DerivativeFiles derivatives = derivative_files(plan, run.derivatives, in.geometry, in.hvp);
    std::move(derivatives.files.begin(), derivatives.files.end(), std::back_inserter(files));
    run.gradients = derivatives.gradients;
    run.hvp = derivatives.hvp;
    run.derivatives_seconds = watch.lap();
  }
  progress.show("entries");
  try {
    if (auto entries = entry_files(plan, run.entries); !entries.empty()) {
      std::move(entries.begin(), entries.end(), std::back_inserter(files));
      run.entries_seconds = watch.lap();
    }
  } catch (Error const& error) {
    results.lacking = error.what();
  } catch (std::bad_alloc const&) {
    results.lacking = "memory: ran out for the entries of the plan";
  }
  return results;
}

int exit_code_of(SolveRun const& run, Results const& results, Report const& report) {
  if (!results.lacking.empty() || (run.hvp && run.hvp->status != LinearStatus::converged)) return kShort;
  return code_of(report.status);
}

auto progress_to(ProgressLine& progress, Checkpoints& checkpoints) {
  return [&](Progress const& state) {
    progress.show(state);
    checkpoints.note(state);
    return !interrupted();
  };
}

int solve_files(SolveArguments arguments) {
  check_geometry(arguments.geometry);
  validate(arguments.derivatives, arguments.geometry);
  SolveOptions& options = arguments.options;
  ResultFolder const folder(arguments.out);
  Checkpoints checkpoints(arguments.checkpoint);
  leave_on_interrupt();
  DeviceChoice device = choose_device(arguments.run.device, arguments.run.threads, arguments.run.rank_limit);
  ProgressLine progress(!arguments.run.quiet);
  progress.show("reading");
  Problem problem = read_problem(arguments, device);
  BatchProblem const views = problem.views();
  options.f = views.f;
  options.g = views.g;
  options.progress = progress_to(progress, checkpoints);
  note_interrupt();
  progress.show("solving");
  Plan const plan = solve(device.context, views.geometry, views.a, views.b, options);
  Report const& report = plan.report();
  Results const results = results_of(plan, problem, progress);
  progress.erase();

  std::string const json = json_text(report_json(problem.run, options, report));
  std::string const written = folder.fill(results.files, json, optional_files());
  print_result(arguments.run, json, [&] { print_summary(problem.run, options, report, device, written); });
  if (!results.lacking.empty())
    fmt::print(stderr, "monge: error: {}; all other results were written\n", results.lacking);
  return final_code(exit_code_of(problem.run, results, report), fmt::format(" after {}", passes_text(report)));
}

/// call(), whose errors begin with the name of the problem. The library numbers the problems of a batch.
template <class Call>
auto naming(std::vector<BatchProblemFiles> const& files, std::size_t index, Call const& call) {
  try {
    return call();
  } catch (Error const& error) {
    std::string message = error.what();
    constexpr std::string_view kNumber = "problem ";
    if (message.starts_with(kNumber)) {
      std::size_t const end = message.find(": ");
      if (end == std::string::npos ||
          !parse(std::string_view(message).substr(kNumber.size(), end - kNumber.size()), index))
        throw;
      message.erase(0, end + 2);
    } else if (index == files.size()) {
      throw;
    }
    throw Error(error.code(), fmt::format("problem {}: {}", files[index].name, message));
  }
}

/// The files of the problems in the folder `batch`.
std::vector<BatchProblemFiles> files_of(SolveArguments const& arguments) {
  std::vector<std::string> fields;
  visit_files(arguments, [&](char const* field, std::string const& path) {
    if (!path.empty())
      refuse("{}: is {}; must not be given with batch, whose folder has a file {}_NAME for it", field, path, field);
    fields.push_back(field);
  });
  if (!arguments.derivatives.hvp.empty()) refuse("hvp: is given with batch; must be given with x and y");
  return problems_in(arguments.batch, fields);
}

/// The arguments of each problem, checked.
std::vector<SolveArguments> arguments_of(SolveArguments const& arguments, std::vector<BatchProblemFiles> const& files) {
  std::vector<SolveArguments> each;
  for (std::size_t k = 0; k < files.size(); ++k) {
    SolveArguments own = arguments;
    visit_files(own, [&](char const* field, std::string& path) { path = files[k].path(field); });
    naming(files, k, [&] {
      check_geometry(own.geometry);
      validate(own.derivatives, own.geometry);
    });
    each.push_back(std::move(own));
  }
  return each;
}

int solve_folder(SolveArguments const& arguments) {
  std::vector<BatchProblemFiles> const files = files_of(arguments);
  std::vector<SolveArguments> const each = arguments_of(arguments, files);
  std::vector<ResultFolder> folders;
  std::vector<std::string> names;
  for (BatchProblemFiles const& problem : files) {
    folders.emplace_back(std::filesystem::path(arguments.out) / problem.name);
    names.push_back(problem.name);
  }
  Checkpoints checkpoints(arguments.checkpoint, names);
  leave_on_interrupt();
  DeviceChoice device = choose_device(arguments.run.device, arguments.run.threads, arguments.run.rank_limit);
  ProgressLine progress(!arguments.run.quiet);
  progress.show("reading");
  std::vector<Problem> problems;
  problems.reserve(files.size());  // Views are of arrays that stay where they are.
  std::vector<BatchProblem> views;
  for (std::size_t k = 0; k < files.size(); ++k) {
    naming(files, k, [&] {
      problems.push_back(read_problem(each[k], device));
      views.push_back(problems.back().views());
    });
  }
  SolveOptions options = arguments.options;
  options.progress = progress_to(progress, checkpoints);
  note_interrupt();
  progress.show("solving");
  std::vector<Plan> const plans =
      naming(files, files.size(), [&] { return solve_batch(device.context, views, options); });

  int code = kDone;
  auto reports = nlohmann::ordered_json::object();
  for (std::size_t k = 0; k < files.size(); ++k) {
    Report const& report = plans[k].report();
    SolveRun& run = problems[k].run;
    Results const results = results_of(plans[k], problems[k], progress);
    progress.erase();
    auto json = report_json(run, options, report);
    try {
      folders[k].fill(results.files, json_text(json), optional_files());
    } catch (Error const& error) {  // A full disk: the next problem may fit.
      fmt::print(stderr, "monge: error: problem {}: {}\n", files[k].name, error.what());
      code = std::max(code, kShort);
    }
    if (!results.lacking.empty())
      fmt::print(stderr, "monge: error: problem {}: {}; all other results were written\n", files[k].name,
                 results.lacking);
    code = std::max(code, exit_code_of(run, results, report));
    if (!arguments.run.json && !arguments.run.quiet)
      print_line(files[k].name,
                 fmt::format("{}, {} after {}, transport cost {}", problem_text(run, report), name(report.status),
                             passes_text(report), value_text(report.transport_cost)));
    reports[files[k].name] = std::move(json);
  }
  print_result(arguments.run, json_text(reports), [&] {
    print_line("device", device_text(device));
    print_line("written", fmt::format("{}: {} folder{}", arguments.out, files.size(), files.size() == 1 ? "" : "s"));
  });
  return final_code(code);
}

}  // namespace

void add_solve_command(CLI::App& app, int& exit_code) {
  CLI::App& command = *app.add_subcommand(
      "solve", "Transport one point cloud to another, by a cost matrix, or many of them; leave the result in a folder");
  auto const arguments = std::make_shared<SolveArguments>();

  add_point_options(command, arguments->geometry);
  add_cost_option(command, arguments->geometry);
  command
      .add_option("--batch", arguments->batch,
                  "a folder of problems in place of the files: x_NAME.npy and y_NAME.npy, or cost_NAME.npy; their "
                  "results go to out/NAME")
      ->type_name("FOLDER");
  add_out_folder(command, arguments->out, "folder for f.npy, g.npy, report.json and further results");
  add_file(command, "--a", arguments->a, "weights of the sources (n); uniform if not given");
  add_file(command, "--b", arguments->b, "weights of the targets (m); uniform if not given");
  add_file(command, "--f", arguments->f, "start from this potential (n), with --g");
  add_file(command, "--g", arguments->g, "start from this potential (m), with --f");
  add_file(command, "--values", arguments->values, "m x p; map.npy is the average of these, not of y");
  visit_solve_options(arguments->options, [&](auto const& field, auto& value) { add_option(command, field, value); });
  add_eps_rules(command);
  command.add_flag("--plan", arguments->entries.plan, "all entries of the plan: plan.npy (n x m)")
      ->group("Entries of the plan to write");
  visit_entry_options(arguments->entries, [&](auto const& field, auto& value) {
    add_option(command, field, value)->group("Entries of the plan to write");
  });
  command.add_flag(
      "--gradients", arguments->derivatives.gradients,
      "derivatives of the dual value: grad_a.npy, grad_b.npy and, for costs of points, grad_x.npy, grad_y.npy");
  add_file(command, "--hvp", arguments->derivatives.hvp,
           "a direction for x (n x d); hvp.npy is the Hessian's product with it");
  visit_hvp_options(arguments->derivatives, [&](auto const& field, auto& value) {
    add_option(command, field, value)->group("How hvp.npy is found");
  });
  add_checkpoint_options(command, arguments->checkpoint);
  add_run_options(command, arguments->run);
  command.callback([arguments, &exit_code] {
    exit_code = arguments->batch.empty() ? solve_files(std::move(*arguments)) : solve_folder(*arguments);
  });
}

}  // namespace monge::cli
