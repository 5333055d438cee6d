// Problems with penalties instead of marginals: closed forms, first-order conditions, bounds, limits and rates.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>

#include "oracle/backend_test.hpp"

namespace monge::oracle {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

class Unbalanced : public BackendTest {
 protected:
  Plan solve(Problem const& problem, SolveOptions options) const {
    options.precision = precision();
    return monge::solve(context(), problem.geometry(), problem.a, problem.b, options);
  }
  double reachable() const {
    if (is_float64()) return 1e-10;
    return precision() == Precision::tf32 ? 1e-2 : 1e-5;
  }
};
MONGE_FOR_EACH_TARGET(Unbalanced);

class UnbalancedPoints : public Unbalanced {};
MONGE_FOR_EACH_POINT_TARGET(UnbalancedPoints);

/// Counts of sweeps are a matter of float64.
class UnbalancedCounts : public Unbalanced {};
MONGE_FOR_EACH_DEVICE(UnbalancedCounts);

SolveOptions with_penalties(double eps, double penalty_a, double penalty_b) {
  return {.eps = eps, .penalty_a = penalty_a, .penalty_b = penalty_b};
}

/// Masses in the ratio 1 to `ratio`.
Problem uneven(Problem problem, double ratio) {
  for (double& weight : problem.b) weight *= ratio;
  return problem;
}

struct Trial {
  Recipe recipe;
  double ratio;  // sum b / sum a
};
std::vector<Trial> const& trials() {
  static std::vector<Trial> const table{
      {{60, 80, 2}, 1},
      {{80, 60, 3, Weights::skewed, Place::shifted, 0.02}, 3},
      {{70, 70, 10, Weights::with_zeros, Place::origin, 0.1, DataType::float32, 0, 0.5}, 0.1},
      {{50, 90, 60, Weights::uniform, Place::origin, 0.05, DataType::float64, 0, 1, 3}, 1000},
      {{1, 7, 2}, 0.5},
  };
  return table;
}

/// All pairs of penalties of which one is finite, in units of eps.
std::vector<Penalties> const& multiples_of_eps() {
  static std::vector<Penalties> const table{
      {1, 1}, {30, 0.1}, {1e3, 1e5}, {1e-2, 1e-2}, {20, kInfinity}, {kInfinity, 200},
  };
  return table;
}

template <class Check>
void for_each_trial(Check const& check) {
  for (Trial const& trial : trials()) {
    Problem const problem = uneven(make_problem(trial.recipe), trial.ratio);
    double const eps = trial.recipe.eps_over_spread * std::max(1.0, Magnitudes(problem).spread());
    for (Penalties const& multiple : multiples_of_eps()) {
      Penalties const penalties{multiple.a * eps, multiple.b * eps};
      SCOPED_TRACE(testing::Message() << "penalties " << penalties.a << " and " << penalties.b << ", ratio "
                                      << trial.ratio << ", " << trial.recipe);
      check(problem, eps, penalties);
    }
  }
}

// With one point a side eps log(P / a b) = f + g - C and P = a exp(-f / rho_a) = b exp(-g / rho_b), so
// (eps + rho_a + rho_b) log P = eps log(a b) + rho_a log a + rho_b log b - C. A constraint sets P.
TEST_P(UnbalancedPoints, of_one_point_by_one) {
  for (double const cost : {0.0, 1.0, 25.0}) {
    for (double const a : {1.0, 1e-3}) {
      for (double const b : {1.0, 1e-3, 50.0}) {
        for (Penalties const& rho :
             {Penalties{1, 1}, {1e-4, 3}, {1e5, 20}, {1e12, 1e12}, {kInfinity, 2}, {0.1, kInfinity}}) {
          if (rho.a == 1e12 && a != b) continue;  // f - g is rho log(a / b): more than float64 holds beside eps.
          SCOPED_TRACE(testing::Message() << "cost " << cost << ", masses " << a << " and " << b << ", penalties "
                                          << rho.a << " and " << rho.b);
          Problem const problem{Stored(std::vector<double>{1e3}, 1, 1),
                                Stored(std::vector<double>{1e3 + std::sqrt(cost)}, 1, 1),
                                {a},
                                {b}};
          Real const c = Dense(problem).cost(Side::rows, 0, 0), eps = 0.5;
          Real const log_a = std::log(Real(a)), log_b = std::log(Real(b));
          // log(P / a) and log(P / b), from differences: rho multiplies what they are off by.
          Real const all = eps + rho.a + rho.b;
          Real const to_a = std::isinf(rho.a)   ? 0
                            : std::isinf(rho.b) ? log_b - log_a
                                                : (eps * log_b + rho.b * (log_b - log_a) - c) / all;
          Real const to_b = std::isinf(rho.b)   ? 0
                            : std::isinf(rho.a) ? log_a - log_b
                                                : (eps * log_a + rho.a * (log_a - log_b) - c) / all;
          Real const mass = a * std::exp(to_a);
          // The dual: of a side with a penalty rho (a - P), without cancellation; else the potential that is left.
          Real const sum = c + eps * (to_a - log_b);  // f + g
          Real const of_a = std::isinf(rho.a) ? a * (sum + rho.b * to_b) : -rho.a * a * std::expm1(to_a);
          Real const of_b = std::isinf(rho.b) ? b * (sum + rho.a * to_a) : -rho.b * b * std::expm1(to_b);
          Real const value = of_a + of_b - eps * a * b * std::expm1(to_a - log_b);
          SolveOptions options = with_penalties(0.5, rho.a, rho.b);
          options.tolerance = reachable();
          Plan const plan = solve(problem, options);
          Report const& report = plan.report();
          EXPECT_EQ(report.status, Status::converged) << report.message;
          // eps + rho_a + rho_b times the error of log P is rho_a and rho_b times those of the marginals over P, so P
          // is off by at most the larger of these. Potentials are float64, off by what their gauge rounds, over rho.
          double const heavier = std::max(a, b), f = plan.f()[0], g = plan.g()[0];
          Real const size = c + std::abs(f) + std::abs(g);
          Real const rounding = 0x1p-50L * (1 + size / eps + size / std::min(rho.a, rho.b)) * heavier;
          expect_close("transported_mass", report.transported_mass, mass, reachable() * heavier + rounding);
          Real const held = (std::isinf(rho.a) ? std::abs(f) : 0) + (std::isinf(rho.b) ? std::abs(g) : 0);
          expect_close("dual", report.dual, value,
                       std::abs(report.gap) + 2 * held * reachable() * heavier + (1 + size) * rounding);
        }
      }
    }
  }
}

struct Optimum {
  Real mass = 0, transport_cost = 0;
  Vector g;
};
/// By plain sweeps, none of whose sums underflows.
Optimum optimum_of(Problem const& problem, Real eps, Penalties const& penalties) {
  Dense const dense(problem);
  std::size_t const n = problem.a.size(), m = problem.b.size();
  auto const cost = [&](std::size_t i, std::size_t j) {
    return dense.cost(Side::rows, static_cast<std::int64_t>(i), static_cast<std::int64_t>(j));
  };
  Optimum optimum{.g = Vector(m, 0)};
  Vector f(n, 0), &g = optimum.g;
  for (int sweep = 0; sweep < 2000; ++sweep) {
    for (std::size_t i = 0; i < n; ++i) {
      Real sum = 0;
      for (std::size_t j = 0; j < m; ++j) sum += problem.b[j] * std::exp((g[j] - cost(i, j)) / eps);
      f[i] = -eps / (1 + eps / penalties.a) * std::log(sum);
    }
    for (std::size_t j = 0; j < m; ++j) {
      Real sum = 0;
      for (std::size_t i = 0; i < n; ++i) sum += problem.a[i] * std::exp((f[i] - cost(i, j)) / eps);
      g[j] = -eps / (1 + eps / penalties.b) * std::log(sum);
    }
  }
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < m; ++j) {
      Real const entry = Real(problem.a[i]) * problem.b[j] * std::exp((f[i] + g[j] - cost(i, j)) / eps);
      optimum.mass += entry;
      optimum.transport_cost += entry * cost(i, j);
    }
  }
  return optimum;
}

