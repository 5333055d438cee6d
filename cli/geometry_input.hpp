// Where the costs of a command come from: two files of points and what their distance costs, or a file of costs.
#pragma once
#include <optional>
#include <string>

#include <CLI/App.hpp>
#include <monge/geometry.hpp>
#include <nlohmann/json.hpp>

#include "array.hpp"
#include "run.hpp"

namespace monge::cli {

/// As the command line says it.
struct GeometryArguments {
  std::string x, y, cost, labels_x, labels_y, label_cost;
  std::optional<double> scale, norm_p, label_weight;
  std::optional<CostFunction> cost_function;
};

/// Of points, those of two cost functions.
bool has_point_derivatives(GeometryArguments const& arguments);

/// x, y and the options of costs of points.
void add_point_options(CLI::App& command, GeometryArguments& arguments);
/// --cost, which may stand in the place of points.
void add_cost_option(CLI::App& command, GeometryArguments& arguments);

/// What the files hold; empty where none is given.
struct GeometryInput {
  std::optional<Array> x, y, cost, label_cost;
  std::optional<IndexArray> labels_x, labels_y;
  GeometryArguments arguments;

  std::int64_t n() const { return cost ? cost->rows() : x->rows(); }
  std::int64_t m() const { return cost ? cost->columns() : y->rows(); }
  /// Of points.
  std::optional<std::int64_t> d() const { return x ? std::optional(x->columns()) : std::nullopt; }
  /// Views of the arrays here. Throws Error.
  Geometry geometry() const;
  /// The options of the costs, for a report; null where one has no meaning.
  nlohmann::ordered_json options() const;
};

/// Throws Error, before a file is read, where the arguments do not go together.
void check_geometry(GeometryArguments const& arguments);
GeometryInput read_geometry(Run& run, GeometryArguments const& arguments);

}  // namespace monge::cli
