// Errors about cost matrices, in the same words for every backend. Rows and columns are those of the problem, however
// the matrix lies in memory.
#pragma once
#include <cstdint>
#include <span>

#include "core/side.hpp"

namespace monge {

/// Throws invalid_argument "cost: row 3, column 5 is nan; must be finite or +infinity".
[[noreturn]] void throw_bad_cost(std::int64_t row, std::int64_t column, double value);

/// Throws invalid_argument for the first point of `side` that has weight and no finite cost to a point of weight on the
/// other side; `has_partner` tells which points have one.
void require_partners(Side side, std::span<double const> weight, std::span<unsigned char const> has_partner);

/// Throws invalid_argument if the difference of the largest and the smallest finite cost overflows.
void require_finite_range(double least, double most);

/// Throws unsupported "points: a cost matrix has none; ...".
[[noreturn]] void throw_no_points();

}  // namespace monge