// For small totals t the plan has about the mass t^(1 + eps / (eps + rho_a + rho_b)), far below t. The tolerance is
// beside this mass.
TEST_P(UnbalancedPoints, plans_of_any_total_are_right) {
  Problem const unit = make_problem({6, 6, 2});
  // A half-step contracts potentials in the sup norm by rho / (rho + eps). For one of the two sides this factor is at
  // most 0.42. So a relative error e of a marginal leaves at most 2 e / (1 - 0.42) in P and in exp(g / eps). The mean
  // error of 6 points may be the error of one point that has a few hundredths of the mass.
  Real const error = 100 * reachable();
  for (auto const& [eps, rho_b] : {std::pair{1.34, 0.43}, {5.0, 1.0}, {1.0, 1.0}, {1.0, kInfinity}}) {
    for (double const total : {1.0, 1e-3, 1e-8, 1e-20, 1e-40, 1e-100, 1e-160}) {
      SCOPED_TRACE(testing::Message() << "eps " << eps << ", rho_b " << rho_b << ", total " << total);
      Problem problem = unit;
      for (std::vector<double>* weights : {&problem.a, &problem.b}) {
        for (double& weight : *weights) weight *= total;
      }
      SolveOptions options = with_penalties(eps, 0.7, rho_b);
      options.tolerance = reachable();
      Optimum const optimum = optimum_of(problem, eps, {0.7, rho_b});
      for (Criterion const criterion : {Criterion::l1, Criterion::gradient}) {
        options.criterion = criterion;
        Report const report = solve(problem, options).report();
        EXPECT_EQ(report.status, Status::converged) << report.message;
        expect_close("transported_mass", report.transported_mass / optimum.mass, 1, error);
        expect_close("transport_cost", report.transport_cost / optimum.transport_cost, 1, error);
      }
      options.criterion = Criterion::l1;
      options.certificate = false;
      Plan const plan = solve(problem, options);
      EXPECT_EQ(plan.report().status, Status::converged);
      for (std::size_t j = 0; j < 6; ++j)
        expect_close("g / eps", plan.g()[static_cast<std::int64_t>(j)] / eps, optimum.g[j] / eps, error);
    }
  }
}

