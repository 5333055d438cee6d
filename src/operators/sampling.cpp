#include "operators/sampling.hpp"

#include "core/require.hpp"

namespace monge {

void require_mass(double total) {
  require(std::isfinite(total) && total > 0, "plan: has sum {}; must be finite and > 0 for pairs to be drawn", total);
}

}  // namespace monge
