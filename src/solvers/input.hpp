// What a solve is given besides its costs: options, weights and a warm start.
#pragma once
#include <vector>

#include <monge/entropic.hpp>

#include "operators/backend.hpp"

namespace monge {

void validate(SolveOptions const& options);
/// The options with eps in the units of the cost, whose mean this is. Throws where that mean gives no positive eps.
SolveOptions with_eps(SolveOptions options, double mean_cost);
/// A warm start: its shape, and that every entry is finite.
void validate_potential(char const* field, Backend const& backend, VectorView view, std::int64_t size);

/// With their common total.
struct ValidMarginals : Marginals {
  double mass = 1;
};

/// Reads, checks and completes the weights: an empty one is uniform.
ValidMarginals validated_marginals(Backend const& backend, VectorView a, VectorView b, std::int64_t n, std::int64_t m,
                                   double tolerance);

}  // namespace monge
