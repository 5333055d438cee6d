// The masses of an exact solve: weights as whole numbers, and what must hold of them.
#pragma once
#include <cmath>
#include <cstdint>
#include <vector>

#include <monge/exact.hpp>

#include "core/numbers.hpp"
#include "entropic/input.hpp"
#include "exact/network_simplex.hpp"
#include "geometry/validation.hpp"
#include "seam/backend.hpp"

namespace monge {

/// Masses are the same if they differ by at most this fraction: the rounding of weights and of their sums.
inline constexpr double kSameMass = 1e-12;

/// Weights as whole numbers of quanta; both sides have one total. In a relaxed problem the last column is a dustbin
/// that takes what rows leave, and the last row gives what columns lack.
struct Masses {
  std::vector<Mass> a, b;
  double quantum;  // Times 2^exponent.
  int exponent;

  double weight(Mass mass) const { return std::ldexp(static_cast<double>(mass) * quantum, exponent); }
};

bool is_partial(ExactOptions const& options);
bool is_relaxed(ExactOptions const& options);
bool is_uniform(std::vector<double> const& weights);
Mass total_of(std::vector<Mass> const& masses);

Masses masses_of(ValidMarginals const& marginals, ExactOptions const& options);
ValidMarginals marginals_of(Backend const& backend, VectorView a, VectorView b, Shape shape,
                            ExactOptions const& options);

/// The largest potential of the first `size` points, of those with mass; -infinity if none has mass.
double largest_with_mass(std::vector<Mass> const& masses, std::vector<double> const& potentials, std::int64_t size);

}  // namespace monge
