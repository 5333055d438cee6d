#include "geometry_input.hpp"

#include "command_options.hpp"

namespace monge::cli {
namespace {

constexpr Field kScale{"scale", kPositive, "factor of the cost function"};
constexpr Field kCostFunction{"cost_function", OneOf<CostFunction>(), "cost of two points; cosine is 1 - cos"};
constexpr Field kNormP{"norm_p", at_least(1), "p of p-norm, inf too"};
constexpr Field kLabelWeight{"label_weight", kFinite, "factor of label_cost"};

/// Calls visit(field, value) for each option that is not a file.
template <class Arguments, class Visit>
void visit_values(Arguments& arguments, Visit const& visit) {
  visit(kScale, arguments.scale);
  visit(kCostFunction, arguments.cost_function);
  visit(kNormP, arguments.norm_p);
  visit(kLabelWeight, arguments.label_weight);
}

/// Calls visit(field, path, description) for each file of labels.
template <class Arguments, class Visit>
void visit_label_files(Arguments& arguments, Visit const& visit) {
  visit("labels_x", arguments.labels_x, "classes of the sources (n whole numbers from 0), with label_cost");
  visit("labels_y", arguments.labels_y, "classes of the targets (m)");
  visit("label_cost", arguments.label_cost, "costs between classes: classes of x by classes of y");
}

}  // namespace

void add_point_options(CLI::App& command, GeometryArguments& arguments) {
  add_file(command, "x", arguments.x, "source points, n x d: .npy (float32 or float64) or .csv");
  add_file(command, "y", arguments.y, "target points, m x d");
  PointCloud const standard;
  add_option(command, kScale, arguments.scale, option_text(standard.scale));
  add_option(command, kCostFunction, arguments.cost_function, option_text(standard.cost_function));
  add_option(command, kNormP, arguments.norm_p, option_text(standard.p));
  visit_label_files(arguments, [&](char const* field, std::string& path, char const* description) {
    add_file(command, flag(field), path, description);
  });
  add_option(command, kLabelWeight, arguments.label_weight, option_text(standard.labels.weight));
}

void add_cost_option(CLI::App& command, GeometryArguments& arguments) {
  add_file(command, "--cost", arguments.cost, "a cost matrix, n x m, instead of points; inf forbids a pair");
}

void check_geometry(GeometryArguments const& given) {
  if (given.cost.empty()) {
    if (given.y.empty())
      refuse("{}: is missing; must be points, x and y, or costs in their place", given.x.empty() ? "x" : "y");
    if (given.norm_p && given.cost_function != CostFunction::p_norm)
      refuse("norm_p: is {}; is for the cost function p-norm", *given.norm_p);
    bool const labelled = !given.labels_x.empty() || !given.labels_y.empty() || !given.label_cost.empty();
    if (given.label_weight && !labelled) refuse("label_weight: is {}; is for labels", *given.label_weight);
    if (labelled) {
      visit_label_files(given, [](char const* field, std::string const& path, char const*) {
        if (path.empty()) refuse("{}: is missing; labels need labels_x, labels_y and label_cost", field);
      });
    }
    return;
  }
  if (!given.x.empty())
    refuse("cost: is {}; must not be given with points, x is {}; cost_function is for points", given.cost, given.x);
  visit_values(given, [](auto const& field, auto const& value) {
    if (value) refuse("{}: is {}; is for points, and must not be given with cost", field.name, option_text(value));
  });
  visit_label_files(given, [](char const* field, std::string const& path, char const*) {
    if (!path.empty()) refuse("{}: is {}; is for points, and must not be given with cost", field, path);
  });
}

GeometryInput read_geometry(Run& run, GeometryArguments const& given) {
  auto const read = [&](char const* field, std::string const& path) { return read_optional_input(run, field, path); };
  auto const read_labels = [&](char const* field, std::string const& path) {
    return path.empty() ? std::nullopt : std::optional(read_index_input(run, field, path));
  };
  return {.x = read("x", given.x),
          .y = read("y", given.y),
          .cost = read_optional_costs(run, "cost", given.cost),
          .label_cost = read("label_cost", given.label_cost),
          .labels_x = read_labels("labels_x", given.labels_x),
          .labels_y = read_labels("labels_y", given.labels_y),
          .arguments = given};
}

Geometry GeometryInput::geometry() const {
  if (cost) return costs("cost", *cost);
  PointCloud clouds{points("x", *x), points("y", *y)};
  clouds.scale = arguments.scale.value_or(clouds.scale);
  clouds.cost_function = arguments.cost_function.value_or(clouds.cost_function);
  clouds.p = arguments.norm_p.value_or(clouds.p);
  if (label_cost) {
    clouds.labels = {labels("labels_x", labels_x), labels("labels_y", labels_y), costs("label_cost", *label_cost).cost};
    clouds.labels.weight = arguments.label_weight.value_or(clouds.labels.weight);
  }
  return clouds;
}

nlohmann::ordered_json GeometryInput::options() const {
  PointCloud const standard;
  nlohmann::ordered_json json = nlohmann::ordered_json::object();
  auto const add = [&](auto const& field, auto const& given, bool applies, auto default_value) {
    json[field.name] = applies ? to_json(given.value_or(default_value)) : nullptr;
  };
  add(kScale, arguments.scale, !cost, standard.scale);
  add(kCostFunction, arguments.cost_function, !cost, standard.cost_function);
  add(kNormP, arguments.norm_p, arguments.cost_function == CostFunction::p_norm, standard.p);
  add(kLabelWeight, arguments.label_weight, label_cost.has_value(), standard.labels.weight);
  return json;
}

}  // namespace monge::cli
