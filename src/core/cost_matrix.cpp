#include "core/cost_matrix.hpp"

#include <fmt/format.h>
#include <monge/error.hpp>

namespace monge {

void throw_not_a_cost(std::int64_t row, std::int64_t column, double value) {
  throw Error(ErrorCode::invalid_argument,
              fmt::format("cost: row {}, column {} is {}; must be finite or +infinity", row, column, value));
}

void throw_no_partner(Side side, std::int64_t point, double weight) {
  char const* const name = side == Side::rows ? "row" : "column";
  char const* const other = side == Side::rows ? "column" : "row";
  throw Error(ErrorCode::invalid_argument,
              fmt::format("cost: {} {} has weight {} and no finite cost to a {} of positive weight; its mass must have "
                          "somewhere to go",
                          name, point, weight, other));
}

void throw_no_points() {
  throw Error(ErrorCode::unsupported, "points: a cost matrix has none; only point clouds have them");
}

}  // namespace monge