TEST_P(Unbalanced, certificates_equal_the_dense_evaluation) {
  for_each_trial([&](Problem const& problem, double eps, Penalties const& penalties) {
    for (int const iterations : {1, 300}) {
      SolveOptions options = with_penalties(eps, penalties.a, penalties.b);
      options.tolerance = iterations == 1 ? 0 : 1e-4;
      options.iterations = iterations;
      Plan const plan = solve(problem, options);
      expect_report_matches(plan.report(), problem, eps, potentials_of(plan));
      EXPECT_EQ(plan.report().penalty_a, penalties.a);
      EXPECT_EQ(plan.report().penalty_b, penalties.b);
      EXPECT_NEAR(plan.report().mass_b, std::accumulate(problem.b.begin(), problem.b.end(), 0.0),
                  1e-12 * plan.report().mass_b);
    }
  });
}

// r = a exp(-f / rho), from the plan's own marginals; and where a_i = 0, f_i = rho / (rho + eps) f+_i.
TEST_P(Unbalanced, solutions_meet_the_first_order_conditions) {
  for_each_trial([&](Problem const& problem, double eps, Penalties const& penalties) {
    SolveOptions options = with_penalties(eps, penalties.a, penalties.b);
    options.tolerance = reachable();
    Plan const plan = solve(problem, options);
    Report const& report = plan.report();
    EXPECT_EQ(report.status, Status::converged) << report.message;
    EXPECT_LE(report.marginal_error, reachable() * std::max(report.mass, report.mass_b));
    std::vector<double> marginal[2] = {std::vector<double>(problem.n()), std::vector<double>(problem.m())};
    plan.marginals(marginal[0], marginal[1]);
    double error = 0;
    for (Side const side : {Side::rows, Side::columns}) {
      std::vector<double> const& weight = side == Side::rows ? problem.a : problem.b;
      std::vector<double> const potential = side == Side::rows ? plan.f() : plan.g();
      for (std::size_t i = 0; i < weight.size(); ++i) {
        if (weight[i] > 0)
          error += std::abs(marginal[side == Side::rows ? 0 : 1][i] -
                            weight[i] * std::exp(-potential[i] / penalties.of(side)));
      }
    }
    Dense const dense(problem);
    Tolerance const tolerance(problem, eps, arithmetic(problem.d()));
    Potentials const potentials = potentials_of(plan);
    EvaluationTolerance const allowed = tolerance.evaluation(dense, potentials, penalties);
    EXPECT_NEAR(error, report.marginal_error, allowed.row_error + allowed.column_error);
    expect_iterates(dense, tolerance, eps, potentials, potentials, 0, penalties);
  });
}

