// The reports as JSON: report.json, which --json prints, too, and the report of `monge project --json`.
#pragma once
#include <optional>
#include <string>
#include <string_view>

#include <monge/assignment.hpp>
#include <monge/context.hpp>
#include <monge/divergence.hpp>
#include <monge/entropic.hpp>
#include <monge/exact.hpp>
#include <monge/gromov.hpp>
#include <monge/projection.hpp>
#include <monge/regularized.hpp>
#include <nlohmann/json.hpp>

#include "geometry_input.hpp"
#include "plan_derivatives.hpp"
#include "plan_entries.hpp"
#include "run.hpp"

namespace monge::cli {

/// The run of a command that has costs.
struct CostRun : Run {
  std::int64_t n = 0, m = 0;
  std::optional<std::int64_t> d;  ///< The dimension of points, if there are points.
  nlohmann::ordered_json cost_options = nlohmann::ordered_json::object();  ///< GeometryInput::options()

  /// Takes the shape and the options of the costs.
  void note(GeometryInput const& geometry);
};

struct SolveRun : CostRun {
  EntryOptions entries;
  DerivativeOptions derivatives;
  std::optional<GradientReport> gradients;  ///< Present if the run asked for gradients.
  std::optional<LinearReport> hvp;          ///< Present if the run asked for a Hessian product.
  double map_seconds = 0, derivatives_seconds = 0, entries_seconds = 0;
};

struct GromovRun : Run {
  std::int64_t n = 0, m = 0, p = 0, q = 0, r = 0;  ///< Sources, targets, their dimensions, features.
  bool fused = false;                              ///< Whether there are costs or features.
  std::optional<GromovLoss> loss;                  ///< Present for matrices.
};

struct DivergenceRun : CostRun {
  std::optional<DivergenceGradient> gradients;  ///< Present if the run asked for gradients.
  double solve_seconds = 0, gradient_seconds = 0;
};

struct RegularizedRun : CostRun {
  nlohmann::ordered_json regularizer;  ///< Each term that was given, with its weight.
  bool sparse = false;
  double output_seconds = 0;
};

struct TransformRun : CostRun {
  char const* given = "g";  ///< The potential that is transformed.
  double semi_dual_value = 0;
  double transform_seconds = 0;
};

struct ProjectRun : Run {
  std::int64_t batch = 0;
  int rows = 0, columns = 0;  ///< Size of the logits.
  std::string preset;
  Status status = Status::completed;
  std::string message;  ///< A note for the user about the result; often empty.
  double row_error = 0, column_error = 0;
  double project_seconds = 0, check_seconds = 0;
};

struct AssignRun : Run {
  std::int64_t problems = 0, rows = 0, columns = 0;
  bool maximize = false;
  std::int64_t infeasible = 0, invalid = 0;  ///< Problems that ended so.
  double value = 0;                          ///< The sum over all pairs.
  double assign_seconds = 0;

  /// "optimal", or the worst status of a problem.
  std::string_view status() const {
    return name(invalid > 0      ? AssignmentStatus::invalid
                : infeasible > 0 ? AssignmentStatus::infeasible
                                 : AssignmentStatus::optimal);
  }
};

/// Numbers that are not finite come out as null.
nlohmann::ordered_json report_json(SolveRun const& run, SolveOptions const& options, Report const& report);
nlohmann::ordered_json report_json(DivergenceRun const& run, SolveOptions const& options, Divergence const& divergence);
nlohmann::ordered_json report_json(CostRun const& run, ExactOptions const& options, ExactReport const& report);
nlohmann::ordered_json report_json(GromovRun const& run, GromovOptions const& options, GromovReport const& report);
nlohmann::ordered_json report_json(RegularizedRun const& run, RegularizedOptions const& options,
                                   RegularizedReport const& report);
nlohmann::ordered_json report_json(TransformRun const& run);
nlohmann::ordered_json report_json(ProjectRun const& run, ProjectionOptions const& options);
nlohmann::ordered_json report_json(AssignRun const& run);

nlohmann::ordered_json device_json(DeviceInfo const& device);
nlohmann::ordered_json versions_json();

/// Two spaces of indentation and a final newline; file names that are not UTF-8 are made so.
std::string json_text(nlohmann::ordered_json const& json);

}  // namespace monge::cli
