#include "regularized/regularized_costs.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include <monge/options.hpp>

#include "core/require.hpp"
#include "seam/regularized_operator.hpp"
#include "seam/separable.hpp"

namespace monge {
namespace {

/// A bound of the slope of h, in the user's units, where all entries have this share of the mass.
double slope_of(RegularizerTerms const& terms, double mass, double share) {
  double slope = terms.quadratic * mass * share;
  if (terms.group_lasso > 0) slope += terms.group_lasso * std::ranges::max(terms.group_weights);
  if (terms.hypentropy > 0) slope += terms.hypentropy * std::asinh(share * mass / terms.hypentropy_width);
  if (terms.separable) slope += terms.separable->slope(share);
  return slope;
}

}  // namespace

void RegularizedCosts::set_scale(double least, CostSearch const& found, RegularizerTerms const& terms) {
  scale_.offset = found.least();
  scale_.range = found.range();
  scale_.depth = found.least() - least;
  if (scale_.range > 0) {
    scale_.most = (found.most() - found.least()) / scale_.range;
    scale_.gap_unit = found.gap_range() / scale_.range;
    return;
  }
  double const slope = slope_of(terms, scale_.mass, 1 / (static_cast<double>(n_) * static_cast<double>(m_)));
  using Limits = std::numeric_limits<double>;
  scale_.range = slope >= Limits::min() && slope <= Limits::max() ? slope : 1;
}

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