// The dual is a lower bound at any time and grows; the gap is rho KL(P 1 | a exp(-f / rho)), so never negative, and
// vanishes with the error.
TEST_P(Unbalanced, the_dual_stays_below_the_optimum_and_the_gap_closes) {
  for_each_trial([&](Problem const& problem, double eps, Penalties const& penalties) {
    Dense const dense(problem);
    Potentials const best = oracle::solve(dense, eps, 1e-13L, 20000, penalties);
    DenseEvaluation const optimum = evaluate(dense, eps, best, penalties);
    double const size = static_cast<double>(std::abs(optimum.primal) + std::abs(optimum.dual));
    double last = -kInfinity;
    for (int const iterations : {1, 2, 4, 8, 16}) {
      SolveOptions options = with_penalties(eps, penalties.a, penalties.b);
      options.tolerance = 0;
      options.iterations = iterations;
      options.annealing = 1;
      Plan const plan = solve(problem, options);
      Report const& report = plan.report();
      double const mass = std::max(report.mass, report.mass_b);
      double const rounding = 1e-9 * size + eps * mass * 1e3 * arithmetic(problem.d()).product;
      EXPECT_LE(report.dual, static_cast<double>(optimum.dual) + rounding);
      EXPECT_GE(report.dual, last - rounding);
      last = report.dual;
      bool const both = std::isfinite(penalties.a) && std::isfinite(penalties.b);
      if (both) {
        EXPECT_GE(report.gap, 0);
      }
    }
    SolveOptions options = with_penalties(eps, penalties.a, penalties.b);
    options.tolerance = reachable();
    Plan const plan = solve(problem, options);
    double const mass = std::max(plan.report().mass, plan.report().mass_b);
    // |dual - optimum| <= gap where there is no constraint; a constraint adds the largest potential times the error.
    double largest = 0;
    for (double const value : plan.f()) largest = std::max(largest, std::isfinite(penalties.a) ? 0 : std::abs(value));
    for (double const value : plan.g()) largest = std::max(largest, std::isfinite(penalties.b) ? 0 : std::abs(value));
    double const allowed = std::abs(plan.report().gap) + 2 * largest * reachable() * mass + 1e-9 * size;
    EXPECT_NEAR(plan.report().dual, static_cast<double>(optimum.dual), allowed);
  });
}

