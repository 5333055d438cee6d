#include "regularized/regularized_input.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include <monge/error.hpp>

#include "core/numbers.hpp"
#include "entropic/input.hpp"
#include "geometry/validation.hpp"
#include "seam/values.hpp"

namespace monge {
namespace {

[[noreturn]] void throw_unsupported(std::string const& message) {
  throw Error(ErrorCode::unsupported, message);
}

bool is_given(MatrixView view) {
  return view.rows() != 0 || view.columns() != 0;
}

std::vector<std::int32_t> read_groups(IndexView groups, Shape shape) {
  std::int64_t const n = shape.rows;
  require(groups.size == n, "groups: has {} entries; must have {}, one for each {}", groups.size, n,
          line_names(shape).row);
  require(groups.device.type == DeviceType::cpu, "groups: lies on {}; must be in host memory",
          to_string(groups.device));
  require(groups.data != nullptr, "groups: is a null pointer; must point to {} numbers", n);
  require(groups.stride >= 1, "groups: has stride {}; must be >= 1", groups.stride);
  std::vector<std::int32_t> values(to_size(n));
  for (std::int64_t i = 0; i < n; ++i) {
    std::int64_t const group = groups.data[i * groups.stride];
    require(group >= 0 && group < n, "groups: entry {} is {}; must be from 0 to {}, the rows less one", i, group,
            n - 1);
    values[to_size(i)] = static_cast<std::int32_t>(group);
  }
  return values;
}

/// The number of groups: the largest label plus 1.
std::int64_t count_pair_groups(IndexMatrixView labels, Shape shape) {
  std::int64_t const n = shape.rows, m = shape.columns;
  require(labels.rows == n && labels.columns == m, "pair_groups: is {} x {}; must be {} x {}, as the costs",
          labels.rows, labels.columns, n, m);
  require(labels.device.type == DeviceType::cpu, "pair_groups: lies on {}; must be in host memory",
          to_string(labels.device));
  require(labels.data != nullptr, "pair_groups: is a null pointer; must point to {} x {} numbers", n, m);
  require(labels.row_stride >= m, "pair_groups: has row stride {}; must be >= {}", labels.row_stride, m);
  std::int64_t largest = -1;
  for (std::int64_t i = 0; i < n; ++i) {
    for (std::int64_t j = 0; j < m; ++j) {
      std::int64_t const group = labels.data[i * labels.row_stride + j];
      require(group >= -1 && group < n * m,
              "pair_groups: row {}, column {} is {}; must be from -1 to {}, the number of pairs less one", i, j, group,
              n * m - 1);
      largest = std::max(largest, group);
    }
  }
  return largest + 1;
}

/// The terms with a positive weight. The arguments of the other terms are checked, too.
RegularizerTerms checked_terms(Backend const& backend, Regularizer const& given, Shape shape) {
  for (auto const& [field, weight] : {std::pair{"quadratic", given.quadratic},
                                      {"group_lasso", given.group_lasso},
                                      {"l1", given.l1},
                                      {"hypentropy", given.hypentropy}})
    check(field, kNotNegative, weight);
  RegularizerTerms terms;
  terms.quadratic = given.quadratic;
  terms.l1 = given.l1;
  terms.hypentropy = given.hypentropy;
  check("hypentropy_width", kPositive, given.hypentropy_width);
  if (given.hypentropy > 0) terms.hypentropy_width = given.hypentropy_width;
  bool const of_pairs = !given.pair_groups.empty();
  require(given.groups.empty() || !of_pairs, "pair_groups: is given with groups; must be given without");
  require(given.group_lasso == 0 || of_pairs || !given.groups.empty(),
          "groups: is missing; group_lasso, which is {}, needs the group of each row", given.group_lasso);
  require(given.group_weights.empty() || of_pairs || !given.groups.empty(),
          "groups: is missing; group_weights needs it");
  if (of_pairs || !given.groups.empty()) {
    std::vector<std::int32_t> groups;
    if (!of_pairs) groups = read_groups(given.groups, shape);
    std::int64_t const count =
        of_pairs ? count_pair_groups(given.pair_groups, shape) : *std::ranges::max_element(groups) + std::int64_t{1};
    std::vector<double> weights(to_size(count), 1.0);
    if (!given.group_weights.empty()) {
      require(given.group_weights.size() == count, "group_weights: has {} entries; must have {}, one for each group",
              given.group_weights.size(), count);
      weights = read_values("group_weights", backend, given.group_weights, count, kNotNegative, "weights must be");
    }
    if (of_pairs && backend.device().type != DeviceType::cpu)
      throw_unsupported("pair_groups: is given; must be solved on the CPU, a GPU takes groups of rows");
    if (of_pairs && given.hypentropy > 0)
      throw_unsupported(fmt::format("hypentropy: is {}; must be 0 with groups of pairs", given.hypentropy));
    // Pairs may all be in no group.
    if (given.group_lasso > 0 && count > 0) {
      terms.group_lasso = given.group_lasso;
      terms.groups = std::move(groups);
      terms.pair_groups = given.pair_groups;
      terms.group_weights = std::move(weights);
    }
  }
  auto const check_matrix = [&](char const* field, MatrixView view) {
    validate_matrix(field, view, shape.rows, shape.columns, backend.device());
    return view;
  };
  require(given.l1 == 0 || is_given(given.l1_weights),
          "l1_weights: is missing; l1, which is {}, needs a weight for each pair", given.l1);
  if (is_given(given.l1_weights)) {
    MatrixView const weights = check_matrix("l1_weights", given.l1_weights);
    if (given.l1 > 0) terms.l1_weights = weights;
  }
  if (is_given(given.mask)) terms.mask = check_matrix("mask", given.mask);
  return terms;
}

/// Throws unless a term that the caller defines may be combined with the others.
void check_others(char const* own, Regularizer const& given) {
  for (auto const& [field, weight] : {std::pair{"quadratic", given.quadratic},
                                      {"group_lasso", given.group_lasso},
                                      {"hypentropy", given.hypentropy}}) {
    if (weight > 0)
      throw_unsupported(
          fmt::format("{}: is given with {}, which is {}; must be alone or with l1 and mask", own, field, weight));
  }
}

void check_separable(Backend const& backend, Regularizer const& given, RegularizedOptions const& options) {
  SeparableTerm const& term = given.separable;
  require(term.prox && term.value, "separable: has no {}; must have prox and value", term.prox ? "value" : "prox");
  check_others("separable", given);
  if (backend.device().type != DeviceType::cpu)
    throw_unsupported(
        "separable: is given; must be solved on the CPU, or be a table of slopes, as GPUs call no function");
  require(term.conjugate || options.tolerance == 0 || options.criterion == RegularizedCriterion::residual,
          "criterion: is gap; must be residual with a separable term that has no conjugate, and so no dual value");
}

/// The table of Regularizer::slopes, for entries up to `most`.
std::shared_ptr<SlopeTable const> read_slopes(Backend const& backend, MatrixView table, double most) {
  std::int64_t const rows = table.rows();
  require(rows >= 1 && table.columns() == 2, "slopes: is {} x {}; must be k x 2, a mass and a slope in each row", rows,
          table.columns());
  validate_matrix("slopes", table, rows, 2, backend.device());
  auto const column = [&](std::int64_t k, char const* name, Bounds const& bounds) {
    char const* const data = static_cast<char const*>(table.data()) + k * size_of(table.type());
    std::vector<double> values = backend.read({data, table.type(), rows, table.row_stride(), table.device()});
    for (std::size_t row = 0; row < values.size(); ++row)
      require(bounds.contains(values[row]), "slopes: row {} has the {} {}; must be {}", row, name, values[row],
              bounds.text_in_full());
    return values;
  };
  std::vector<double> const masses = column(0, "mass", kNotNegative), slopes = column(1, "slope", at_least(0));
  require(masses[0] == 0, "slopes: row 0 has the mass {}; must be 0", masses[0]);
  for (std::size_t k = 0; k < masses.size(); ++k) {
    if (k > 0) {
      require(masses[k] >= masses[k - 1], "slopes: row {} has the mass {}; must be at least {}, that of the row before",
              k, masses[k], masses[k - 1]);
      require(slopes[k] >= slopes[k - 1],
              "slopes: row {} has the slope {}; must be at least {}, that of the row before", k, slopes[k],
              slopes[k - 1]);
    }
    require(std::isfinite(slopes[k]) || (k > 0 && k + 1 == masses.size() && masses[k] == masses[k - 1]),
            "slopes: row {} has the slope inf; must be finite, except in a last row with the mass of the row before",
            k);
  }
  return std::make_shared<SlopeTable const>(masses, slopes, most);
}

/// The reason why Newton's method does not take these terms; empty if it does.
std::string obstacle_to_newton(RegularizerTerms const& terms) {
  for (auto const& [field, weight] :
       {std::pair{"group_lasso", terms.group_lasso}, {"l1", terms.l1}, {"hypentropy", terms.hypentropy}}) {
    if (weight > 0)
      return fmt::format("{}: is {}; must be 0 with method newton, which knows a quadratic term", field, weight);
  }
  if (terms.separable)
    return fmt::format("{}: is given; must not be with method newton, which knows a quadratic term", terms.own_name());
  return {};
}

void validate_for_newton(RegularizedOptions const& options) {
  require(options.precision != Precision::float32, "precision: is float32; must be auto or float64 with method newton");
  require(options.tolerance > 0, "tolerance: is 0; must be > 0 with method newton");
}

RegularizedMethod method_of(RegularizedProblem const& problem, RegularizerTerms const& terms,
                            RegularizedOptions const& options) {
  using enum RegularizedMethod;
  if (shape_of(problem.geometry).has_points() && terms.mask.data())
    throw_unsupported("mask: is given; points have none, a cost matrix may");
  std::string const obstacle = obstacle_to_newton(terms);
  RegularizedMethod method = options.method;
  if (method == automatic) {
    bool const newton_may = obstacle.empty() && options.tolerance > 0 && options.precision != Precision::float32;
    method = newton_may ? newton : splitting;
  }
  if (method == newton && !obstacle.empty()) throw_unsupported(obstacle);
  if (method == newton) validate_for_newton(options);
  return method;
}

std::vector<double> read_start(char const* field, Backend const& backend, VectorView view, std::int64_t size) {
  if (view.empty()) return {};
  return read_values(field, backend, view, size, kFinite, "potentials must be");
}

}  // namespace

void validate(RegularizedOptions const& options) {
  visit_regularized_options(options, kCheckField);
  require(options.precision != Precision::tf32, "precision: is tf32; must be auto, float32 or float64");
  require(options.u.empty() == options.v.empty(), "{}: is missing; a warm start needs both u and v",
          options.u.empty() ? "u" : "v");
  if (options.method != RegularizedMethod::newton) return;
  validate_for_newton(options);
  RegularizedOptions const usual;
  auto const keep = [](char const* field, auto const& value, auto const& of_default) {
    require(value == of_default, "{}: is {}; must be {}, the default, with method newton, which has no use for it",
            field, value, of_default);
  };
  keep("step", options.step, usual.step);
  keep("accelerate", options.accelerate, usual.accelerate);
  keep("check_every", options.check_every, usual.check_every);
  require(!is_given(options.plan), "plan: is given; must not be with method newton, which begins with u and v");
}

CheckedRegularizedProblem checked_problem(Context const& context, RegularizedProblem const& problem,
                                          RegularizedOptions const& options, std::shared_ptr<std::mutex> turn) {
  Backend const& backend = backend_of(context);
  validate(problem.geometry, context.device());
  Shape const shape = shape_of(problem.geometry);
  CheckedRegularizedProblem result;
  result.geometry = problem.geometry;
  WeightNames const names{"p", "q", line_names(shape)};
  ValidMarginals marginals = read_marginals(backend, names, problem.p, problem.q, shape.rows, shape.columns);
  require_equal_totals(names, marginals, options.tolerance, "");
  for (double& p : marginals.a) p /= marginals.total_a;
  for (double& q : marginals.b) q /= marginals.total_b;
  result.p = std::move(marginals.a);
  result.q = std::move(marginals.b);
  result.mass = marginals.total_a;
  result.terms = checked_terms(backend, problem.regularizer, shape);
  SeparableTerm const& separable = problem.regularizer.separable;
  MatrixView const slopes = problem.regularizer.slopes;
  require(!is_given(slopes) || !(separable.prox || separable.value || separable.conjugate),
          "slopes: is given with separable; must be given without");
  if (separable.prox || separable.value || separable.conjugate) {
    check_separable(backend, problem.regularizer, options);
    result.terms.separable = std::make_shared<SeparableFunctions>(separable, result.mass, std::move(turn));
  }
  if (is_given(slopes)) {
    check_others("slopes", problem.regularizer);
    double const most = result.mass * std::min(std::ranges::max(result.p), std::ranges::max(result.q));
    result.terms.slopes = read_slopes(backend, slopes, most);
    result.terms.separable = std::make_shared<SeparableFunctions>(result.terms.slopes->term(), result.mass, nullptr);
  }
  result.method = method_of(problem, result.terms, options);
  // In float32 the residual stalls at about 1e-6 of |(p, q)|_2.
  bool const suffices = (options.tolerance == 0 || options.tolerance >= 1e-5) &&
                        (result.terms.hypentropy == 0 ||
                         widths_of(Precision::float32).contains(result.terms.hypentropy_width / result.mass));
  bool const single =
      options.precision == Precision::float32 || (options.precision == Precision::automatic && suffices);
  result.precision = result.method == RegularizedMethod::newton || !single ? Precision::float64 : Precision::float32;
  result.u = read_start("u", backend, options.u, shape.rows);
  result.v = read_start("v", backend, options.v, shape.columns);
  if (is_given(options.plan)) {
    validate_matrix("plan", options.plan, shape.rows, shape.columns, context.device());
    result.plan = options.plan;
  }
  return result;
}

}  // namespace monge
