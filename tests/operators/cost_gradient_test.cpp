// Derivatives by points of distances and of the cosine, averaged by a plan, against the oracle.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "operators/cases.hpp"
#include "plan/plan_derivatives.hpp"

namespace monge::oracle {
namespace {

/// L (n x k) and R (m x k).
struct Factors {
  std::int64_t k;
  std::vector<double> l, r;
  std::vector<double> const& of(Side side) const { return side == Side::rows ? l : r; }
};

std::span<double const> point(Problem const& problem, std::vector<double> const& points, std::int64_t i) {
  return std::span(points).subspan(i * problem.d(), problem.d());
}

/// dC_ij / dp_i of a point p_i.
Vector slope(Problem const& problem, std::span<double const> own, std::span<double const> far) {
  Vector result(own.size());
  if (problem.cost_function == CostFunction::cosine) {
    Real product = 0, own_square = 0, far_square = 0;
    for (std::size_t k = 0; k < own.size(); ++k) {
      product += Real(own[k]) * far[k];
      own_square += Real(own[k]) * own[k];
      far_square += Real(far[k]) * far[k];
    }
    for (std::size_t k = 0; k < own.size(); ++k)
      result[k] = -problem.scale * (far[k] - product / own_square * own[k]) / std::sqrt(own_square * far_square);
    return result;
  }
  Real const p = problem.cost_function == CostFunction::euclidean ? 2 : problem.p, size = p_norm(own, far, p);
  if (size == 0) return result;
  Real ties = 0;
  for (std::size_t k = 0; k < own.size(); ++k) ties += std::abs(Real(own[k]) - far[k]) == size;
  for (std::size_t k = 0; k < own.size(); ++k) {
    Real const difference = Real(own[k]) - far[k], ratio = std::abs(difference) / size;
    Real const power = std::isinf(p) ? Real(ratio == 1) / ties : std::pow(ratio, p - 1);
    result[k] = difference == 0 ? 0 : std::copysign(problem.scale * power, difference);
  }
  return result;
}

class CostGradients : public OperatorTest {
 protected:
  CostFunction function() const {
    return GetParam().costs == Costs::cosine ? CostFunction::cosine : CostFunction::p_norm;
  }
  Arithmetic factors_arithmetic(std::int64_t k) const {
    return oracle::arithmetic({GetParam().device}, precision(), k);
  }

  /// `slope_error(side, i, j)`: of a coordinate of dC_ij / dp_i.
  template <class SlopeError>
  void expect_gradients(Case const& test, PlanOperator& plan, std::optional<Factors> const& factors,
                        SlopeError const& slope_error) const {
    Problem const& problem = test.problem;
    std::int64_t const d = problem.d(), m = problem.m();
    std::vector<double> const points[] = {problem.x.values(), problem.y.values()};
    Vector const entries = test.dense.plan(test.eps, test.potentials);
    Arithmetic const of_factors = factors_arithmetic(factors ? factors->k : 1);
    for (Side const side : {Side::rows, Side::columns}) {
      Vector expected, allowed, relative = test.tolerance.plan(side, test.potentials);
      for (std::int64_t i = 0; i < test.dense.size(side); ++i) {
        Vector sum(d), error(d);
        for (std::int64_t j = 0; j < test.dense.size(other(side)); ++j) {
          Real const entry = side == Side::rows ? entries[i * m + j] : entries[j * m + i];
          Real tilt = 1, tilt_error = 0;
          if (factors) {
            Real left = 0, right = 0;
            tilt = 0;
            for (std::int64_t k = 0; k < factors->k; ++k) {
              Real const l = factors->of(side)[i * factors->k + k], r = factors->of(other(side))[j * factors->k + k];
              tilt += l * r;
              left += l * l;
              right += r * r;
            }
            tilt_error = std::sqrt(left * right) * (of_factors.product + 2 * of_factors.unit);
          }
          Vector const by = slope(problem, point(problem, points[side_index(side)], i),
                                  point(problem, points[side_index(other(side))], j));
          Real const rounded = relative[i] + test.tolerance.sum_error(side);
          for (std::int64_t k = 0; k < d; ++k) {
            sum[k] += entry * tilt * by[k];
            error[k] += entry * (std::abs(tilt) * (rounded * std::abs(by[k]) + slope_error(side, i, j)) +
                                 tilt_error * (std::abs(by[k]) + slope_error(side, i, j)));
          }
        }
        expected.insert(expected.end(), sum.begin(), sum.end());
        allowed.insert(allowed.end(), error.begin(), error.end());
      }
      auto const out = plan.vectors().make(side, d);
      std::unique_ptr<monge::Vector> l, r;
      if (factors) {
        l = plan.vectors().make(side, factors->k);
        r = plan.vectors().make(other(side), factors->k);
        plan.vectors().read(MatrixView(factors->of(side).data(), plan.size(side), factors->k), *l);
        plan.vectors().read(MatrixView(factors->of(other(side)).data(), plan.size(other(side)), factors->k), *r);
      }
      for (int again = 0; again < 2; ++again) {  // The first product of a side is without bounds.
        PlanDerivatives derivatives(plan, nullptr, test.eps, {}, d, precision());
        factors ? derivatives.weighted_gradient(side, *l, *r, *out) : derivatives.gradient(side, *out);
        expect_close(factors ? "weighted gradient" : "gradient", values(plan, *out), expected, allowed);
      }
    }
  }

