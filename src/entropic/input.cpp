#include "entropic/input.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

#include "core/numbers.hpp"
#include "seam/values.hpp"

namespace monge {
namespace {

std::vector<double> read_weights(char const* field, Backend const& backend, VectorView view, std::int64_t size,
                                 char const* line) {
  require(view.size() == size, "{}: has {} entries; must have {}, one for each {}", field, view.size(), size, line);
  return read_values(field, backend, view, size, kNotNegative, "weights must be");
}

double compensated_sum(std::vector<double> const& weights) {
  double total = 0, carry = 0;  // Kahan: totals are compared to 1e-6, and there may be 1e8 weights
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

/// Passes multiply by 1 / eps. 0 stands for an eps that is not given.
void require_reciprocal(double eps) {
  constexpr double kLeast = std::numeric_limits<double>::min();
  require(eps == 0 || eps >= kLeast, "eps: is {}; must be at least {:.2e}, whose reciprocal is finite", eps, kLeast);
}

/// Options that the method does not read must keep their defaults.
void require_used(SolveOptions const& options) {
  SolveOptions const usual;
  std::string_view const method = name(options.method);
  auto const keep = [&](char const* field, double value, double of_default) {
    require(value == of_default, "{}: is {}; must be {}, the default, with method {}, which has no use for it", field,
            value, of_default, method);
  };
  if (options.method == Method::newton || options.method == Method::splr)
    require(options.schedule == usual.schedule, "schedule: is {}; must be {} with method {}", name(options.schedule),
            name(usual.schedule), method);
  if (options.method == Method::splr) {
    keep("annealing", options.annealing, usual.annealing);
    keep("check_every", options.check_every, usual.check_every);
  } else {
    keep("splr_density", options.splr.density, usual.splr.density);
    keep("splr_shift", options.splr.shift, usual.splr.shift);
    keep("splr_reuse", options.splr.pattern_reuse, usual.splr.pattern_reuse);
    keep("splr_candidates", options.splr.candidate_sweeps, usual.splr.candidate_sweeps);
  }
}

}  // namespace

void validate(SolveOptions const& options) {
  require(options.eps == 0 || options.eps_relative == SolveOptions().eps_relative,
          "eps_relative: is {}; must not be given with eps, which is {}", options.eps_relative, options.eps);
  void const* const not_given = options.eps == 0 ? &options.eps : nullptr;
  visit_solve_options(options, [&](auto const& field, auto const& value) {
    if (&value != not_given) kCheckField(field, value);
  });
  require_reciprocal(options.eps);
  require(options.criterion == Criterion::l1 || options.certificate,
          "criterion: is {}; must be l1 without the certificate", name(options.criterion));
  require_used(options);
  if (options.method != Method::newton && options.method != Method::splr) return;
  std::string_view const method = name(options.method);
  require(options.precision == Precision::automatic || options.precision == Precision::float64,
          "precision: is {}; must be auto or float64 with method {}", name(options.precision), method);
  if (options.method != Method::splr) return;
  for (auto const& [field, penalty] : {std::pair{"penalty_a", options.penalty_a}, {"penalty_b", options.penalty_b}}) {
    if (std::isfinite(penalty))
      throw Error(ErrorCode::unsupported,
                  fmt::format("{}: is {}; must be inf with method {}, whose marginals are constraints", field, penalty,
                              method));
  }
}

SolveOptions with_eps(SolveOptions options, double mean_cost) {
  if (options.eps != 0) return options;
  require(
      std::isfinite(mean_cost),
      "eps_relative: is {}, but sums for the mean cost are beyond double arithmetic; must be replaced by eps, in the "
      "units of the cost",
      options.eps_relative);
  options.eps = options.eps_relative * mean_cost;
  require(kPositive.contains(options.eps),
          "eps_relative: is {}, of a mean cost of {}; the product must be {}, so give eps in the units of the cost",
          options.eps_relative, mean_cost, kPositive.text_in_full());
  require_reciprocal(options.eps);
  return options;
}

WarmStart validated_warm_start(Backend const& backend, VectorView f, VectorView g, Marginals const& marginals,
                               PotentialNames names) {
  require(f.empty() == g.empty(), "{}: is missing; a warm start needs both {} and {}", f.empty() ? names.f : names.g,
          names.f, names.g);
  if (f.empty()) return {};
  auto const read = [&](char const* field, VectorView view, std::vector<double> const& weight) {
    validate_vector(field, view, static_cast<std::int64_t>(weight.size()), backend.device());
    std::vector<double> values = backend.read(view);
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (weight[i] == 0 && values[i] == std::numeric_limits<double>::infinity()) values[i] = 0;
      require(std::isfinite(values[i]), "{}: entry {} is {}; potentials must be {}", field, i, values[i],
              kFinite.text_in_full());
    }
    return values;
  };
  return {read(names.f, f, marginals.a), read(names.g, g, marginals.b), names};
}

void require_digits(WarmStart const& potentials, Marginals const& marginals, double eps) {
  // The rounding of a potential, half a unit in the last place, is then at most eps.
  double const most = eps * 0x1p53;
  auto const check = [&](char const* field, std::vector<double> const& values, std::vector<double> const& weight) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      require(weight[i] == 0 || std::abs(values[i]) <= most,
              "{}: entry {} is {}; must be at most 2^53 eps, {:.3g}, in size, else the plan has no digits", field, i,
              values[i], most);
    }
  };
  check(potentials.names.f, potentials.f, marginals.a);
  check(potentials.names.g, potentials.g, marginals.b);
}

