#include "solvers/input.hpp"

#include <algorithm>
#include <cmath>

#include "core/validation.hpp"
#include "operators/values.hpp"

namespace monge {
namespace {

std::vector<double> read_weights(char const* field, Backend const& backend, VectorView view, std::int64_t size,
                                 char const* points) {
  require(view.size() == size, "{}: has {} entries; must have {}, one for each row of {}", field, view.size(), size,
          points);
  return read_values(field, backend, view, size, kNotNegative, "weights must be");
}

double compensated_sum(std::vector<double> const& weights) {
  double total = 0, carry = 0;  // Kahan: totals are compared to 1e-6, and there may be 1e8 of them
  for (double const weight : weights) {
    double const term = weight - carry;
    double const next = total + term;
    if (!std::isfinite(next)) return next;
    carry = (next - total) - term;
    total = next;
  }
  return total;
}

double total_of(char const* field, std::vector<double> const& weights) {
  double const total = compensated_sum(weights);
  require(total > 0 && std::isfinite(total), "{}: the total is {}; must be positive and finite", field, total);
  return total;
}

}  // namespace

void validate(SolveOptions const& options) {
  visit_solve_options(options, kCheckField);
}

void validate_warm_start(Backend const& backend, VectorView f, VectorView g, std::int64_t n, std::int64_t m) {
  require(f.empty() == g.empty(), "{}: is missing; a warm start needs both f and g", f.empty() ? "f" : "g");
  if (f.empty()) return;
  read_values("f", backend, f, n, kFinite, "potentials must be");
  read_values("g", backend, g, m, kFinite, "potentials must be");
}

void require_equal_totals(ValidMarginals const& marginals, double tolerance) {
  double const total_a = marginals.mass, total_b = marginals.total_b;
  // No plan has both marginals when the totals differ, so the difference is a floor of the marginal error: it has to be
  // well below the tolerance. (Weights normalised in float32 agree to about 1e-7.)
  double const allowed = tolerance > 0 ? std::min(1e-6, tolerance / 2) : 1e-6;
  require(std::abs(total_a - total_b) <= allowed * total_a,
          "b: the total is {:.17g}; must equal the total of a, {:.17g}, to {:.1e} relative at this tolerance", total_b,
          total_a, allowed);
}

ValidMarginals validated_marginals(Backend const& backend, VectorView a, VectorView b, std::int64_t n, std::int64_t m,
                                   double tolerance) {
  ValidMarginals marginals;
  double total_a = 1, total_b = 1;
  if (!a.empty()) {
    marginals.a = read_weights("a", backend, a, n, "x");
    total_a = total_of("a", marginals.a);
  }
  if (!b.empty()) {
    marginals.b = read_weights("b", backend, b, m, "y");
    total_b = total_of("b", marginals.b);
  }
  if (a.empty()) {
    total_a = b.empty() ? 1 : total_b;
    marginals.a.assign(static_cast<std::size_t>(n), total_a / static_cast<double>(n));
  }
  if (b.empty()) {
    total_b = total_a;
    marginals.b.assign(static_cast<std::size_t>(m), total_b / static_cast<double>(m));
  }
  marginals.mass = total_a;
  marginals.total_b = total_b;
  require_equal_totals(marginals, tolerance);
  return marginals;
}

}  // namespace monge
