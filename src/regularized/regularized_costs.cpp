#include "regularized/regularized_costs.hpp"

#include <monge/options.hpp>

#include "core/require.hpp"

namespace monge {
namespace {

[[noreturn]] void throw_bad_entry(char const* field, std::int64_t row, std::int64_t column, double value,
                                  char const* must) {
  throw Error(ErrorCode::invalid_argument, fmt::format("{}: row {}, column {} is {}; must be {}", field, row, column,
                                                       std::isnan(value) ? std::abs(value) : value, must));
}

}  // namespace

void throw_bad_l1_weight(std::int64_t row, std::int64_t column, double value) {
  throw_bad_entry("l1_weights", row, column, value, kNotNegative.text_in_full().c_str());
}

void throw_bad_mask(std::int64_t row, std::int64_t column, double value) {
  throw_bad_entry("mask", row, column, value, kFinite.text_in_full().c_str());
}

void require_allowed_partners(Side side, std::span<double const> shares, std::span<unsigned char const> has_partner) {
  char const* const own = side == Side::rows ? "row" : "column";
  char const* const other = side == Side::rows ? "column" : "row";
  for (std::size_t i = 0; i < shares.size(); ++i) {
    require(shares[i] == 0 || has_partner[i] != 0,
            "cost: {} {} has mass and no allowed pair with a {} that has; must have at least one", own, i, other);
  }
}

void throw_no_plan() {
  throw Error(ErrorCode::invalid_argument,
              "cost: forbids too many pairs, with the mask; must leave a plan with these marginals");
}

}  // namespace monge