void require_equal_totals(WeightNames names, ValidMarginals const& marginals, double tolerance, char const* advice) {
  double const total_a = marginals.total_a, total_b = marginals.total_b;
  // b is scaled to the total of a, so the plan's marginals miss the given weights by the difference: it must be well
  // below the tolerance. Rounding of the caller's weights is allowed: a float32 sum of n weights, formed in pairs as
  // NumPy and PyTorch do, is off by a few times 2^-24 and at most by about log2(n) 2^-24.
  constexpr double kMost = 1e-6;
  double const allowed = marginals.from_float32 || tolerance == 0 ? kMost : std::min(kMost, tolerance / 2);
  require(
      std::abs(total_a - total_b) <= allowed * total_a,
      "{}: the total is {:.17g}; must equal the total of {}, {:.17g}, to {:.1e} relative; divide each by its total{}",
      names.b, total_b, names.a, total_a, allowed, advice);
}

ValidMarginals with_equal_totals(ValidMarginals marginals, SolveOptions const& options, char const* advice) {
  if (!penalties_of(options).balanced()) return marginals;
  require_equal_totals({}, marginals, options.tolerance, advice);
  for (double& b : marginals.b) b *= marginals.total_a / marginals.total_b;
  marginals.total_b = marginals.total_a;
  return marginals;
}

ValidMarginals read_marginals(Backend const& backend, WeightNames names, VectorView a, VectorView b, std::int64_t n,
                              std::int64_t m) {
  ValidMarginals marginals;
  double total_a = 1, total_b = 1;
  for (VectorView const weights : {a, b})
    marginals.from_float32 = marginals.from_float32 || (!weights.empty() && weights.type() == DataType::float32);
  if (!a.empty()) {
    marginals.a = read_weights(names.a, backend, a, n, names.lines.row);
    total_a = total_of(names.a, marginals.a);
  }
  if (!b.empty()) {
    marginals.b = read_weights(names.b, backend, b, m, names.lines.column);
    total_b = total_of(names.b, marginals.b);
  }
  if (a.empty()) {
    total_a = b.empty() ? 1 : total_b;
    marginals.a.assign(to_size(n), total_a / static_cast<double>(n));
  }
  if (b.empty()) {
    total_b = total_a;
    marginals.b.assign(to_size(m), total_b / static_cast<double>(m));
  }
  marginals.total_a = total_a;
  marginals.total_b = total_b;
  return marginals;
}

ValidMarginals read_marginals(Backend const& backend, VectorView a, VectorView b, Shape shape) {
  return read_marginals(backend, {.lines = line_names(shape)}, a, b, shape.rows, shape.columns);
}

}  // namespace monge
