// What a solve is given besides its costs: options, weights and a warm start.
#pragma once
#include <vector>

#include <monge/entropic.hpp>

#include "operators/backend.hpp"

namespace monge {

void validate(SolveOptions const& options);
/// Both potentials or neither, their shapes, and that every entry is finite.
void validate_warm_start(Backend const& backend, VectorView f, VectorView g, std::int64_t n, std::int64_t m);

/// With their totals.
struct ValidMarginals : Marginals {
  double mass = 1;     // Of a,
  double total_b = 1;  // and of b, which may differ in the last digits.
};

/// To what the tolerance of a solve needs.
void require_equal_totals(ValidMarginals const& marginals, double tolerance);

/// Reads, checks and completes the weights: an empty one is uniform.
ValidMarginals validated_marginals(Backend const& backend, VectorView a, VectorView b, std::int64_t n, std::int64_t m,
                                   double tolerance);

}  // namespace monge
