// The rounding of logits, entries and potentials of one problem.
#pragma once
#include <monge/report.hpp>

namespace monge {

/// Potentials are as small as the costs, but their rounding error is proportional to eps. Where the costs are below
/// this fraction of eps, potentials in float32 keep few digits.
inline constexpr double kFewDigits = 0x1p-10;

/// Half a unit in the last place of the products.
double unit_roundoff(Precision precision);

/// The numbers of a problem by which its logits grow.
struct LogitScale {
  double cost_bound;     // EntropicOperator::cost_size().centred_bound
  double level;          // The size of the part of the potentials that penalties add to the costs'.
  double least_penalty;  // The smaller rho.

  /// The size of a logit at `eps`, for costs of size `bound`: its rounding error is that times the unit roundoff.
  double size(double eps, double bound) const;
  /// The rounding error of a logit in sweeps at `eps`.
  double rounding(Precision precision, double eps) const { return unit_roundoff(precision) * size(eps, cost_bound); }
  /// The relative rounding error of an entry of the plan, at costs of size `bound`.
  double entry_rounding(Precision precision, double eps, double bound) const;
  /// The rounding of the potentials as a fraction of the costs; 0 for costs that are all equal.
  double potential_rounding(Precision precision, double eps) const;
  /// Whether float64 leaves no digit of a plan at `eps`.
  bool loses_plan(double eps) const;
};

}  // namespace monge
