#include "regularized/regularized_costs.hpp"

#include <utility>

#include <monge/options.hpp>

#include "core/require.hpp"

namespace monge {

void throw_bad_entry(std::int64_t row, std::int64_t column, double cost, double l1_weight, double mask) {
  if (!is_cost(cost)) throw_bad_cost(row, column, cost);
  bool const of_l1 = !is_l1_weight(l1_weight);
  double const value = of_l1 ? l1_weight : mask;
  throw Error(
      ErrorCode::invalid_argument,
      fmt::format("{}: row {}, column {} is {}; must be {}", of_l1 ? "l1_weights" : "mask", row, column,
                  std::isnan(value) ? std::abs(value) : value, (of_l1 ? kNotNegative : kFinite).text_in_full()));
}

void require_allowed_partners(Side side, std::span<double const> shares, std::span<unsigned char const> has_partner) {
  char const* const own = side == Side::rows ? "row" : "column";
  char const* const other = side == Side::rows ? "column" : "row";
  for (std::size_t i = 0; i < shares.size(); ++i) {
    require(shares[i] == 0 || has_partner[i] != 0,
            "cost: {} {} has mass and no allowed pair with a {} that has; must have at least one", own, i, other);
  }
}

void require_finite_start(std::span<double const> rows, std::span<double const> columns) {
  for (auto const& [side, sums] : {std::pair{"row", rows}, {"column", columns}}) {
    for (std::size_t i = 0; i < sums.size(); ++i)
      require(std::isfinite(sums[i]), "plan: {} {} has the sum {}; must be finite", side, i, sums[i]);
  }
}

void throw_no_plan(char const* own) {
  if (own)
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("{}: leaves no plan with these marginals on the pairs that cost and mask allow; must leave one",
                    own));
  throw Error(ErrorCode::invalid_argument,
              "cost: forbids too many pairs, with the mask; must leave a plan with these marginals");
}

}  // namespace monge