  /// Changes of the sums for a random motion, where slopes have the rounding of powers alone. The changes of a slope
  /// have the rounding of their largest terms.
  void expect_changes(Case const& test, PlanOperator& plan) const {
    Problem const& problem = test.problem;
    std::int64_t const d = problem.d(), m = problem.m();
    std::vector<double> const points[] = {problem.x.values(), problem.y.values()};
    Random random(5);
    std::vector<double> const motion[] = {gaussian_points(problem.n(), d, random), gaussian_points(m, d, random)};
    Vector const entries = test.dense.plan(test.eps, test.potentials);
    Real const unit = 64 * arithmetic(d).unit, scale = problem.scale;
    for (Side const side : {Side::rows, Side::columns}) {
      int const own = side_index(side), far = side_index(other(side));
      Vector changes, changes_allowed, costs, costs_allowed, relative = test.tolerance.plan(side, test.potentials);
      for (std::int64_t i = 0; i < test.dense.size(side); ++i) {
        Vector sum(d + 1), error(d + 1);
        for (std::int64_t j = 0; j < test.dense.size(other(side)); ++j) {
          Real const entry = side == Side::rows ? entries[i * m + j] : entries[j * m + i];
          Real const rounded = relative[i] + test.tolerance.sum_error(side);
          auto const x = point(problem, points[own], i), y = point(problem, points[far], j);
          Vector const g = slope(problem, x, y);
          Real const size = p_norm(x, y, problem.p);
          Real const bend = std::isinf(problem.p) || size == 0 ? 0 : (problem.p - 1) / size;
          Real along = 0, length = 0;
          for (std::int64_t k = 0; k < d; ++k) {
            Real const v = motion[own][i * d + k], w = motion[far][j * d + k];
            along += g[k] * (v - w);
            length += std::abs(v) + std::abs(w);
          }
          for (std::int64_t k = 0; k < d; ++k) {
            Real const v = motion[own][i * d + k], w = motion[far][j * d + k];
            Real const ratio = size == 0 ? 0 : std::abs(Real(x[k]) - y[k]) / size;
            Real const stretch = ratio == 0 ? Real(problem.p == 2) : std::pow(ratio, problem.p - 2);
            Real const direct = bend > 0 ? scale * bend * stretch * (v - w) : 0,
                       turned = g[k] * along * (bend / scale + 1 / test.eps);
            sum[k] += entry * (direct - turned);
            error[k] += entry * (rounded * (std::abs(direct) + std::abs(turned)) +
                                 unit * scale * ((stretch + 16) * bend + scale / test.eps) * length);
          }
          sum[d] += entry * along;
          error[d] += entry * (rounded * std::abs(along) + unit * scale * length);
        }
        costs.push_back(sum.back());
        costs_allowed.push_back(error.back());
        changes.insert(changes.end(), sum.begin(), sum.end() - 1);
        changes_allowed.insert(changes_allowed.end(), error.begin(), error.end() - 1);
      }
      auto const v = plan.vectors().make(side, d), w = plan.vectors().make(other(side), d);
      plan.vectors().read(MatrixView(motion[own].data(), plan.size(side), d), *v);
      plan.vectors().read(MatrixView(motion[far].data(), plan.size(other(side)), d), *w);
      auto const of_costs = plan.vectors().make(side), of_gradients = plan.vectors().make(side, d);
      plan.points().distance_changes(side, *v, *w, *of_costs, *of_gradients);
      expect_close("change of costs", values(plan, *of_costs), costs, costs_allowed);
      expect_close("change of gradients", values(plan, *of_gradients), changes, changes_allowed);
    }
  }

