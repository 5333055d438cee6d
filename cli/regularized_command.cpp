#include "regularized_command.hpp"

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
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
#include "plan_entries.hpp"
#include "progress_line.hpp"
#include "report_json.hpp"
#include "result_folder.hpp"
#include "stopwatch.hpp"

namespace monge::cli {
namespace {

/// The terms that --regularizer may name.
enum class Term { none, quadratic, group_lasso, l1, mask, hypentropy, slopes };
constexpr auto names_of(Term) {
  using enum Term;
  return std::to_array<Named<Term>>({{none, "none"},
                                     {quadratic, "quadratic"},
                                     {group_lasso, "group_lasso"},
                                     {l1, "l1"},
                                     {mask, "mask"},
                                     {hypentropy, "hypentropy"},
                                     {slopes, "slopes"}});
}

constexpr Field kRegularizer{"regularizer", OneOf<Term>(), "a term of h; several add up"};
constexpr Field kWeight{"weight", kNotNegative, "the weight of each term that has one, in their order"};
constexpr Field kWidth{"hypentropy_width", kPositive, "beta of hypentropy, in units of mass"};

struct RegularizedArguments {
  GeometryArguments geometry;
  std::vector<std::string> terms, weights;
  std::optional<double> width;
  std::string p, q, groups, pair_groups, group_weights, l1_weights, mask, slopes, u, v, plan, values, out;
  bool sparse = false;
  RegularizedOptions options;
  RunArguments run;
};

/// The contents of the files; empty where no file is given.
struct RegularizedInputs {
  GeometryInput geometry;
  std::optional<Array> p, q, group_weights, l1_weights, mask, slopes, u, v, plan, values;
  std::optional<IndexArray> groups, pair_groups;
};

bool has_weight(Term term) {
  return term != Term::none && term != Term::mask && term != Term::slopes;
}

/// Each term that was named, with its weight; 0 without one.
std::vector<std::pair<Term, double>> read_terms(RegularizedArguments const& given) {
  std::vector<std::pair<Term, double>> terms;
  std::size_t weights = 0;
  for (std::string const& text : given.terms) {
    std::optional<Term> const term = from_name<Term>(text);
    if (!term) refuse("regularizer: is '{}'{}", text, must_be(text, kRegularizer.constraint.text()));
    for (auto const& [earlier, weight] : terms) {
      if (earlier == *term) refuse("regularizer: names {} twice; each term must be given once", text);
    }
    double weight = 0;
    if (has_weight(*term)) {
      if (weights == given.weights.size()) refuse("weight: is missing; must be given for {}", text);
      std::string const& of = given.weights[weights++];
      if (!parse(of, weight) || !kWeight.constraint.contains(weight))
        refuse("weight: is '{}'; must be a number, {}", of, kWeight.constraint.text_in_full());
    }
    terms.emplace_back(*term, weight);
  }
  if (weights < given.weights.size())
    refuse("weight: is given {} times; must be given once for each term that has one, {} times", given.weights.size(),
           weights);
  return terms;
}

/// Throws Error, before a file is read, unless each file belongs to a term and each term has its file.
void check_files(RegularizedArguments const& given, std::vector<std::pair<Term, double>> const& terms) {
  auto const has = [&](Term term) {
    return std::any_of(terms.begin(), terms.end(), [&](auto const& entry) { return entry.first == term; });
  };
  auto const check = [&](char const* field, std::string const& path, Term term, bool needed) {
    if (!path.empty() && !has(term)) refuse("{}: is {}; is for the regularizer {}", field, path, name(term));
    if (path.empty() && needed && has(term)) refuse("{}: is missing; the regularizer {} needs it", field, name(term));
  };
  check("groups", given.groups, Term::group_lasso, given.pair_groups.empty());
  check("pair_groups", given.pair_groups, Term::group_lasso, false);
  check("group_weights", given.group_weights, Term::group_lasso, false);
  check("weights", given.l1_weights, Term::l1, true);
  check("mask", given.mask, Term::mask, true);
  check("slopes", given.slopes, Term::slopes, true);
  if (given.width && !has(Term::hypentropy))
    refuse("hypentropy_width: is {}; is for the regularizer hypentropy", *given.width);
}

/// A mask of whole numbers, as the library takes it.
Array mask_array(IndexArray const& mask) {
  return {mask.shape, std::vector<float>(mask.values.begin(), mask.values.end())};
}

RegularizedInputs read_inputs(Run& run, RegularizedArguments const& given) {
  auto const read = [&](char const* field, std::string const& path) { return read_optional_input(run, field, path); };
  auto const read_index = [&](char const* field, std::string const& path) {
    return path.empty() ? std::nullopt : std::optional(read_index_input(run, field, path));
  };
  RegularizedInputs in{.geometry = read_geometry(run, given.geometry),
                       .p = read("p", given.p),
                       .q = read("q", given.q),
                       .group_weights = read("group_weights", given.group_weights),
                       .l1_weights = read("weights", given.l1_weights),
                       .mask = std::nullopt,
                       .slopes = read("slopes", given.slopes),
                       .u = read("u", given.u),
                       .v = read("v", given.v),
                       .plan = read("plan", given.plan),
                       .values = read("values", given.values),
                       .groups = read_index("groups", given.groups),
                       .pair_groups = read_index("pair_groups", given.pair_groups)};
  if (auto const mask = read_index("mask", given.mask)) in.mask = mask_array(*mask);
  return in;
}

Regularizer regularizer_of(RegularizedArguments const& given, RegularizedInputs const& in,
                           std::vector<std::pair<Term, double>> const& terms) {
  Regularizer h;
  for (auto const& [term, weight] : terms) {
    if (term == Term::quadratic) h.quadratic = weight;
    if (term == Term::group_lasso) h.group_lasso = weight;
    if (term == Term::l1) h.l1 = weight;
    if (term == Term::hypentropy) h.hypentropy = weight;
  }
  h.groups = labels("groups", in.groups);
  h.pair_groups = label_matrix("pair_groups", in.pair_groups);
  h.group_weights = vector("group_weights", in.group_weights);
  if (in.l1_weights) h.l1_weights = costs("weights", *in.l1_weights).cost;
  if (in.mask) h.mask = costs("mask", *in.mask).cost;
  if (in.slopes) h.slopes = costs("slopes", *in.slopes).cost;
  h.hypentropy_width = given.width.value_or(h.hypentropy_width);
  return h;
}

nlohmann::ordered_json regularizer_json(RegularizedArguments const& given,
                                        std::vector<std::pair<Term, double>> const& terms) {
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  for (auto const& [term, weight] : terms) {
    if (has_weight(term)) {
      json[std::string(name(term))] = weight;
    } else if (term != Term::none) {
      json[std::string(name(term))] = true;
    }
  }
  if (json.contains("hypentropy")) json["hypentropy_width"] = given.width.value_or(Regularizer().hypentropy_width);
  return json;
}

std::vector<ResultFile> result_files(RegularizedPlan const& plan, RegularizedInputs const& in, bool sparse) {
  std::int64_t const n = plan.rows(), m = plan.columns();
  std::vector<double> u(static_cast<std::size_t>(n)), v(static_cast<std::size_t>(m));
  plan.potentials(u, v);
  std::vector<ResultFile> files;
  files.push_back({"u.npy", Array{{n}, std::move(u)}});
  files.push_back({"v.npy", Array{{m}, std::move(v)}});
  if (sparse) {
    IndexArray row_begin = zero_indices({n + 1});
    std::int64_t const count = plan.nonzeros(indices(row_begin));
    IndexArray columns = zero_indices({count});
    std::vector<double> values(static_cast<std::size_t>(count));
    plan.entries(indices(row_begin), indices(columns), values);
    files.push_back({"plan_indptr.npy", std::move(row_begin)});
    files.push_back({"plan_indices.npy", std::move(columns)});
    files.push_back({"plan_data.npy", Array{{count}, std::move(values)}});
  } else {
    files.push_back(dense_plan_file(plan));
  }
  if (in.values) files.push_back({"map.npy", averages_of(plan, *in.values)});
  return files;
}

void print_summary(RegularizedRun const& run, RegularizedOptions const& options, RegularizedReport const& report,
                   DeviceChoice const& device, std::string const& written) {
  std::string terms;
  for (auto const& [term, weight] : run.regularizer.items())
    terms += (terms.empty() ? "" : ", ") + term + (weight.is_boolean() ? "" : " " + weight.dump());
  print_line("problem", fmt::format("{} x {} {}, {}", run.n, run.m, run.d ? "points" : "costs",
                                    terms.empty() ? "no term" : terms));
  print_line("device", device_text(device));
  bool const newton = report.method == RegularizedMethod::newton;
  print_line("status", fmt::format("{} after {} {}{}", name(report.status), report.iterations,
                                   newton ? "passes of newton" : "iterations of splitting",
                                   newton ? fmt::format(", {} steps", report.newton_steps) : std::string()));
  if (report.status != Status::converged && !report.message.empty()) print_line("", report.message);
  print_line("residual", fmt::format("{:.3g} (marginal error {:.3g})", report.primal_residual, report.marginal_error));
  print_line("transport cost", value_text(report.transport_cost));
  print_line("primal", value_text(report.primal));
  print_line("dual", value_text(report.dual));
  print_line("|gap|", fmt::format("{:.3g} (tolerance {:.3g} of the primal of costs from 0 on)", std::abs(report.gap),
                                  options.tolerance));
  print_line("entries", fmt::format("{}, {:.3g} a row", report.nonzeros,
                                    static_cast<double>(report.nonzeros) / static_cast<double>(run.n)));
  print_line("seconds", fmt::format("{:.3f} (iterations {:.3f}, evaluation {:.3f}, outputs {:.3f})",
                                    run.read_seconds + report.seconds.total + run.output_seconds,
                                    report.seconds.iterations, report.seconds.evaluation, run.output_seconds));
  print_line("written", written);
}

int regularize_files(RegularizedArguments arguments) {
  // One file is a cost matrix, two are points.
  GeometryArguments& given = arguments.geometry;
  if (given.cost.empty() && given.y.empty()) {
    if (given.x.empty()) refuse("cost: is missing; must be a cost matrix, or points, x and y");
    std::swap(given.cost, given.x);
  }
  check_geometry(arguments.geometry);
  std::vector<std::pair<Term, double>> const terms = read_terms(arguments);
  check_files(arguments, terms);
  RegularizedOptions& options = arguments.options;
  ResultFolder const folder(arguments.out);
  RegularizedRun run;
  DeviceChoice device = begin_run(run, arguments.run);
  run.regularizer = regularizer_json(arguments, terms);
  run.sparse = arguments.sparse;

  ProgressLine progress(!arguments.run.quiet);
  progress.show("reading");
  Stopwatch watch;
  RegularizedInputs const in = read_inputs(run, arguments);
  Geometry const geometry = in.geometry.geometry();
  run.note(in.geometry);
  check_values(in.values, run.m);
  options.u = vector("u", in.u);
  options.v = vector("v", in.v);
  if (in.plan) options.plan = costs("plan", *in.plan).cost;
  run.read_seconds = watch.lap();

  options.progress = shown_by(progress);
  note_interrupt();
  progress.show("solving");
  RegularizedPlan const plan = solve_regularized(device.context, geometry, vector("p", in.p), vector("q", in.q),
                                                 regularizer_of(arguments, in, terms), options);
  RegularizedReport const& report = plan.report();
  progress.show("outputs");
  watch.lap();
  std::vector<ResultFile> files = result_files(plan, in, arguments.sparse);
  run.output_seconds = watch.lap();
  progress.erase();

  std::string const json = json_text(report_json(run, options, report));
  std::string const written =
      folder.fill(files, json, {"plan.npy", "plan_indptr.npy", "plan_indices.npy", "plan_data.npy", "map.npy"});
  print_result(arguments.run, json, [&] { print_summary(run, options, report, device, written); });
  return final_code(code_of(report.status), fmt::format(" after {} iterations", report.iterations));
}

}  // namespace

void add_regularized_command(CLI::App& app, int& exit_code) {
  CLI::App& command = *app.add_subcommand(
      "regularized", "Transport by a cost matrix with a regularizer that keeps the plan sparse or grouped");
  auto const arguments = std::make_shared<RegularizedArguments>();
  add_point_options(command, arguments->geometry);
  command.get_option("x")->description("costs C, n x m, inf forbids a pair; or, with y, source points");
  add_cost_option(command, arguments->geometry);
  add_out_folder(command, arguments->out, "folder for the plan, u.npy, v.npy and report.json");
  command
      .add_option("--regularizer", arguments->terms,
                  fmt::format("{} ({})", kRegularizer.description, kRegularizer.constraint.text()))
      ->type_name("NAME ...");
  command
      .add_option("--weight", arguments->weights,
                  fmt::format("{} ({})", kWeight.description, kWeight.constraint.text()))
      ->type_name("VALUE ...");
  add_option(command, kWidth, arguments->width, option_text(Regularizer().hypentropy_width));
  add_file(command, "--p", arguments->p, "masses of the rows (n); uniform if not given");
  add_file(command, "--q", arguments->q, "masses of the columns (m); uniform if not given");
  add_file(command, "--groups", arguments->groups, "of group_lasso: the group of each row (n whole numbers from 0)");
  add_file(command, "--pair-groups", arguments->pair_groups,
           "of group_lasso, instead of --groups: the group of each pair (n x m whole numbers from 0, or -1: none)");
  add_file(command, "--group-weights", arguments->group_weights, "a weight for each group; 1 if not given");
  add_file(command, "--weights", arguments->l1_weights, "of l1: a weight for each pair (n x m)");
  add_file(command, "--mask", arguments->mask, "0 where a pair must have no mass (n x m, bool or whole numbers)");
  add_file(command, "--slopes", arguments->slopes,
           "a term of one's own, sum_ij phi(X_ij): rows of a mass and the slope of phi there (k x 2)");
  add_file(command, "--u", arguments->u, "start from this potential (n), with --v");
  add_file(command, "--v", arguments->v, "start from this potential (m), with --u");
  add_file(command, "--plan", arguments->plan, "start splitting from this plan (n x m)");
  add_file(command, "--values", arguments->values, "m x k; map.npy has their averages over each row of the plan");
  command.add_flag("--sparse", arguments->sparse,
                   "the plan as CSR, plan_indptr.npy, plan_indices.npy and plan_data.npy, instead of plan.npy");
  visit_regularized_options(arguments->options,
                            [&](auto const& field, auto& value) { add_option(command, field, value); });
  add_run_options(command, arguments->run);
  command.callback([arguments, &exit_code] { exit_code = regularize_files(std::move(*arguments)); });
}

}  // namespace monge::cli
