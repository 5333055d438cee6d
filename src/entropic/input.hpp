// What a solve is given besides its costs: options, weights and a warm start.
#pragma once
#include <algorithm>
#include <vector>

#include <monge/entropic.hpp>

#include "backend/backend.hpp"

namespace monge {

void validate(SolveOptions const& options);
/// The options with eps in the units of the cost, whose mean this is. Throws where that mean gives no positive eps.
SolveOptions with_eps(SolveOptions options, double mean_cost);

inline Penalties penalties_of(SolveOptions const& options) {
  return {options.penalty_a, options.penalty_b};
}

/// With their totals.
struct ValidMarginals : Marginals {
  double total_a = 1, total_b = 1;
  bool from_float32 = false;  ///< Either side was given in it.
  /// What errors and tolerances are relative to.
  double mass() const { return std::max(total_a, total_b); }
};

/// Potentials to start from; empty where there are none.
struct WarmStart {
  std::vector<double> f, g;
};
/// Both potentials or neither, their shapes, and that every entry is finite. A point of no weight takes no part in
/// sweeps: its potential may be +infinity, as plans have it where all its pairs are forbidden, and starts from 0 then.
WarmStart validated_warm_start(Backend const& backend, VectorView f, VectorView g, Marginals const& marginals);

/// What messages call the weights of the two sides.
struct WeightNames {
  char const* a = "a";
  char const* b = "b";
};
/// Reads, checks and completes the weights: an empty one is uniform, with the total of the other. The totals may
/// differ.
ValidMarginals read_marginals(Backend const& backend, WeightNames names, VectorView a, VectorView b, std::int64_t n,
                              std::int64_t m);
/// To what a tolerance (0: none) on the marginals needs, or rounding of float32 weights leaves. `advice` ends the
/// message.
void require_equal_totals(WeightNames names, ValidMarginals const& marginals, double tolerance, char const* advice);
/// Where both marginals are constraints: requires equal totals, and scales b by what is left between them.
ValidMarginals with_equal_totals(ValidMarginals marginals, SolveOptions const& options);

}  // namespace monge
