// Plans without a regulariser beside optima that are known exactly: small assignments by looking at every permutation,
// and Monge costs, for which the north-west corner rule is optimal whatever the masses are.
//
// Tolerances. The dual value bounds the optimum W from above by nothing but its own rounding. With optimal potentials u
// and v of costs in [0, c], gauged to lie in [-c, c], <C, X> >= u'(X 1) + v'(X^T 1) >= W - c |(X 1 - p, X^T 1 - q)|_1.
// Between the two lies the gap, which the solve says is small. Sums of up to n m terms are rounded by far less than
// 1e-12 of c.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <monge/monge.hpp>

#include "oracle/backend_test.hpp"

namespace monge {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct LinearProgram {
  std::string name;
  std::int64_t n, m;
  std::vector<double> cost, p, q;  // Costs from 0 to 1 or +infinity, masses of sum 1.
  double optimum;
};

/// Uniform masses: a vertex of the plans is a permutation over n.
LinearProgram assignment(std::string name, std::int64_t n, std::vector<double> cost) {
  std::vector<std::size_t> partner(static_cast<std::size_t>(n));
  std::iota(partner.begin(), partner.end(), std::size_t{0});
  double least = kInfinity;
  do {
    double sum = 0;
    for (std::size_t i = 0; i < partner.size(); ++i) sum += cost[i * partner.size() + partner[i]];
    least = std::min(least, sum);
  } while (std::next_permutation(partner.begin(), partner.end()));
  std::vector<double> const share(partner.size(), 1 / static_cast<double>(n));
  return {std::move(name), n, n, std::move(cost), share, share, least / static_cast<double>(n)};
}

/// Rows and columns in the order of points x and y of a line, whose cost is a convex function of x - y.
LinearProgram on_a_line(std::string name, std::vector<double> x, std::vector<double> y, std::vector<double> p,
                        std::vector<double> q, double power) {
  std::sort(x.begin(), x.end());
  std::sort(y.begin(), y.end());
  LinearProgram result{std::move(name), std::ssize(x), std::ssize(y), {}, std::move(p), std::move(q), 0};
  for (double const from : x) {
    for (double const to : y) result.cost.push_back(std::pow(std::abs(from - to), power));
  }
  std::vector<double> left_p = result.p, left_q = result.q;
  for (std::size_t i = 0, j = 0; i < x.size() && j < y.size();) {
    double const mass = std::min(left_p[i], left_q[j]);
    result.optimum += mass * result.cost[i * y.size() + j];
    left_p[i] -= mass;
    left_q[j] -= mass;
    // What rounding leaves of a mass is no reason to skip a point.
    ++(left_p[i] <= left_q[j] ? i : j);
  }
  return result;
}

std::vector<double> numbers(std::int64_t size, std::mt19937_64& random) {
  std::uniform_real_distribution<double> uniform;
  std::vector<double> result(static_cast<std::size_t>(size));
  for (double& value : result) value = uniform(random);
  return result;
}

/// Multiples of 1/1024, so that totals are equal; some are 0.
std::vector<double> shares(std::int64_t size, std::mt19937_64& random) {
  std::vector<double> result(static_cast<std::size_t>(size));
  std::uniform_int_distribution<std::size_t> place(size > 3 ? 1 : 0, static_cast<std::size_t>(size - 1));
  for (int k = 0; k < 1024; ++k) result[place(random)] += 0x1p-10;
  return result;
}

std::vector<LinearProgram> programs() {
  std::vector<LinearProgram> result;
  std::mt19937_64 random(17);
  for (std::int64_t const n : {1, 2, 3, 5, 7})
    result.push_back(assignment("random " + std::to_string(n), n, numbers(n * n, random)));
  // Costs that many permutations share.
  std::vector<double> ties(36);
  for (std::size_t e = 0; e < ties.size(); ++e) ties[e] = static_cast<double>(e * 7 % 3) / 2;
  result.push_back(assignment("ties", 6, ties));
  // Forbidden pairs, with a permutation left.
  std::vector<double> forbidden = numbers(36, random);
  for (std::size_t e = 0; e < forbidden.size(); ++e) {
    if (e % 5 == 2 && e % 7 != 0) forbidden[e] = kInfinity;
  }
  result.push_back(assignment("forbidden", 6, forbidden));
  for (auto const& [n, m] : {std::pair{1, 4}, {4, 1}, {6, 9}, {23, 17}}) {
    for (double const power : {1.0, 2.0}) {
      std::string const name = "line " + std::to_string(n) + " x " + std::to_string(m) + ", " + std::to_string(power);
      std::vector<double> const x = numbers(n, random), y = numbers(m, random);
      result.push_back(on_a_line(name, x, y, shares(n, random), shares(m, random), power));
    }
  }
  return result;
}

class LinearPrograms : public oracle::BackendTest {
 protected:
  LinearPrograms() : BackendTest(2) {}

  void expect_optimum(LinearProgram const& problem, Regularizer const& h, RegularizedOptions options) const {
    SCOPED_TRACE(problem.name);
    options.tolerance = is_float64() ? 1e-6 : 1e-4;
    options.iterations = 100000;
    CostMatrix const cost{{problem.cost.data(), problem.n, problem.m}};
    RegularizedReport const report = solve_regularized(context(), cost, problem.p, problem.q, h, options).report();
    ASSERT_EQ(report.status, Status::converged) << report.message;
    EXPECT_LE(report.dual, problem.optimum + 1e-12);
    EXPECT_GE(report.primal, problem.optimum - report.marginal_error - 1e-12);
    double const unit = is_float64() ? 1e-6 : 1e-3;  // RegularizedCriterion::gap.
    EXPECT_LE(std::abs(report.gap), options.tolerance * std::max(report.primal, unit));
  }

  RegularizedOptions splitting(bool accelerate) const {
    RegularizedOptions options;
    options.method = RegularizedMethod::splitting;
    options.precision = precision();
    options.accelerate = accelerate;
    return options;
  }
};
MONGE_FOR_EACH_OF(LinearPrograms, oracle::with_point_costs({oracle::Costs::points}));

class LinearProgramsByNewton : public LinearPrograms {};
MONGE_FOR_EACH_DEVICE(LinearProgramsByNewton);

TEST_P(LinearPrograms, SplittingFindsTheOptimum) {
  for (LinearProgram const& problem : programs()) {
    for (bool const accelerate : {false, true}) expect_optimum(problem, {}, splitting(accelerate));
  }
}

TEST_P(LinearProgramsByNewton, FindTheOptimum) {
  RegularizedOptions options;
  options.method = RegularizedMethod::newton;
  for (LinearProgram const& problem : programs()) expect_optimum(problem, {}, options);
}

/// A weighted l1 term is a cost, and a mask one that is infinite.
TEST_P(LinearPrograms, TermsThatAreCostsFindTheOptimumOfTheirSum) {
  for (LinearProgram const& problem : programs()) {
    LinearProgram part = problem;
    std::vector<double> weights, mask;
    for (std::size_t e = 0; e < problem.cost.size(); ++e) {
      bool const allowed = std::isfinite(problem.cost[e]);
      weights.push_back(allowed && e % 2 == 0 ? 2 * problem.cost[e] : 0);
      mask.push_back(allowed ? 1 : 0);
      part.cost[e] = !allowed ? 0.5 : e % 2 == 0 ? 0 : problem.cost[e];
    }
    Regularizer h;
    h.l1 = 0.5;
    h.l1_weights = {weights.data(), problem.n, problem.m};
    h.mask = {mask.data(), problem.n, problem.m};
    expect_optimum(part, h, splitting(true));
  }
}

}  // namespace
}  // namespace monge
