// The input of a solve besides its costs: options, weights and a warm start.
#pragma once
#include <algorithm>
#include <vector>

#include <monge/entropic.hpp>

#include "geometry/validation.hpp"
#include "seam/backend.hpp"

namespace monge {

/// The options with eps in the units of the cost. Throws if eps_relative * mean_cost is not positive and finite.
SolveOptions with_eps(SolveOptions options, double mean_cost);

inline Penalties penalties_of(SolveOptions const& options) {
  return {options.penalty_a, options.penalty_b};
}

/// Marginals with their totals.
struct ValidMarginals : Marginals {
  double total_a = 1, total_b = 1;
  bool from_float32 = false;  ///< Whether either side was given in float32.
  /// Errors and tolerances are relative to this mass.
  double mass() const { return std::max(total_a, total_b); }
};

/// The names of potentials in messages.
struct PotentialNames {
  char const* f = "f";
  char const* g = "g";
};
/// Potentials to start from; empty for a cold start.
struct WarmStart {
  std::vector<double> f, g;
  PotentialNames names{};
};
/// Requires both potentials or neither, of the right sizes, with finite entries. A point of zero weight takes no part
/// in sweeps and starts from 0: its potential may be +infinity, as in a plan where all its pairs are forbidden.
WarmStart validated_warm_start(Backend const& backend, VectorView f, VectorView g, Marginals const& marginals,
                               PotentialNames names = {});

/// Refuses potentials so large that their rounding exceeds `eps`: a plan of them would have no correct digit.
void require_digits(WarmStart const& potentials, Marginals const& marginals, double eps);

/// The names of the weights in messages, and of the lines of C that have them.
struct WeightNames {
  char const* a = "a";
  char const* b = "b";
  LineNames lines{};
};
/// Reads and checks the n and m weights. An empty vector means uniform weights with the total of the other side. The
/// totals may differ.
ValidMarginals read_marginals(Backend const& backend, WeightNames names, VectorView a, VectorView b, std::int64_t n,
                              std::int64_t m);
/// The same with the names "a" and "b", for a problem of this shape.
ValidMarginals read_marginals(Backend const& backend, VectorView a, VectorView b, Shape shape);
/// Requires equal totals, up to the difference that `tolerance` (0: none) on the marginals allows or the rounding of
/// float32 weights explains. `advice` ends the message.
void require_equal_totals(WeightNames names, ValidMarginals const& marginals, double tolerance, char const* advice);
/// If both marginals are constraints, requires equal totals and scales b to remove the remaining difference.
ValidMarginals with_equal_totals(ValidMarginals marginals, SolveOptions const& options,
                                 char const* advice = "; unequal totals need a solve with penalty_a or penalty_b");

}  // namespace monge
