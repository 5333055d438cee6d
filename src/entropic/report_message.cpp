#include "entropic/report_message.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "geometry/point_cost.hpp"

namespace monge {
namespace {

/// Whether the second half of the checks at the final eps has not even halved the error.
bool hardly_falls(Report const& report) {
  std::vector<Check> const& all = report.history;
  auto const first =
      std::find_if(all.rbegin(), all.rend(), [&](Check const& check) { return check.eps != report.eps; });
  auto const count = first - all.rbegin();
  return count > 1 && all.back().marginal_error > 0.5 * all.rbegin()[count / 2].marginal_error;
}

/// "1 sweep", "12 passes", "30 sweeps of coarse clouds and 12 passes".
std::string passes_text(Report const& report) {
  auto const counted = [](int count, char const* one, char const* many) {
    return fmt::format("{} {}", count, count == 1 ? one : many);
  };
  std::string const all = report.newton_steps > 0 ? counted(report.iterations, "pass", "passes")
                                                  : counted(report.iterations, "sweep", "sweeps");
  if (report.coarse_iterations == 0) return all;
  return fmt::format("{} of coarse clouds and {}", counted(report.coarse_iterations, "sweep", "sweeps"), all);
}

/// Words that say which sweeps of a solve in precision auto were in float64, if any.
std::string float64_text(Report const& report) {
  if (report.refinement_iterations == 0) return {};
  return report.refinement_iterations == report.iterations
             ? ", in float64"
             : fmt::format(", the last {} in float64", report.refinement_iterations);
}

/// The criterion and its value.
std::string value_text(Criterion criterion, double value) {
  switch (criterion) {
    case Criterion::l1:
      break;
    case Criterion::gradient:
      return fmt::format("gradient norm {:.2e} of the mass", value);
    case Criterion::gap:
      return fmt::format("gap {:.2e} of the value", value);
  }
  return fmt::format("marginal error {:.2e} of the mass", value);
}

/// The marginal error counts no point without mass: one of weight 0, or one that an unbalanced problem leaves out. Such
/// points have averages and maps, too.
std::string rounding_text(SinkhornProblem const& problem, double rounding) {
  constexpr double kSmall = 1e-2;
  auto const has_idle = [](std::vector<double> const& weight) {
    return std::find(weight.begin(), weight.end(), 0.0) != weight.end();
  };
  bool const counts_all =
      penalties_of(problem.options).balanced() && !has_idle(problem.marginals.a) && !has_idle(problem.marginals.b);
  if (problem.report.precision == Precision::float64 || counts_all || rounding <= kSmall) return {};
  return fmt::format("; averages and maps at points without mass may be off by {:.0e}, unless precision is float64",
                     std::min(rounding, 1.0));
}

/// The end and, if short of the tolerance, a remedy.
std::string sentence(SinkhornProblem const& problem, SolveEnd const& end) {
  Report const& report = problem.report;
  SolveOptions const& options = problem.options;
  std::string const passes = passes_text(report), reached = value_text(options.criterion, end.value);
  bool const is_far = report.status == Status::precision_limit ? report.marginal_error > 0.01 * problem.marginals.mass()
                                                               : hardly_falls(report);
  bool const may_lack_plan = !terms_of(problem.geometry).function && penalties_of(options).balanced() && is_far;
  char const* const lack = "where costs of inf forbid pairs there may be no plan with these a and b, else";
  switch (report.status) {
    case Status::stopped:
      return fmt::format("stopped by the caller after {}{}", passes, end.is_annealing ? ", while annealing" : "");
    case Status::completed:
      if (options.method == Method::newton || options.method == Method::splr)
        return fmt::format("ran {} {}, in {}; {}", report.newton_steps, report.newton_steps == 1 ? "step" : "steps",
                           passes, reached);
      return fmt::format("ran {} as asked; {}", passes, reached);
    case Status::converged:
      return fmt::format("converged after {}{}; {}{}", passes, float64_text(report), reached,
                         rounding_text(problem, end.entry_rounding));
    case Status::precision_limit:
      if (!std::isfinite(report.marginal_error))
        return fmt::format("the plan is beyond what {} holds; eps must be larger{}", name(report.precision),
                           penalties_of(options).balanced() ? "" : ", or the penalties smaller");
      return fmt::format("{} is as far as {} goes at this eps; {}", reached, name(report.precision),
                         report.precision == Precision::tf32      ? "precision float32 or float64 gets further"
                         : report.precision == Precision::float32 ? "precision float64 gets further"
                         : may_lack_plan ? fmt::format("{} a larger eps or tolerance is needed", lack)
                                         : "a larger eps or tolerance is needed");
    case Status::iteration_limit:
      return fmt::format("{} after {} is above the tolerance{} more iterations or a larger eps would help", reached,
                         passes, may_lack_plan ? fmt::format(" and hardly falls; {}", lack) : ";");
  }
  return {};
}

}  // namespace

std::string end_message(SinkhornProblem const& problem, SolveEnd const& end) {
  std::string text = sentence(problem, end);
  // Plans have their digits: they need the potentials beside eps. So have values without forbidden pairs.
  if (end.potential_rounding > 1e-3)
    text += fmt::format("; beside this eps the potentials are rounded to {:.0e} of the costs", end.potential_rounding);
  if (end.value_loss > 1e-3 * std::abs(problem.report.primal))
    text += fmt::format("; beside this eps, forbidden pairs leave the values an error of about {:.0e}", end.value_loss);
  return text;
}

}  // namespace monge
