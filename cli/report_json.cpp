#include "report_json.hpp"

#include <utility>

#include "option_text.hpp"

namespace monge::cli {

using Json = nlohmann::ordered_json;

void CostRun::note(GeometryInput const& geometry) {
  n = geometry.n();
  m = geometry.m();
  d = geometry.d();
  cost_options = geometry.options();
}

Json device_json(DeviceInfo const& device) {
  return {{"device", to_string(device.device)},
          {"name", device.name},
          {"instruction_set", device.instruction_set},
          {"units", device.units},
          {"memory_bytes", device.memory_bytes}};
}

Json versions_json() {
  Json json;
  for (ComponentVersion const& component : component_versions()) json[component.name] = component.version;
  return json;
}

namespace {

Json problem_json(CostRun const& run) {
  return {{"n", run.n}, {"m", run.m}, {"d", to_json(run.d)}, {"files", run.files}};
}

/// The part of all reports: the device as requested and as chosen, and the versions.
void add_run(Json& json, Run const& run) {
  json["options"]["device"] = run.arguments.device;
  json["options"]["threads"] = run.arguments.threads;
  json["device"] = to_string(run.device.device);
  json["device_name"] = run.device.name;
  json["instruction_set"] = run.device.instruction_set;
  json["units"] = run.device.units;
  json["versions"] = versions_json();
}

/// The end of a solve and the values that it reached.
void add_values(Json& json, Report const& report) {
  json["status"] = name(report.status);
  json["message"] = report.message;
  json["eps"] = report.eps;
  json["mean_cost"] = report.mean_cost;
  json["eps_relative"] = report.eps_relative;
  json["ranks"] = report.ranks;
  json["iterations"] = report.iterations;
  json["annealing_iterations"] = report.annealing_iterations;
  json["coarse_iterations"] = report.coarse_iterations;
  json["refinement_iterations"] = report.refinement_iterations;
  json["newton_steps"] = report.newton_steps;
  json["newton_iterations"] = report.newton_iterations;
  json["newton_on_host"] = report.newton_on_host;
  json["precision"] = name(report.precision);
  json["certified"] = report.certified;
  json["penalty_a"] = to_json(report.penalty_a);
  json["penalty_b"] = to_json(report.penalty_b);
  json["mass"] = report.mass;
  json["mass_b"] = report.mass_b;
  json["transported_mass"] = report.transported_mass;
  json["marginal_error"] = report.marginal_error;
  json["gradient_norm"] = report.gradient_norm;
  json["transport_cost"] = report.transport_cost;
  json["primal"] = report.primal;
  json["dual"] = report.dual;
  json["gap"] = report.gap;
  json["left_out"] = report.left_out;
  json["left_out_of_row"] = report.left_out_of_row;
  json["peak_bytes"] = report.peak_bytes;
}

Json seconds_json(Report const& report) {
  return {{"setup", report.seconds.setup},
          {"sweeps", report.seconds.sweeps},
          {"certificate", report.seconds.certificate},
          {"solve", report.seconds.total}};
}

Json history_json(Report const& report) {
  Json history = Json::array();
  for (Check const& check : report.history) {
    history.push_back({{"iteration", check.iteration},
                       {"eps", check.eps},
                       {"marginal_error", check.marginal_error},
                       {"relaxation", check.relaxation},
                       {"kind", name(check.kind)},
                       {"precision", name(check.precision)},
                       {"gradient_norm", check.gradient_norm},
                       {"seconds", check.seconds}});
  }
  return history;
}

void add_solve_options(Json& given, SolveOptions const& options) {
  visit_solve_options(options, [&](auto const& field, auto const& value) { given[field.name] = to_json(value); });
  given[options.eps == 0 ? "eps" : "eps_relative"] = nullptr;  // One takes the place of the other.
}

}  // namespace

Json report_json(SolveRun const& run, SolveOptions const& options, Report const& report) {
  Json json;
  add_values(json, report);
  json["seconds"] = {{"read", run.read_seconds},
                     {"setup", report.seconds.setup},
                     {"sweeps", report.seconds.sweeps},
                     {"certificate", report.seconds.certificate},
                     {"solve", report.seconds.total},
                     {"map", run.map_seconds},
                     {"derivatives", run.derivatives_seconds},
                     {"entries", run.entries_seconds},
                     {"total", run.read_seconds + report.seconds.total + run.map_seconds + run.derivatives_seconds +
                                   run.entries_seconds}};
  if (run.gradients)
    json["gradients"] = {{"scale", run.gradients->scale},
                         {"label_weight", run.gradients->label_weight},
                         {"distance", run.gradients->distance},
                         {"iterations", run.gradients->iterations}};
  if (run.hvp)
    json["hvp"] = {
        {"status", name(run.hvp->status)}, {"iterations", run.hvp->iterations}, {"residual", run.hvp->residual}};
  json["problem"] = problem_json(run);

  Json& given = json["options"] = Json::object();
  auto const add = [&](auto const& field, auto const& value) { given[field.name] = to_json(value); };
  add_solve_options(given, options);
  visit_entry_options(run.entries, add);
  visit_hvp_options(run.derivatives, add);
  given.update(run.cost_options);
  add_run(json, run);

  json["history"] = history_json(report);
  return json;
}

Json report_json(DivergenceRun const& run, SolveOptions const& options, Divergence const& divergence) {
  Json json;
  json["status"] = name(divergence.status());
  json["divergence"] = divergence.value;
  json["gap"] = divergence.gap;
  if (run.gradients)
    json["gradients"] = {{"scale", run.gradients->scale},
                         {"label_weight", run.gradients->label_weight},
                         {"marginal_error", run.gradients->marginal_error}};
  json["seconds"] = {{"read", run.read_seconds},
                     {"solve", run.solve_seconds},
                     {"gradients", run.gradient_seconds},
                     {"total", run.read_seconds + run.solve_seconds + run.gradient_seconds}};
  json["problem"] = problem_json(run);
  Json& given = json["options"] = Json::object();
  add_solve_options(given, options);
  given.update(run.cost_options);
  add_run(json, run);
  for (auto const& [key, plan] : {std::pair("ab", &divergence.ab), {"aa", &divergence.aa}, {"bb", &divergence.bb}}) {
    Json& of = json[key] = Json::object();
    add_values(of, plan->report());
    of["seconds"] = seconds_json(plan->report());
    of["history"] = history_json(plan->report());
  }
  return json;
}

Json report_json(GromovRun const& run, GromovOptions const& options, GromovReport const& report) {
  Json json;
  json["status"] = name(report.status);
  json["message"] = report.message;
  json["value"] = report.value;
  json["quadratic"] = report.quadratic;
  json["linear"] = report.linear;
  json["entropy"] = report.entropy;
  json["divergence"] = report.divergence;
  json["alpha"] = report.alpha;
  json["lower_bound"] = report.lower_bound;
  json["gap"] = report.gap;
  json["problems"] = report.problems;
  json["stationarity"] = report.stationarity;
  json["change"] = report.change;
  json["marginal_error"] = report.marginal_error;
  json["mass"] = report.mass;
  json["iterations"] = report.iterations;
  json["sweeps"] = report.sweeps;
  json["best"] = report.best;
  Json& starts = json["starts"] = Json::array();
  for (GromovStart const& start : report.starts)
    starts.push_back({{"kind", name(start.kind)},
                      {"iterations", start.iterations},
                      {"value", start.value},
                      {"finished", start.finished}});
  json["seconds"] = {{"read", run.read_seconds},
                     {"bounds", report.seconds.bounds},
                     {"steps", report.seconds.steps},
                     {"partition", report.seconds.partition},
                     {"total", run.read_seconds + report.seconds.total}};
  json["problem"] = {{"n", run.n}, {"m", run.m}, {"p", run.p}, {"q", run.q}, {"r", run.r}, {"files", run.files}};
  if (run.loss) json["problem"]["loss"] = name(*run.loss);
  Json& given = json["options"] = Json::object();
  visit_gromov_options(options, [&](auto const& field, auto const& value) { given[field.name] = to_json(value); });
  add_run(json, run);
  return json;
}

Json report_json(RegularizedRun const& run, RegularizedOptions const& options, RegularizedReport const& report) {
  Json json;
  json["status"] = name(report.status);
  json["message"] = report.message;
  json["method"] = name(report.method);
  json["iterations"] = report.iterations;
  json["newton_steps"] = report.newton_steps;
  json["linear_iterations"] = report.linear_iterations;
  json["newton_on_host"] = report.newton_on_host;
  json["step"] = report.step;
  json["weight"] = report.weight;
  json["precision"] = name(report.precision);
  json["mass"] = report.mass;
  json["transported_mass"] = report.transported_mass;
  json["primal_residual"] = report.primal_residual;
  json["marginal_error"] = report.marginal_error;
  json["transport_cost"] = report.transport_cost;
  json["regularization"] = report.regularization;
  json["primal"] = report.primal;
  json["dual"] = report.dual;
  json["gap"] = report.gap;
  json["nonzeros"] = report.nonzeros;
  json["peak_bytes"] = report.peak_bytes;
  json["seconds"] = {{"read", run.read_seconds},
                     {"setup", report.seconds.setup},
                     {"iterations", report.seconds.iterations},
                     {"evaluation", report.seconds.evaluation},
                     {"solve", report.seconds.total},
                     {"outputs", run.output_seconds},
                     {"total", run.read_seconds + report.seconds.total + run.output_seconds}};
  json["problem"] = problem_json(run);
  json["regularizer"] = run.regularizer;
  Json& given = json["options"] = Json::object();
  visit_regularized_options(options, [&](auto const& field, auto const& value) { given[field.name] = to_json(value); });
  given["sparse"] = run.sparse;
  given.update(run.cost_options);
  add_run(json, run);
  Json& history = json["history"] = Json::array();
  for (RegularizedCheck const& check : report.history) {
    history.push_back({{"iteration", check.iteration},
                       {"weight", check.weight},
                       {"primal_residual", check.primal_residual},
                       {"gap", check.gap},
                       {"step", check.step},
                       {"nonzeros", check.nonzeros},
                       {"seconds", check.seconds}});
  }
  return json;
}

Json report_json(CostRun const& run, ExactOptions const& options, ExactReport const& report) {
  Json json;
  json["status"] = name(report.status);
  json["message"] = report.message;
  json["rounds"] = report.rounds;
  json["candidates"] = report.candidates;
  json["pivots"] = report.pivots;
  json["nonzeros"] = report.nonzeros;
  json["mass"] = report.mass;
  json["transported_mass"] = report.transported_mass;
  json["missing_mass"] = report.missing_mass;
  json["transport_cost"] = report.transport_cost;
  json["value"] = report.value;
  json["mass_price"] = report.mass_price;
  json["dual"] = report.dual;
  json["gap"] = report.gap;
  json["worst_reduced_cost"] = report.worst_reduced_cost;
  json["cost_scale"] = report.cost_scale;
  json["seconds"] = {{"read", run.read_seconds},        {"start", report.seconds.start},
                     {"search", report.seconds.search}, {"pricing", report.seconds.pricing},
                     {"solve", report.seconds.total},   {"total", run.read_seconds + report.seconds.total}};
  json["problem"] = problem_json(run);
  Json& given = json["options"] = run.cost_options;
  visit_exact_options(options, [&](auto const& field, auto const& value) { given[field.name] = to_json(value); });
  add_run(json, run);
  return json;
}

Json report_json(TransformRun const& run) {
  Json json;
  json["transform_of"] = run.given;
  json["semi_dual_value"] = run.semi_dual_value;
  json["seconds"] = {{"read", run.read_seconds},
                     {"transform", run.transform_seconds},
                     {"total", run.read_seconds + run.transform_seconds}};
  json["problem"] = problem_json(run);
  json["options"] = run.cost_options;
  add_run(json, run);
  return json;
}

Json report_json(AssignRun const& run) {
  Json json;
  json["status"] = run.status();
  json["infeasible"] = run.infeasible;
  json["invalid"] = run.invalid;
  json["value"] = run.value;
  json["seconds"] = {
      {"read", run.read_seconds}, {"assign", run.assign_seconds}, {"total", run.read_seconds + run.assign_seconds}};
  json["problem"] = {{"batch", run.problems}, {"rows", run.rows}, {"columns", run.columns}, {"files", run.files}};
  json["options"] = {{"maximize", run.maximize}};
  add_run(json, run);
  return json;
}

Json report_json(ProjectRun const& run, ProjectionOptions const& options) {
  Json json;
  json["status"] = name(run.status);
  json["message"] = run.message;
  json["row_error"] = run.row_error;
  json["column_error"] = run.column_error;
  json["seconds"] = {{"read", run.read_seconds},
                     {"project", run.project_seconds},
                     {"check", run.check_seconds},
                     {"total", run.read_seconds + run.project_seconds + run.check_seconds}};
  json["problem"] = {{"batch", run.batch}, {"rows", run.rows}, {"columns", run.columns}, {"files", run.files}};
  Json& given = json["options"] = {{"preset", run.preset}};
  visit_forward_options(options, [&](auto const& field, auto const& value) { given[field.name] = to_json(value); });
  add_run(json, run);
  return json;
}

std::string json_text(Json const& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace monge::cli
