// What must not matter, and what must change in a known way. Each solve runs a fixed number of sweeps or to a tolerance
// and is compared with the solve of the changed problem.
#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

#include "oracle/backend_test.hpp"

namespace monge::oracle {
namespace {

constexpr int kSweeps = 12;

class Invariance : public BackendTest {
 protected:
  Plan run(Problem const& problem, double eps) const {
    SolveOptions const options{.eps = eps,
                               .tolerance = 0,
                               .iterations = kSweeps,
                               .schedule = Schedule::alternating,
                               .annealing = 1,
                               .precision = precision()};
    return solve(context(), problem.geometry(), problem.a, problem.b, options);
  }
  Plan converge(Problem const& problem, double eps) const {
    SolveOptions const options{.eps = eps, .tolerance = reachable(problem.d()), .precision = precision()};
    return solve(context(), problem.geometry(), problem.a, problem.b, options);
  }
  /// In few dimensions tf32 has no products to round: it is float32.
  double reachable(std::int64_t d) const {
    if (is_float64()) return 1e-10;
    return precision() == Precision::tf32 && d > 8 ? 1e-2 : 1e-5;
  }
  /// Rounding of the potentials after kSweeps alternating sweeps, both problems together.
  Real rounding(Problem const& problem, double eps, Plan const& plan) const {
    SweepResult const result{potentials_of(plan)};
    return 2 * Tolerance(problem, eps, arithmetic(problem.d())).sweeps({eps}, kSweeps, result);
  }
  static double eps_of(Problem const& problem) { return 0.05 * Magnitudes(problem).spread(); }
};
MONGE_FOR_EACH_POINT_TARGET(Invariance);

Stored moved(Stored const& cloud, std::function<void(std::span<double>)> const& move) {
  std::vector<double> values = cloud.values();
  std::int64_t const d = cloud.columns();
  for (std::int64_t i = 0; i < cloud.rows(); ++i) move(std::span(values).subspan(i * d, d));
  return Stored(values, cloud.rows(), d);
}

Problem base(std::int64_t d) {
  return make_problem({60, 70, d, Weights::skewed});
}

TEST_P(Invariance, of_the_potentials_under_isometries) {
  for (std::int64_t const d : {2, 3, 20}) {
    Problem const problem = base(d);
    double const eps = eps_of(problem);
    // A product of reflections.
    Random random(9);
    std::vector<std::vector<double>> normals;
    for (int k = 0; k < 2; ++k) normals.push_back(gaussian_points(1, d, random));
    auto const rotate = [&](std::span<double> point) {
      for (std::vector<double> const& normal : normals) {
        double const square = std::inner_product(normal.begin(), normal.end(), normal.begin(), 0.0);
        double const product = std::inner_product(normal.begin(), normal.end(), point.begin(), 0.0);
        for (std::size_t k = 0; k < point.size(); ++k) point[k] -= 2 * product / square * normal[k];
      }
    };
    auto const translate = [](std::span<double> point) {
      for (double& coordinate : point) coordinate += 1000;
    };
    Plan const plan = run(problem, eps);
    Real const allowed = rounding(problem, eps, plan) + 1e-9;  // of the points themselves, moved
    for (auto const& move : {std::function<void(std::span<double>)>(rotate), {translate}}) {
      Problem other = problem;
      other.x = moved(problem.x, move);
      other.y = moved(problem.y, move);
      Plan const other_plan = run(other, eps);
      expect_close("f", other_plan.f(), widen(plan.f()), Vector(60, allowed));
      expect_close("g", other_plan.g(), widen(plan.g()), Vector(70, allowed));
    }
  }
}

// A share of the mean cost has no units: scaled points keep their plan, and eps follows the square of the scale.
TEST_P(Invariance, of_a_relative_eps_under_scaling) {
  Problem const problem = base(5);
  SolveOptions options{.eps_relative = 0.1, .tolerance = 0, .iterations = kSweeps, .precision = precision()};
  Plan const plan = solve(context(), problem.geometry(), problem.a, problem.b, options);
  double const eps = plan.report().eps, mean_cost = plan.report().mean_cost;
  EXPECT_DOUBLE_EQ(eps, 0.1 * mean_cost);
  EXPECT_DOUBLE_EQ(plan.report().eps_relative, 0.1);

  options.eps = eps;
  options.eps_relative = SolveOptions{}.eps_relative;
  Plan const absolute = solve(context(), problem.geometry(), problem.a, problem.b, options);
  EXPECT_EQ(absolute.f(), plan.f());
  EXPECT_EQ(absolute.g(), plan.g());
  EXPECT_EQ(absolute.report().eps, eps);
  EXPECT_DOUBLE_EQ(absolute.report().eps_relative, 0.1);

  Problem doubled = problem;
  for (Stored* cloud : {&doubled.x, &doubled.y}) {
    *cloud = moved(*cloud, [](std::span<double> point) {
      for (double& coordinate : point) coordinate *= 2;
    });
  }
  options.eps = 0;
  options.eps_relative = 0.1;
  Plan const other = solve(context(), doubled.geometry(), doubled.a, doubled.b, options);
  EXPECT_DOUBLE_EQ(other.report().eps, 4 * eps);
  EXPECT_DOUBLE_EQ(other.report().mean_cost, 4 * mean_cost);
}

TEST_P(Invariance, of_the_potentials_under_permutation) {
  Problem const problem = base(5);
  double const eps = eps_of(problem);
  Problem reversed = problem;
  for (Stored* cloud : {&reversed.x, &reversed.y}) {
    std::vector<double> values;
    for (std::int64_t i = cloud->rows() - 1; i >= 0; --i) {
      std::vector<double> const all = cloud->values();
      values.insert(values.end(), all.begin() + i * 5, all.begin() + (i + 1) * 5);
    }
    *cloud = Stored(values, cloud->rows(), 5);
  }
  std::reverse(reversed.a.begin(), reversed.a.end());
  std::reverse(reversed.b.begin(), reversed.b.end());
  Plan const plan = run(problem, eps);
  std::vector<double> f = run(reversed, eps).f();
  std::reverse(f.begin(), f.end());
  expect_close("f", f, widen(plan.f()), Vector(60, rounding(problem, eps, plan)));
}

TEST_P(Invariance, of_the_solution_under_exchange_of_the_clouds) {
  Problem const problem = make_problem({60, 70, 3});
  double const eps = eps_of(problem);
  Plan const plan = converge(problem, eps);
  Plan const exchanged = converge({problem.y, problem.x, problem.b, problem.a}, eps);
  ASSERT_EQ(plan.status(), Status::converged) << plan.report().message;
  double const allowed = 4 * reachable(problem.d()) * static_cast<double>(Dense(problem).largest_cost());
  EXPECT_NEAR(plan.report().transport_cost, exchanged.report().transport_cost, allowed);
  EXPECT_NEAR(plan.report().dual, exchanged.report().dual, allowed);
  std::vector<double> row(60), column(70), exchanged_row(70), exchanged_column(60);
  plan.marginals(row, column);
  exchanged.marginals(exchanged_row, exchanged_column);
  expect_close("row marginal", row, widen(exchanged_column), Vector(60, 2 * reachable(problem.d())));
}

TEST_P(Invariance, of_the_potentials_to_units_of_length) {
  Problem const problem = base(3);
  double const eps = eps_of(problem);
  Plan const plan = run(problem, eps);
  for (double const unit : {0.125, 1000.0}) {
    Problem scaled = problem;
    for (Stored* cloud : {&scaled.x, &scaled.y}) {
      *cloud = moved(*cloud, [&](std::span<double> point) {
        for (double& coordinate : point) coordinate *= unit;
      });
    }
    Vector expected = widen(plan.f());
    for (Real& value : expected) value *= unit * unit;
    expect_close("f", run(scaled, eps * unit * unit).f(), expected,
                 Vector(60, unit * unit * rounding(problem, eps, plan)));
  }
  Problem half = problem;  // the scale of the cost
  half.scale = 0.5;
  Vector expected = widen(plan.f());
  for (Real& value : expected) value /= 2;
  expect_close("f", run(half, eps / 2).f(), expected, Vector(60, rounding(problem, eps, plan)));
}

// With masses k times larger, P' = k P solves the problem: k^2 a b exp((f' + g' - C) / eps) = k P, so
// f' + g' = f + g - eps log k.
TEST_P(Invariance, to_mass_shifts_the_potentials) {
  Problem const problem = base(3);
  double const eps = eps_of(problem);
  Plan const plan = run(problem, eps);
  for (double const k : {1e-3, 1e3}) {
    Problem heavy = problem;
    for (std::vector<double>* weights : {&heavy.a, &heavy.b}) {
      for (double& weight : *weights) weight *= k;
    }
    Plan const heavy_plan = run(heavy, eps);
    EXPECT_NEAR(heavy_plan.report().transport_cost / k, plan.report().transport_cost,
                1e-4 * plan.report().transport_cost);
    EXPECT_NEAR(heavy_plan.report().mass, k, 1e-12 * k);
    // Sweeps that start at g = 0 put it all into f: f+ = -eps log sum_j k b_j ... = f - eps log k, then g+ = g.
    Vector expected = widen(plan.f());
    for (Real& value : expected) value -= eps * std::log(Real(k));
    Real const allowed = rounding(heavy, eps, heavy_plan);
    expect_close("f", heavy_plan.f(), expected, Vector(60, allowed));
    expect_close("g", heavy_plan.g(), widen(plan.g()), Vector(70, allowed));
  }
}

// |x - y - w|^2 = |x - y|^2 - 2 <x - y, w> + |w|^2: the plan stays, the cost moves by mass |w|^2 - 2 <sum a x - sum b
// y, w>.
TEST_P(Invariance, of_the_plan_to_translation_of_one_cloud) {
  Problem const problem = make_problem({60, 70, 3});
  double const eps = eps_of(problem);
  Plan const plan = converge(problem, eps);
  double const w = 40;
  Problem apart = problem;
  apart.y = moved(problem.y, [&](std::span<double> point) {
    for (double& coordinate : point) coordinate += w;
  });
  Plan const apart_plan = converge(apart, eps);
  ASSERT_EQ(apart_plan.status(), Status::converged) << apart_plan.report().message;
  double change = 3 * w * w;
  std::vector<double> const x = problem.x.values(), y = problem.y.values();
  for (std::size_t k = 0; k < x.size(); ++k) change -= 2 * w * problem.a[k / 3] * x[k];
  for (std::size_t k = 0; k < y.size(); ++k) change += 2 * w * problem.b[k / 3] * y[k];
  double const allowed = 4 * reachable(apart.d()) * static_cast<double>(Dense(apart).largest_cost());
  EXPECT_NEAR(apart_plan.report().transport_cost, plan.report().transport_cost + change, allowed);
  EXPECT_NEAR(apart_plan.report().primal, plan.report().primal + change, allowed);
}

TEST_P(Invariance, of_the_others_to_points_without_weight) {
  Problem const problem = base(3);
  double const eps = eps_of(problem);
  Plan const plan = run(problem, eps);
  for (double const distance : {1.0, 1e4}) {  // far ones must not cost digits
    SCOPED_TRACE(testing::Message() << "distance " << distance);
    Problem more = problem;
    std::vector<double> x{distance, 0, distance}, y{0, -distance, 0, distance, 0, 0};
    std::vector<double> const old_x = problem.x.values(), old_y = problem.y.values();
    x.insert(x.end(), old_x.begin(), old_x.end());
    y.insert(y.end(), old_y.begin(), old_y.end());
    more.x = Stored(x, 61, 3);
    more.y = Stored(y, 72, 3);
    more.a.insert(more.a.begin(), 0.0);
    more.b.insert(more.b.begin(), 2, 0.0);
    Plan const more_plan = run(more, eps);
    std::vector<double> const f = more_plan.f(), g = more_plan.g();
    Real const allowed = rounding(problem, eps, plan);
    expect_close("f", std::span(f).subspan(1), widen(plan.f()), Vector(60, allowed));
    expect_close("g", std::span(g).subspan(2), widen(plan.g()), Vector(70, allowed));
    // Where they lie they have the potential that any new point would have.
    std::vector<double> potential(1);
    plan.potential(MatrixView(x.data(), 1, 3), potential);
    EXPECT_TRUE(std::isfinite(f[0]));
    std::vector<double> row(61), column(72);
    more_plan.marginals(row, column);
    EXPECT_EQ(row[0], 0);
    EXPECT_EQ(column[0], 0);
    EXPECT_EQ(column[1], 0);
    expect_report_matches(more_plan.report(), more, eps, potentials_of(more_plan));
  }
}

TEST_P(Invariance, to_points_split_in_two) {
  Problem const problem = base(3);
  double const eps = eps_of(problem);
  Plan const plan = run(problem, eps);
  Problem split = problem;
  std::vector<double> x = problem.x.values();
  x.insert(x.end(), x.begin(), x.begin() + 30);  // the first ten points once more
  split.x = Stored(x, 70, 3);
  for (int i = 0; i < 10; ++i) {
    split.a.push_back(0.75 * problem.a[i]);
    split.a[i] *= 0.25;
  }
  Plan const split_plan = run(split, eps);
  std::vector<double> const f = split_plan.f();
  Real const allowed = rounding(problem, eps, plan);
  expect_close("f", std::span(f).first(60), widen(plan.f()), Vector(60, allowed));
  expect_close("copies", std::span(f).subspan(60), widen(std::span(f).first(10)), Vector(10, allowed));
  expect_close("g", split_plan.g(), widen(plan.g()), Vector(70, allowed));
}

TEST_P(Invariance, at_large_eps_the_plan_is_the_product) {
  Problem const problem = base(3);
  double const eps = 1e6 * Magnitudes(problem).spread();
  Plan const plan = converge(problem, eps);
  EXPECT_EQ(plan.status(), Status::converged) << plan.report().message;
  Dense const dense(problem);
  double cost = 0;
  for (std::int64_t i = 0; i < 60; ++i) {
    for (std::int64_t j = 0; j < 70; ++j) {
      cost += problem.a[i] * problem.b[j] * static_cast<double>(dense.cost(Side::rows, i, j));
    }
  }
  EXPECT_NEAR(plan.report().transport_cost, cost, 1e-4 * cost);
}

TEST_P(Invariance, identical_clouds_have_a_symmetric_plan) {
  Problem problem = make_problem({60, 60, 3, Weights::uniform});
  problem.y = problem.x;
  double const eps = eps_of(problem);
  Plan const plan = converge(problem, eps);
  ASSERT_EQ(plan.status(), Status::converged) << plan.report().message;
  // f = g up to a constant at the optimum: near it P V and P^T V agree.
  Random random(21);
  Stored const v(gaussian_points(60, 2, random), 60, 2);
  std::vector<double> product(120), transposed(120);
  plan.apply(v.view(), MutableMatrixView(product.data(), 60, 2));
  plan.apply_transpose(v.view(), MutableMatrixView(transposed.data(), 60, 2));
  expect_close("P V", product, widen(transposed), Vector(120, 20 * reachable(problem.d())));
}

// A column can lie so far from every row that its entries are below anything its rows' sums can see (exp(-1000)); its
// marginal still has to come out.
TEST_P(Invariance, outliers_keep_their_mass) {
  for (double const distance : {30.0, 3000.0}) {
    SCOPED_TRACE(testing::Message() << "distance " << distance);
    Problem problem = make_problem({60, 70, 2});
    std::vector<double> x = problem.x.values(), y = problem.y.values();
    x[2 * 7] += distance;
    y[2 * 40] -= distance;
    y[2 * 41 + 1] += distance;
    problem.x = Stored(x, 60, 2);
    problem.y = Stored(y, 70, 2);
    double const eps = 0.5;
    Tolerance const tolerance(problem, eps, arithmetic(2));
    auto const entropic = make_operator(problem);
    Dense const dense(problem);
    Sweep const kind{eps};
    entropic->set_potentials({}, {});
    entropic->sweep(kind, 5);
    SweepResult const expected = sweep(dense, kind, 5, {Vector(60, 0), Vector(70, 0)});
    Real const allowed = tolerance.sweeps(kind, 5, expected);
    Potentials const actual = potentials_of(*entropic);
    expect_close("f", narrow(actual.f), expected.potentials.f, Vector(60, allowed));
    expect_close("g", narrow(actual.g), expected.potentials.g, Vector(70, allowed));
  }
}

}  // namespace
}  // namespace monge::oracle