// Gaussians on a fine grid, for which the trapezoidal rule is exact to rounding: potentials are quadratic (Janati,
// Muzellec, Peyre, Cuturi 2020), so the fixed point of the updates is found for their three coefficients.
TEST_P(UnbalancedPoints, of_gaussians) {
  struct Gaussian {
    Real mean, deviation, mass;
  };
  struct Quadratic {
    Real c0 = 0, c1 = 0, c2 = 0;
  };
  Gaussian const alpha{0, 1, 1}, beta{1.5L, 0.6L, 2.5L};
  // log of the integral of exp(q0 + q1 z + q2 z^2) over the measure.
  auto const log_integral = [](Gaussian const& of, Real q0, Real q1, Real q2) {
    Real const s2 = of.deviation * of.deviation, curvature = 1 / (2 * s2) - q2, slope = of.mean / s2 + q1;
    return q0 - of.mean * of.mean / (2 * s2) + slope * slope / (4 * curvature) +
           std::log(of.mass / of.deviation / std::sqrt(2 * curvature));
  };
  auto const update = [&](Gaussian const& of, Quadratic const& other, Real eps, Real rho) {
    // At three points x; the result is quadratic in x.
    auto const at = [&](Real x) {
      Real const plus =
          -eps * log_integral(of, (other.c0 - x * x) / eps, (other.c1 + 2 * x) / eps, (other.c2 - 1) / eps);
      return std::isinf(rho) ? plus : plus * rho / (rho + eps);
    };
    Real const zero = at(0), right = at(1), left = at(-1);
    return Quadratic{zero, (right - left) / 2, (right + left) / 2 - zero};
  };
  struct Optimum {
    Real mass, dual;
  };
  auto const optimum_of = [&](Gaussian const& alpha, Gaussian const& beta, Real eps, Penalties const& rho) {
    Quadratic f, g;
    for (int k = 0; k < 2000; ++k) {
      f = update(beta, g, eps, rho.a);
      g = update(alpha, f, eps, rho.b);
    }
    // At the optimum all masses are equal: that of b exp(-g / rho_b), or of b.
    Real const mass =
        std::isinf(rho.b) ? beta.mass : std::exp(log_integral(beta, -g.c0 / rho.b, -g.c1 / rho.b, -g.c2 / rho.b));
    auto const linear = [](Gaussian const& of, Quadratic const& q) {
      return of.mass * (q.c0 + q.c1 * of.mean + q.c2 * (of.mean * of.mean + of.deviation * of.deviation));
    };
    Real const dual = (std::isinf(rho.a) ? linear(alpha, f) : rho.a * (alpha.mass - mass)) +
                      (std::isinf(rho.b) ? linear(beta, g) : rho.b * (beta.mass - mass)) -
                      eps * (mass - alpha.mass * beta.mass);
    return Optimum{mass, dual};
  };
  // The derivatives by the mean, the deviation and the mass of alpha, and the second ones by the mean and either.
  struct Slopes {
    Real mean, deviation, mass, mean_mean, mean_deviation;
  };
  auto const slopes_of = [&](Gaussian const& alpha, Gaussian const& beta, Real eps, Penalties const& rho) {
    constexpr Real h = 1e-4L;
    auto const dual = [&](Real mean, Real deviation, Real mass) {
      return optimum_of({alpha.mean + h * mean, alpha.deviation + h * deviation, alpha.mass + h * mass}, beta, eps, rho)
          .dual;
    };
    return Slopes{(dual(1, 0, 0) - dual(-1, 0, 0)) / (2 * h), (dual(0, 1, 0) - dual(0, -1, 0)) / (2 * h),
                  (dual(0, 0, 1) - dual(0, 0, -1)) / (2 * h),
                  (dual(1, 0, 0) - 2 * dual(0, 0, 0) + dual(-1, 0, 0)) / (h * h),
                  (dual(1, 1, 0) - dual(1, -1, 0) - dual(-1, 1, 0) + dual(-1, -1, 0)) / (4 * h * h)};
  };
  std::int64_t const count = 241;
  auto const grid = [&](Gaussian const& of, std::vector<double>& points, std::vector<double>& weights) {
    double total = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      double const z = -9 + 18.0 * i / (count - 1);
      points.push_back(static_cast<double>(of.mean + of.deviation * z));
      weights.push_back(std::exp(-z * z / 2));
      total += weights.back();
    }
    for (double& weight : weights) weight *= static_cast<double>(of.mass) / total;
  };
  std::vector<double> x, y, a, b;
  grid(alpha, x, a);
  grid(beta, y, b);
  Problem const problem{Stored(x, count, 1), Stored(y, count, 1), a, b};
  double const tolerance = is_float64() ? 1e-11 : precision() == Precision::tf32 ? 1e-3 : 1e-5;
  for (double const eps : {1.0, 4.0}) {
    for (Penalties const& rho : {Penalties{1, 1}, {10, 2}, {kInfinity, 3}, {0.5, kInfinity}}) {
      SCOPED_TRACE(testing::Message() << "eps " << eps << ", penalties " << rho.a << " and " << rho.b);
      auto const [mass, dual] = optimum_of(alpha, beta, eps, rho);
      SolveOptions options = with_penalties(eps, rho.a, rho.b);
      options.tolerance = tolerance;
      Plan const plan = solve(problem, options);
      Report const& report = plan.report();
      EXPECT_EQ(report.status, Status::converged) << report.message;
      double const allowed = 10 * tolerance * 2.5 + 1e-12;  // The mass is of first order in the error.
      expect_close("transported_mass", report.transported_mass, mass, allowed);
      expect_close("dual", report.dual, dual, allowed);
      if (!is_float64()) continue;

      // Differences are off by h^2 times a derivative of the third or fourth order, and by 2^-64 / h^2.
      Slopes const slopes = slopes_of(alpha, beta, eps, rho);
      std::vector<double> gradient(count), by_a(count), product(count);
      plan.gradients({.x = {gradient.data(), count, 1}, .a = by_a});
      std::vector<double> const ones(count, 1.0);
      LinearReport const linear =
          plan.hessian_product({.x = {ones.data(), count, 1}}, {.x = {product.data(), count, 1}}, {.tolerance = 1e-10});
      EXPECT_EQ(linear.status, LinearStatus::converged);
      Slopes found{};
      for (std::int64_t i = 0; i < count; ++i) {
        Real const z = (x[i] - alpha.mean) / alpha.deviation;
        found.mean += gradient[i];
        found.deviation += gradient[i] * z;
        found.mass += by_a[i] * (a[i] / alpha.mass);
        found.mean_mean += product[i];
        found.mean_deviation += product[i] * z;
      }
      double const close = 1e-6;
      expect_close("by the mean", static_cast<double>(found.mean), slopes.mean, close);
      expect_close("by the deviation", static_cast<double>(found.deviation), slopes.deviation, close);
      expect_close("by the mass", static_cast<double>(found.mass), slopes.mass, close);
      expect_close("by the mean twice", static_cast<double>(found.mean_mean), slopes.mean_mean, close);
      expect_close("by mean and deviation", static_cast<double>(found.mean_deviation), slopes.mean_deviation, close);
    }
  }
}