 private:
  static std::vector<double> values(PlanOperator const& plan, monge::Vector const& vector) {
    Stored result(std::vector<double>(vector.rows() * vector.width()), vector.rows(), vector.width());
    plan.vectors().write(vector, result.mutable_view());
    return result.values();
  }
};
MONGE_FOR_EACH_OF(CostGradients, with_point_costs({Costs::euclidean, Costs::p_norm, Costs::cosine}));

// A coordinate that is rounded moves a point by u of its size. The slope of a distance C turns by at most (p - 1) / C
// times that, and by no more than 2; here p <= 3. A direction and the length of its point are off by u each, of the
// coordinates less their mean; the slope of the cosine is (v - <u, v> u) / |p|, with three products.
TEST_P(CostGradients, equal_the_oracle) {
  int index = 0;
  for (Recipe const& recipe : recipes()) {
    SCOPED_TRACE(testing::Message() << recipe);
    Case const test = make_case(recipe);
    Problem const& problem = test.problem;
    double const unit = arithmetic(recipe.d).unit;
    std::vector<double> const points[] = {problem.x.values(), problem.y.values()};
    Vector lengths[2];
    Real longest[2] = {};
    for (Side const side : {Side::rows, Side::columns}) {
      for (std::int64_t i = 0; i < test.dense.size(side); ++i) {
        Real square = 0;
        for (double const value : point(problem, points[side_index(side)], i)) square += Real(value) * value;
        lengths[side_index(side)].push_back(std::sqrt(square));
        longest[side_index(side)] = std::max(longest[side_index(side)], std::sqrt(square));
      }
    }
    auto const error = [&](Side side, std::int64_t i, std::int64_t j) -> Real {
      if (problem.cost_function == CostFunction::cosine) {
        Vector const& own = lengths[side_index(side)];
        return problem.scale * 8 * unit * (1 + longest[side_index(side)] / own[i]) / own[i];
      }
      Real const moved = 8 * unit * test.tolerance.magnitudes().score(side)[i] / test.dense.cost(side, i, j);
      return problem.scale * (std::min<Real>(2, moved) + 16 * unit);
    };
    auto const plan = make_plan(test, index % 2 == 0 ? 1e9 : 0);
    expect_gradients(test, *plan, std::nullopt, error);
    std::int64_t const k = index % 3 == 0 ? 1 : 5;
    Random random(index++);
    expect_gradients(test, *plan,
                     Factors{k, gaussian_points(problem.n(), k, random), gaussian_points(problem.m(), k, random)},
                     error);
  }
}

/// Points of a lattice around 0, each with its mirror image, and their equals among the targets. Their mean and all
/// differences are exact in float32 if `half` is a power of two. Coordinates tie, and distances and differences are 0.
Problem lattice(std::int64_t half, std::int64_t m, std::int64_t d, double p, double offset) {
  Random random(static_cast<std::uint64_t>(half + 10 * d));
  std::vector<double> x, y;
  for (std::int64_t e = 0; e < half * d; ++e) x.push_back(std::floor(random.uniform(-3, 4)));
  for (std::int64_t e = 0; e < half * d; ++e) x.push_back(-x[e]);
  if (half == 0) x.assign(d, 0);
  for (std::int64_t e = 0; e < m * d; ++e)
    y.push_back(e < std::min<std::int64_t>(2 * d, std::ssize(x)) ? x[e] : std::floor(random.uniform(-3, 4)));
  for (double& value : x) value += offset;
  for (double& value : y) value += offset;
  std::int64_t const n = std::max<std::int64_t>(2 * half, 1);
  Problem problem;
  problem.x = Stored(x, n, d);
  problem.y = Stored(y, m, d);
  problem.a.assign(n, 1.0 / static_cast<double>(n));
  problem.b.assign(m, 1.0 / static_cast<double>(m));
  problem.scale = 0.5;
  problem.cost_function = CostFunction::p_norm;
  problem.p = p;
  return problem;
}

// Slopes then have the rounding of a power alone, p u |log ratio| ratio^(p - 1) <= 2 u and a few u more.
TEST_P(CostGradients, are_exact_where_points_meet_and_coordinates_tie) {
  if (GetParam().costs != Costs::p_norm) GTEST_SKIP() << "p-norms, of which the Euclidean distance is one";
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (double const p : {1.0, 1.25, 2.0, 4.0, 17.0, kInfinity}) {
    for (std::int64_t const d : {1, 2, 5, 40}) {
      for (std::int64_t const half : {0, 8}) {
        for (double const offset : {0.0, 0x1p20}) {
          for (double const least : {1.0, 0.0, 1e-300}) {
            if (std::isinf(p) && least != 1) continue;  // The mean may be rounded, and differences no longer tie.
            SCOPED_TRACE(testing::Message() << "p " << p << ", d " << d << ", half " << half << ", offset " << offset
                                            << ", least " << least);
            Problem problem = lattice(half, 13, d, p, offset);
            if (half > 0) problem.a[1] *= least, problem.a[half + 1] *= least;
            problem.b[0] *= least, problem.b[5] *= least;
            Recipe recipe{problem.n(), problem.m(), d};
            recipe.eps_over_spread = 0.2;
            Case const test(problem, recipe, arithmetic(d));
            double const unit = arithmetic(d).unit;
            auto const error = [&](Side, std::int64_t, std::int64_t) -> Real { return problem.scale * 32 * unit; };
            auto const plan = make_plan(test);
            expect_gradients(test, *plan, std::nullopt, error);
            expect_changes(test, *plan);
            // Factors that are far larger at the points of least weight.
            Random random(3);
            Factors factors{2, gaussian_points(problem.n(), 2, random), gaussian_points(problem.m(), 2, random)};
            if (least > 0) {
              for (std::int64_t k = 0; k < 2; ++k) factors.r[5 * 2 + k] /= least;
            }
            expect_gradients(test, *plan, factors, error);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace monge::oracle
