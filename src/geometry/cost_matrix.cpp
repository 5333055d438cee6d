#include "geometry/cost_matrix.hpp"

#include <cmath>

#include "core/require.hpp"

namespace monge {

void throw_bad_cost(std::int64_t row, std::int64_t column, double value) {
  throw Error(ErrorCode::invalid_argument, fmt::format("cost: row {}, column {} is {}; must be finite or +infinity",
                                                       row, column, std::isnan(value) ? std::abs(value) : value));
}

void require_partners(Side side, std::span<double const> weight, std::span<unsigned char const> has_partner) {
  char const* const own = side == Side::rows ? "row" : "column";
  char const* const other = side == Side::rows ? "column" : "row";
  for (std::size_t i = 0; i < weight.size(); ++i) {
    require(weight[i] == 0 || has_partner[i] != 0,
            "cost: {} {} has weight {} and no finite cost to a {} of positive weight; must have at least one", own, i,
            weight[i], other);
  }
}

void require_finite_range(double least, double most) {
  require(std::isfinite(most - least), "cost: ranges from {} to {}; the difference must be finite", least, most);
}

void throw_no_points() {
  throw Error(ErrorCode::unsupported,
              "points: a cost matrix has none; averages of values of the columns need none, maps and potentials at new "
              "points need a PointCloud");
}

}  // namespace monge