// rho KL(P 1 | a) exceeds 0 by about f^2 / (2 rho): at rho = 1e12 eps nothing is left of it.
TEST_P(Unbalanced, a_huge_penalty_gives_the_balanced_plan) {
  for (Recipe const& recipe : {Recipe{60, 80, 2}, Recipe{80, 60, 3, Weights::skewed, Place::shifted, 0.02}}) {
    Problem const problem = make_problem(recipe);
    double const eps = recipe.eps_over_spread * Magnitudes(problem).spread();
    SolveOptions options{.eps = eps, .method = Method::sinkhorn, .tolerance = reachable()};
    Plan const balanced = solve(problem, options);
    for (double const multiple : {1e12, 1e300}) {
      SCOPED_TRACE(testing::Message() << "penalty " << multiple << " eps, " << recipe);
      options.penalty_a = options.penalty_b = multiple * eps;
      Plan const plan = solve(problem, options);
      EXPECT_EQ(plan.status(), Status::converged) << plan.report().message;
      EXPECT_EQ(plan.report().iterations, balanced.report().iterations);
      // What the penalty changes: the mass by f / rho, the values by cost times that.
      double const cost = static_cast<double>(Dense(problem).largest_cost());
      double const allowed = 4 * reachable() + 2 * cost / options.penalty_a;
      EXPECT_NEAR(plan.report().dual, balanced.report().dual, cost * allowed);
      EXPECT_NEAR(plan.report().transport_cost, balanced.report().transport_cost, cost * allowed);
      EXPECT_NEAR(plan.report().transported_mass, 1, allowed);
    }
  }
}

