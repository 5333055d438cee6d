#include "entropic/policy/rounding.hpp"

namespace monge {
namespace {

/// With a rounding error of a logit above this number (in nats) of float64, the entries of a plan are noise, even where
/// the costs of the pairs that have mass are far below the largest.
constexpr double kLostDigits = 0x1p20;

}  // namespace

double unit_roundoff(Precision precision) {
  switch (precision) {
    case Precision::tf32:
      return 0x1p-11;
    case Precision::automatic:
    case Precision::float32:
      return 0x1p-24;
    case Precision::float64:
      return 0x1p-53;
  }
  return 0;
}

double LogitScale::size(double eps, double bound) const {
  // With a penalty the target marginals have the factor exp(-f / rho).
  return 1 + (bound + level) / eps + bound / least_penalty;
}

double LogitScale::entry_rounding(Precision precision, double eps, double bound) const {
  // Plans of tf32 sweeps multiply in float32.
  Precision const products = precision == Precision::tf32 ? Precision::float32 : precision;
  return unit_roundoff(products) * size(eps, bound);
}

double LogitScale::potential_rounding(Precision precision, double eps) const {
  return cost_bound > 0 ? unit_roundoff(precision) * eps / cost_bound : 0;
}

bool LogitScale::loses_plan(double eps) const {
  return unit_roundoff(Precision::float64) * cost_bound > kLostDigits * eps;
}

}  // namespace monge
