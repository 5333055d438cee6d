#include "plan/sampling.hpp"

#include "core/require.hpp"

namespace monge {

void require_mass(double total) {
  require(can_be_drawn_from(total), "plan: has sum {}; must be finite and > 0 for pairs to be drawn", total);
}

void require_shares(double lost_rows) {
  require(
      lost_rows == 0,
      "plan: has {} rows whose entries are lost in its rounding; must be of a larger eps or in float64 for pairs to "
      "be drawn",
      lost_rows);
}

}  // namespace monge