// Plain damped updates lose 1 - 2 eps / rho of the constant of the potentials a sweep: 1e6 sweeps a digit at the far
// end. Translated, none takes more than the balanced problem does, but for where rungs and checks fall.
TEST_P(UnbalancedCounts, sweeps_do_not_grow_with_the_penalty) {
  for (double const eps_over_spread : {0.05, 0.01, 0.002}) {
    Recipe const recipe{100, 90, 2, Weights::skewed, Place::origin, eps_over_spread};
    Problem const problem = make_problem(recipe);
    double const eps = eps_over_spread * Magnitudes(problem).spread();
    for (Schedule const schedule : {Schedule::overrelaxed, Schedule::alternating, Schedule::symmetric}) {
      SolveOptions options{.eps = eps, .method = Method::sinkhorn, .iterations = 50000, .schedule = schedule};
      int const balanced = solve(problem, options).report().iterations;
      for (double const multiple : {1.0, 1e2, 1e4, 1e6, 1e12}) {
        for (bool const semi : {false, true}) {
          SCOPED_TRACE(testing::Message() << name(schedule) << ", eps " << eps_over_spread << ", penalty " << multiple
                                          << " eps" << (semi ? " of b" : ""));
          options.penalty_a = semi ? kInfinity : multiple * eps;
          options.penalty_b = multiple * eps;
          Report const report = solve(problem, options).report();
          EXPECT_EQ(report.status, Status::converged) << report.message;
          EXPECT_LE(report.iterations, 2 * balanced + 50);
        }
      }
    }
  }
}

// An offset of both clouds changes nothing; one between them changes what the penalties see, and the shifts of the
// potentials with it.
TEST_P(UnbalancedPoints, penalties_are_of_the_potentials_of_the_user) {
  for (Place const place : {Place::origin, Place::shifted, Place::apart}) {
    Recipe const recipe{50, 60, 3, Weights::skewed, place, 0.05};
    Problem const problem = uneven(make_problem(recipe), 4);
    Dense const dense(problem);
    double const eps = 0.05 * Magnitudes(problem).spread();
    Penalties const penalties{static_cast<double>(dense.largest_cost()), static_cast<double>(dense.largest_cost()) / 3};
    SCOPED_TRACE(testing::Message() << recipe);
    SolveOptions options = with_penalties(eps, penalties.a, penalties.b);
    options.tolerance = reachable();
    Report const report = solve(problem, options).report();
    EXPECT_EQ(report.status, Status::converged) << report.message;
    DenseEvaluation const optimum =
        evaluate(dense, eps, oracle::solve(dense, eps, 1e-14L, 20000, penalties), penalties);
    EXPECT_NEAR(report.transported_mass, static_cast<double>(optimum.mass), 4 * reachable() * report.mass_b);
    EXPECT_NEAR(report.dual, static_cast<double>(optimum.dual),
                report.gap + 1e-12 * static_cast<double>(std::abs(optimum.dual)));
  }
}

