// What a cost matrix must fulfil, for the backends that look through one.
#pragma once
#include <cstdint>

#include "operators/side.hpp"

namespace monge {

/// Throws invalid_argument "cost: row 3, column 5 is nan; must be finite or +infinity".
[[noreturn]] void throw_not_a_cost(std::int64_t row, std::int64_t column, double value);

/// Throws invalid_argument "cost: row 3 has weight 0.2 and no finite cost to a column of positive weight; ...".
[[noreturn]] void throw_no_partner(Side side, std::int64_t point, double weight);

/// Throws unsupported: a cost matrix has no points.
[[noreturn]] void throw_no_points();

}  // namespace monge
