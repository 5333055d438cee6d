// Checks of the matrices of a regularised problem, in the same words for every backend. Rows and columns are those of
// the problem, however a matrix lies in memory.
#pragma once
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>

#include "core/host_device.hpp"
#include "core/side.hpp"
#include "geometry/cost_matrix.hpp"

namespace monge {

/// A constructor throws for the first entry, row by row, that fails one of these checks.
MONGE_HOST_DEVICE inline bool is_cost(double value) {
  return value >= std::numeric_limits<double>::lowest();
}
MONGE_HOST_DEVICE inline bool is_l1_weight(double value) {
  return value >= 0 && value <= std::numeric_limits<double>::max();
}
MONGE_HOST_DEVICE inline bool is_mask(double value) {
  return std::isfinite(value);
}

/// Throws invalid_argument for the first of these that fails: "mask: row 3, column 5 is nan; must be finite". Numbers
/// that are not given are 0.
[[noreturn]] void throw_bad_entry(std::int64_t row, std::int64_t column, double cost, double l1_weight, double mask);

/// Throws invalid_argument for the first point of `side` that has mass but no allowed pair with a point of mass on the
/// other side; `has_partner` tells which points have one.
void require_allowed_partners(Side side, std::span<double const> shares, std::span<unsigned char const> has_partner);

/// Throws invalid_argument for the first sum of a start's rows or columns that is not finite.
void require_finite_start(std::span<double const> rows, std::span<double const> columns);

/// Throws invalid_argument: pairs are allowed, but no plan of them has these marginals. `own` names a term of the
/// user's own, which may be the obstacle; null without one.
[[noreturn]] void throw_no_plan(char const* own = nullptr);

}  // namespace monge