TEST_P(Unbalanced, batches_and_solvers_have_the_bits_of_a_solve) {
  Problem const first = uneven(make_problem({40, 50, 3}), 2), second = make_problem({90, 30, 2, Weights::with_zeros});
  SolveOptions options{.eps = 0.5, .tolerance = 1e-3, .penalty_a = 3, .penalty_b = 20, .precision = precision()};
  std::vector<BatchProblem> const problems{{first.geometry(), first.a, first.b},
                                           {second.geometry(), second.a, second.b}};
  std::vector<Plan> const together = solve_batch(context(), problems, options);
  Solver solver(context(), first.geometry(), first.a, first.b, {.eps = 0.5, .penalty_a = 1, .precision = precision()});
  solver.solve();
  Plan const again = solver.solve(options);
  Plan const alone[] = {solve(first, options), solve(second, options)};
  for (int k : {0, 1}) {
    EXPECT_EQ(together[k].f(), alone[k].f());
    EXPECT_EQ(together[k].g(), alone[k].g());
    EXPECT_EQ(together[k].report().dual, alone[k].report().dual);
  }
  EXPECT_EQ(again.f(), alone[0].f());
  EXPECT_EQ(again.report().primal, alone[0].report().primal);
}

// The potentials are of the size rho log(3) / 2: their rounding is of 2^-53 rho / eps in every logit, and the solve
// says that it is the limit instead of sweeping on.
TEST_P(UnbalancedCounts, rounding_of_large_penalties_is_recognised) {
  Recipe const recipe{60, 45, 4};
  for (double const penalty : {1e10, 1e12, 1e14, 1e20, 1e300}) {
    SCOPED_TRACE(testing::Message() << "penalty " << penalty);
    Problem const problem = uneven(make_problem(recipe), 3);
    for (Precision const precision : {Precision::automatic, Precision::float64}) {
      SolveOptions options = with_penalties(0.2, penalty, penalty);
      options.precision = precision;
      Report const report = monge::solve(context(), problem.geometry(), problem.a, problem.b, options).report();
      // At 1e10 rounding is about what the tolerance allows.
      bool const by_luck = penalty == 1e10 && report.status == Status::converged;
      EXPECT_TRUE(by_luck || report.status == Status::precision_limit) << report.message;
      EXPECT_TRUE(by_luck || report.precision == Precision::float64);
      EXPECT_LE(report.iterations, 2000);
    }
  }
  // With next to no penalty f / rho is rounding where the clouds are apart.
  Problem const apart = uneven(make_problem({30, 40, 2, Weights::skewed, Place::apart}), 7);
  SolveOptions options = with_penalties(1, 1e-300, 1e-300);
  options.precision = Precision::float64;
  Report const report = monge::solve(context(), apart.geometry(), apart.a, apart.b, options).report();
  EXPECT_TRUE(report.status == Status::precision_limit || report.status == Status::converged) << report.message;
}

// With one column its error is a small part of all, at the level of float32's rounding too.
TEST_P(UnbalancedCounts, rounding_is_recognised_with_one_column) {
  int in_float64 = 0;
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    Problem const problem =
        make_problem({.n = 2 + static_cast<std::int64_t>(seed) % 18, .m = 1, .d = 3, .scale = 0.5, .seed = seed});
    SolveOptions options = with_penalties(0.09, 1, 1);
    options.tolerance = 1e-10;
    Report const report = monge::solve(context(), problem.geometry(), problem.a, problem.b, options).report();
    EXPECT_EQ(report.status, Status::converged) << report.message;
    EXPECT_LE(report.iterations, 500);
    in_float64 += report.precision == Precision::float64;
  }
  EXPECT_GT(in_float64, 50);
}

TEST_P(Unbalanced, extreme_penalties_give_finite_reports) {
  Problem const problem = uneven(make_problem({30, 40, 2, Weights::skewed, Place::apart}), 7);
  for (double const penalty : {5e-324, 1e-300, 1e-9, 1e9, 1e300}) {
    SCOPED_TRACE(testing::Message() << "penalty " << penalty);
    SolveOptions options = with_penalties(1, penalty, 2 * penalty);
    options.iterations = 100;
    Plan const plan = solve(problem, options);
    for (std::vector<double> const& potential : {plan.f(), plan.g()})
      for (double const value : potential) EXPECT_TRUE(std::isfinite(value));
    EXPECT_FALSE(std::isnan(plan.report().marginal_error));
    EXPECT_FALSE(std::isnan(plan.report().dual));
  }
}

}  // namespace
}  // namespace monge::oracle
