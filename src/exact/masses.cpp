#include "exact/masses.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

namespace monge {

bool is_partial(ExactOptions const& options) {
  return std::isfinite(options.mass);
}
bool is_relaxed(ExactOptions const& options) {
  return is_partial(options) || std::isfinite(std::min(options.penalty_a, options.penalty_b));
}

bool is_uniform(std::vector<double> const& weights) {
  return std::all_of(weights.begin(), weights.end(), [&](double weight) { return weight == weights[0]; });
}

Mass total_of(std::vector<Mass> const& masses) {
  return std::accumulate(masses.begin(), masses.end(), Mass{0});
}

namespace {

/// A mass may exceed the smaller total by this fraction of it: the rounding of weights.
constexpr double kSameTotals = 1e-6;
/// The smallest numbers that fit uniform weights, so that equal ones give a permutation, or part of one.
std::optional<Masses> masses_of_uniform(ValidMarginals const& marginals, ExactOptions const& options) {
  if (!is_uniform(marginals.a) || !is_uniform(marginals.b)) return {};
  std::size_t const n = marginals.a.size(), m = marginals.b.size();
  std::size_t in_a = 1, in_b = 1;  // Quanta of a weight.
  if (marginals.total_a == marginals.total_b) {
    std::size_t const common = std::gcd(n, m);
    in_a = m / common;
    in_b = n / common;
  } else if (marginals.a[0] != marginals.b[0]) {
    return {};
  }
  Masses const masses{std::vector<Mass>(n, static_cast<Mass>(in_a)), std::vector<Mass>(m, static_cast<Mass>(in_b)),
                      marginals.a[0] / static_cast<double>(in_a), 0};
  double const quanta = options.mass / masses.quantum;
  if (is_partial(options) && std::abs(quanta - std::nearbyint(quanta)) > kSameMass * quanta) return {};
  return masses;
}

Masses masses_of_any(ValidMarginals const& marginals, ExactOptions const& options) {
  // No point moves more than the mass of partial transport. Twice this mass is as good as any larger weight: what
  // bounds neither plan nor potentials may be less, and the digits are those of the mass.
  double const most = 2 * options.mass, points = static_cast<double>(std::max(marginals.a.size(), marginals.b.size()));
  // A power of two with 100 binary digits for the total: weights down to 2^-47 of it are exact, whole ones always.
  int const exponent = std::ilogb(std::min(marginals.mass(), most * points)) - 100;
  Masses masses{{}, {}, 1, exponent};
  auto const rounded = [&](double weight) {
    double const quanta = std::ldexp(std::min(weight, most), -exponent);
    return static_cast<Mass>(quanta < 0x1p53 ? std::nearbyint(quanta) : quanta);
  };
  for (double const weight : marginals.a) masses.a.push_back(rounded(weight));
  for (double const weight : marginals.b) masses.b.push_back(rounded(weight));
  // The totals of a balanced problem differ by rounding alone, far less than the largest weight.
  if (!is_relaxed(options))
    *std::max_element(masses.b.begin(), masses.b.end()) += total_of(masses.a) - total_of(masses.b);
  return masses;
}

}  // namespace

Masses masses_of(ValidMarginals const& marginals, ExactOptions const& options) {
  std::optional<Masses> const uniform = masses_of_uniform(marginals, options);
  Masses masses = uniform ? *uniform : masses_of_any(marginals, options);
  if (!is_relaxed(options)) return masses;
  Mass const of_a = total_of(masses.a), of_b = total_of(masses.b);
  Mass kept = 0;  // Mass that neither row nor column of the dustbin takes.
  if (is_partial(options)) {
    double const quanta = std::ldexp(options.mass / masses.quantum, -masses.exponent);
    kept = std::min({static_cast<Mass>(uniform ? std::nearbyint(quanta) : quanta), of_a, of_b});
  }
  masses.a.push_back(of_b - kept);
  masses.b.push_back(of_a - kept);
  return masses;
}

ValidMarginals marginals_of(Backend const& backend, VectorView a, VectorView b, Shape shape,
                            ExactOptions const& options) {
  ValidMarginals marginals = read_marginals(backend, a, b, shape);
  if (!is_relaxed(options))
    return with_equal_totals(std::move(marginals), {.tolerance = 0},
                             "; unequal totals need a solve with penalty_a, penalty_b or mass");
  if (!is_partial(options)) return marginals;
  require(std::isinf(std::min(options.penalty_a, options.penalty_b)),
          "mass: is given with a penalty; must be alone, since the mass decides what is left");
  double const most = std::min(marginals.total_a, marginals.total_b);
  require(options.mass <= most * (1 + kSameTotals), "mass: is {}; must be at most {}, the smaller total of a and b",
          options.mass, most);
  return marginals;
}

double largest_with_mass(std::vector<Mass> const& masses, std::vector<double> const& potentials, std::int64_t size) {
  double largest = -kInfinity;
  for (std::size_t i = 0; i < to_size(size); ++i) largest = masses[i] > 0 ? std::max(largest, potentials[i]) : largest;
  return largest;
}

}  // namespace monge
