// The costs of a command: two files of points with a cost function, or a file of costs.
#pragma once
#include <optional>
#include <string>

#include <CLI/App.hpp>
#include <monge/geometry.hpp>
#include <nlohmann/json.hpp>

#include "array.hpp"
#include "run.hpp"

namespace monge::cli {

/// The arguments of the command line.
struct GeometryArguments {
  std::string x, y, cost, labels_x, labels_y, label_cost;
  std::optional<double> scale, norm_p, label_weight;
  std::optional<CostFunction> cost_function;
};

/// Adds x, y and the options of costs of points.
void add_point_options(CLI::App& command, GeometryArguments& arguments);
/// Adds --cost, which may replace points.
void add_cost_option(CLI::App& command, GeometryArguments& arguments);

/// The contents of the files; empty where no file is given.
struct GeometryInput {
  std::optional<Array> x, y, cost, label_cost;
  std::optional<IndexArray> labels_x, labels_y;
  GeometryArguments arguments;

  std::int64_t n() const { return cost ? cost->rows() : x->rows(); }
  std::int64_t m() const { return cost ? cost->columns() : y->rows(); }
  /// The dimension of points.
  std::optional<std::int64_t> d() const { return x ? std::optional(x->columns()) : std::nullopt; }
  /// Views of the arrays here. Throws Error.
  Geometry geometry() const;
  /// The options of the costs, for a report; null where one has no meaning.
  nlohmann::ordered_json options() const;
};

/// Throws Error, before a file is read, if the arguments do not go together.
void check_geometry(GeometryArguments const& arguments);
GeometryInput read_geometry(Run& run, GeometryArguments const& arguments);

}  // namespace monge::cli
