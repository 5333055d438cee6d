// Derivatives of a plan against the oracle, at potentials that are optimal and at others.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "oracle/backend_test.hpp"
#include "oracle/derivatives.hpp"
#include "plan/plan_derivatives.hpp"

namespace monge::oracle {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
class PlanDerivativesTest : public BackendTest {
 public:
  using BackendTest::precision;
  std::unique_ptr<EntropicOperator> entropic(Problem const& problem) const { return make_operator(problem); }
  /// The operator that a float64 one has replaced, as in a solve with precision auto. Null: none.
  std::unique_ptr<EntropicOperator> replaced(Problem const& problem, bool is_refined) const {
    if (!is_refined) return nullptr;
    return backend_of(context()).entropic_operator(problem.geometry(), {problem.a, problem.b},
                                                   {Precision::float32, 1e9, {}, truncation(problem.d())});
  }
  /// Whether plans follow a refinement.
  std::vector<bool> refinements() const {
    return is_float64() ? std::vector<bool>{false, true} : std::vector<bool>{false};
  }

 protected:
  /// Plans of tf32 sweeps multiply in float32.
  Arithmetic products(std::int64_t d) const {
    Precision const own = precision() == Precision::tf32 ? Precision::float32 : precision();
    return oracle::arithmetic({GetParam().device}, own, d);
  }
};
MONGE_FOR_EACH_OF(PlanDerivativesTest, all_targets());
MONGE_FOR_EACH_ORDERED(PlanDerivativesTest);

/// The oracle's and the library's plan at the same potentials.
struct Pair {
  Pair(EntropicOperator& entropic, EntropicOperator* replaced, Problem const& given, double eps, Penalties penalties,
       double disturbance, Precision precision)
      : problem(given, eps, penalties), potentials(problem.optimum()) {
    Random random(11);
    for (Side const side : kSides) {
      for (Real& value : potentials.of(side)) {
        // What crosses the seam is float64.
        value = static_cast<double>(value + disturbance * eps * random.uniform(-1, 1));
      }
    }
    entropic.set_potentials(narrow(potentials.f), narrow(potentials.g));
    plan = entropic.plan(eps);
    if (replaced) {
      copy_potentials(entropic, *replaced);
      rough = replaced->plan(eps);
    }
    derivatives = std::make_unique<PlanDerivatives>(*plan, rough.get(), eps, penalties, problem.d(), precision);
  }

  PointProblem problem;
  Potentials potentials;
  std::unique_ptr<PlanOperator> plan, rough;
  std::unique_ptr<PlanDerivatives> derivatives;
};

std::vector<double> values(PlanOperator const& plan, Side side, monge::Vector const& vector) {
  Stored out(std::vector<double>(vector.rows() * vector.width()), vector.rows(), vector.width());
  EXPECT_EQ(vector.rows(), plan.size(side));
  plan.vectors().write(vector, out.mutable_view());
  return out.values();
}

std::unique_ptr<monge::Vector> vector(PlanOperator const& plan, Side side, std::int64_t width,
                                      std::span<double const> from) {
  auto result = plan.vectors().make(side, width);
  plan.vectors().read(MatrixView(from.data(), plan.size(side), width), *result);
  return result;
}

/// |p_i - centre| of each point, and the largest.
struct Cloud {
  Cloud(PointProblem const& problem, Side side) {
    std::int64_t const d = problem.d(), size = problem.size(side);
    centre.assign(d, 0);
    Real total = 0;
    for (double const weight : problem.weights(side)) total += weight;
    for (std::int64_t i = 0; i < size; ++i) {
      for (std::int64_t k = 0; k < d; ++k)
        centre[k] += problem.weights(side)[i] / total * problem.points(side)[i * d + k];
    }
    for (std::int64_t i = 0; i < size; ++i) {
      Real square = 0;
      for (std::int64_t k = 0; k < d; ++k) square += std::pow(problem.points(side)[i * d + k] - centre[k], 2.0L);
      radius.push_back(std::sqrt(square));
    }
    largest = *std::max_element(radius.begin(), radius.end());
  }
  Vector centre, radius;
  Real largest = 0;
};

std::vector<Recipe> const& recipes() {
  static std::vector<Recipe> const table{
      {17, 23, 3, Weights::uniform, Place::origin, 0.05},
      {23, 17, 2, Weights::with_zeros, Place::origin, 0.1, DataType::float32, 1, 0.5, 3},
      {20, 15, 30, Weights::skewed, Place::apart, 0.2},
      {15, 20, 5, Weights::with_zeros, Place::shifted, 0.1, DataType::float64, 2, 3, 1, 4},
      {1, 9, 4},
      {9, 1, 4},
      {1, 1, 2},
  };
  return table;
}

double eps_of(Recipe const& recipe, Problem const& problem) {
  double const spread = Magnitudes(problem).spread();
  return recipe.eps_over_spread * (spread > 0 ? spread : 1.0);
}

std::vector<Penalties> penalties_of(double eps) {
  return {{}, {2 * eps, 5 * eps}, {kInfinity, 3 * eps}, {0.1 * eps, kInfinity}};
}

/// Calls check(problem, eps, pair) for problems with points of almost no weight on one side or both: the axis of
/// magnitudes, down to the least normal numbers.
template <class Test, class Check>
void for_each_tiny_pair(Test const& test, Check const& check) {
  Recipe const recipe{13, 11, 3, Weights::uniform, Place::origin, 0.2};
  for (double const least : {1e-20, 1e-100, 1e-280}) {
    for (int const sides : {1, 3}) {
      Problem problem = make_problem(recipe);
      for (std::size_t const i : {0, 5}) {
        if (sides & 1) problem.a[i] *= least;
        if (sides & 2) problem.b[i + 1] *= least;
      }
      double const ratio = std::accumulate(problem.a.begin(), problem.a.end(), 0.0) /
                           std::accumulate(problem.b.begin(), problem.b.end(), 0.0);
      for (double& weight : problem.b) weight *= ratio;
      double const eps = eps_of(recipe, problem);
      for (Penalties const& penalties : {Penalties{}, Penalties{2 * eps, 5 * eps}}) {
        for (bool const is_refined : test.refinements()) {
          SCOPED_TRACE(testing::Message() << "least " << least << ", sides " << sides << ", rho_a " << penalties.a
                                          << ", rho_b " << penalties.b << ", refined " << is_refined);
          auto const entropic = test.entropic(problem), replaced = test.replaced(problem, is_refined);
          Pair pair(*entropic, replaced.get(), problem, eps, penalties, 0, test.precision());
          check(problem, eps, pair);
        }
      }
    }
  }
  // Marginals far below the weights: those of a point so far away that little of its mass is transported.
  for (double const away : {31.0, 70.0}) {
    SCOPED_TRACE(testing::Message() << "away " << away);
    Problem problem = make_problem(recipe);
    double const eps = eps_of(recipe, problem);
    std::vector<double> x = problem.x.values();
    x[0] += away;
    problem.x = Stored(x, problem.x.rows(), problem.x.columns());
    Penalties const penalties{2 * eps, 5 * eps};
    for (bool const is_refined : test.refinements()) {
      auto const entropic = test.entropic(problem), replaced = test.replaced(problem, is_refined);
      Pair pair(*entropic, replaced.get(), problem, eps, penalties, 0, test.precision());
      check(problem, eps, pair);
    }
  }
}

/// Calls check(problem, eps, pair) for each recipe, some penalties, and potentials that are optimal or not.
template <class Test, class Check>
void for_each_pair(Test const& test, Check const& check) {
  for (Recipe const& recipe : recipes()) {
    Problem const problem = make_problem(recipe);
    double const eps = eps_of(recipe, problem);
    for (Penalties const& penalties : penalties_of(eps)) {
      // Far away all mass would be created and destroyed.
      if (recipe.place == Place::apart && !(std::isinf(penalties.a) && std::isinf(penalties.b))) continue;
      for (double const disturbance : {0.0, 0.3}) {
        for (bool const is_refined : test.refinements()) {
          SCOPED_TRACE(testing::Message() << recipe << ", rho_a " << penalties.a << ", rho_b " << penalties.b
                                          << ", disturbance " << disturbance << ", refined " << is_refined);
          auto const entropic = test.entropic(problem), replaced = test.replaced(problem, is_refined);
          Pair pair(*entropic, replaced.get(), problem, eps, penalties, disturbance, test.precision());
          check(problem, eps, pair);
        }
      }
    }
  }
}

TEST_P(PlanDerivativesTest, by_points_equal_the_oracle) {
  for_each_pair(*this, [&](Problem const& given, double eps, Pair& pair) {
    PointProblem const& problem = pair.problem;
    Dense const dense = problem.dense();
    Tolerance const tolerance(given, eps, products(problem.d()));
    std::int64_t const d = problem.d();
    for (Side const side : kSides) {
      auto const out = pair.plan->vectors().make(side, d);
      pair.derivatives->gradient(side, *out);
      // r_i times a slope, less the product by the points of the other side, which are rounded to the arithmetic.
      Cloud const own(problem, side), far(problem, other(side));
      Vector const marginal = dense.marginal(side, eps, pair.potentials);
      Vector const relative = tolerance.plan(side, pair.potentials);
      double const unit = products(d).unit;
      Vector allowed;
      for (std::int64_t i = 0; i < problem.size(side); ++i) {
        for (std::int64_t k = 0; k < d; ++k) {
          Real const apart = std::abs(own.centre[k] - far.centre[k]), sizes = own.radius[i] + far.largest;
          Real const places = std::abs(own.centre[k]) + std::abs(far.centre[k]);
          Real const error = (relative[i] + tolerance.sum_error(side) + 2 * unit) * sizes + relative[i] * apart;
          allowed.push_back(2 * Real(given.scale) * marginal[i] * (error + 0x1p-52 * places));
        }
      }
      expect_close("gradient", values(*pair.plan, side, *out), problem.gradient(side, pair.potentials), allowed);
    }
  });
}

// A row of P, weighted by <l_i, r_j>, meets slopes of at most 2 s times the distance to the farthest point. The product
// of the factors is off by some u |l_i| |r_j|, and so is a sum of it.
TEST_P(PlanDerivativesTest, by_points_with_weighted_entries_equal_the_oracle) {
  static constexpr std::int64_t kWidth = 2;
  for_each_pair(*this, [&](Problem const& given, double eps, Pair& pair) {
    PointProblem const& problem = pair.problem;
    Tolerance const tolerance(given, eps, products(problem.d()));
    std::int64_t const d = problem.d(), m = problem.size(Side::columns);
    Vector const plan = problem.dense().plan(eps, pair.potentials);
    Random random(4);
    std::vector<double> const factors[] = {gaussian_points(problem.size(Side::rows), kWidth, random),
                                           gaussian_points(m, kWidth, random)};
    for (Side const side : kSides) {
      std::vector<double> const &l = factors[side_index(side)], &r = factors[side_index(other(side))];
      auto const size = [](std::vector<double> const& of, std::int64_t i) {
        return std::hypot(Real(of[i * kWidth]), Real(of[i * kWidth + 1]));
      };
      auto const out = pair.plan->vectors().make(side, d);
      pair.derivatives->weighted_gradient(side, *vector(*pair.plan, side, kWidth, l),
                                          *vector(*pair.plan, other(side), kWidth, r), *out);
      Vector const expected = problem.gradient(side, pair.potentials, [&](std::int64_t i, std::int64_t j) {
        return Real(l[i * kWidth]) * r[j * kWidth] + Real(l[i * kWidth + 1]) * r[j * kWidth + 1];
      });
      Cloud const own(problem, side), far(problem, other(side));
      Vector const relative = tolerance.plan(side, pair.potentials);
      Vector allowed;
      for (std::int64_t i = 0; i < problem.size(side); ++i) {
        Real total = 0;
        for (std::int64_t j = 0; j < problem.size(other(side)); ++j)
          total += (side == Side::rows ? plan[i * m + j] : plan[j * m + i]) * size(l, i) * size(r, j);
        for (std::int64_t k = 0; k < d; ++k) {
          Real const apart = std::abs(own.centre[k] - far.centre[k]);
          Real const places = std::abs(own.centre[k]) + std::abs(far.centre[k]);
          Real const error = relative[i] + tolerance.sum_error(side) + 8 * products(d).unit;
          allowed.push_back(2 * Real(given.scale) * total *
                            (error * (own.radius[i] + far.largest + apart) + 0x1p-52 * places));
        }
      }
      expect_close("weighted gradient", values(*pair.plan, side, *out), expected, allowed);
    }
  });
}

TEST_P(PlanDerivativesTest, by_weights_equal_the_oracle) {
  for_each_pair(*this, [&](Problem const& given, double eps, Pair& pair) {
    PointProblem const& problem = pair.problem;
    Tolerance const tolerance(given, eps, products(problem.d()));
    for (Side const side : kSides) {
      auto const out = pair.plan->vectors().make(side);
      pair.plan->weight_terms(side, problem.penalties().of(side), {.gradient = out.get()});
      // A point of no weight has the best potential there is, whatever it was given.
      Potentials potentials = pair.potentials;
      Vector const softmins = problem.dense().softmin(side, eps, potentials.of(other(side)));
      Vector const relative = tolerance.plan(side, potentials),
                   shares = tolerance.softmin(side, potentials.of(other(side)), softmins);
      Vector allowed;
      Real const rho = problem.penalties().of(side);
      for (std::int64_t i = 0; i < problem.size(side); ++i) {
        Real& f = potentials.of(side)[i];
        bool const idle = problem.weights(side)[i] == 0;
        if (idle) f = std::isinf(rho) ? softmins[i] : softmins[i] * rho / (rho + eps);
        Real const ratio = std::exp((f - softmins[i]) / eps);
        // d phi = exp(-f / rho) df, and where f is the best the ratio is that factor.
        Real const error = idle ? shares[i] * (std::isinf(rho) ? 1 : 2 * ratio) : eps * ratio * relative[i];
        allowed.push_back(error + 0x1p-50 * (std::abs(f) + eps) * (std::isinf(rho) ? 1 : 1 + std::exp(-f / rho)));
      }
      expect_close("gradient", values(*pair.plan, side, *out), problem.weight_gradient(side, potentials), allowed);
    }
  });
}

/// What relative errors of P's entries (and of the products of factors, `entry` in all) and a residual of the system
/// make of potentials and derivatives.
class ResponseError {
 public:
  ResponseError(PointProblem const& problem, Potentials const& potentials, Real entry)
      : problem_(problem), entry_(entry), plan_(problem.dense().plan(problem.eps(), potentials)) {
    std::size_t const all = problem.size(Side::rows) + problem.size(Side::columns);
    matrix_ = problem.system(potentials, false);
    // The inverse, for right sides that have a solution: constants are left out of both sides.
    SquareMatrix const system(problem.system(potentials, true));
    inverse_.resize(all * all);
    Vector null(all, 0);
    Real square = 0;
    for (std::size_t k = 0; k < all; ++k) {
      bool const row = k < static_cast<std::size_t>(problem.size(Side::rows));
      double const weight = problem.weights(row ? Side::rows : Side::columns)[row ? k : k - problem.size(Side::rows)];
      if (problem.is_balanced() && weight > 0) null[k] = row ? 1 : -1;
      square += null[k] * null[k];
    }
    for (std::size_t k = 0; k < all; ++k) {
      Vector unit(all, 0);
      unit[k] = 1;
      for (std::size_t l = 0; l < all; ++l) unit[l] -= square > 0 ? null[l] * null[k] / square : 0;
      Vector const column = system.solve(unit);
      for (std::size_t l = 0; l < all; ++l) inverse_[l * all + k] = std::abs(column[l]);
    }
  }

  Real entry() const { return entry_; }
  Real plan(Side side, std::int64_t i, std::int64_t j) const {
    return side == Side::rows ? plan_[i * problem_.size(Side::columns) + j]
                              : plan_[j * problem_.size(Side::columns) + i];
  }
  Real marginal(Side side, std::int64_t i) const {
    Real sum = 0;
    for (std::int64_t j = 0; j < problem_.size(other(side)); ++j) sum += plan(side, i, j);
    return sum;
  }
  /// Error of the solution, for a right side that is a sum of terms of this size.
  Vector solution(Vector const& solution, Vector const& right, Real tolerance) const {
    std::size_t const n = problem_.size(Side::rows), m = problem_.size(Side::columns), all = n + m;
    Vector error(all, 0);
    Real norm = 0;
    for (std::size_t k = 0; k < all; ++k) {
      for (std::size_t l = 0; l < all; ++l) error[k] += entry_ * std::abs(matrix_[k * all + l]) * std::abs(solution[l]);
      error[k] += entry_ * right[k];
    }
    for (std::size_t j = 0; j < m; ++j) {
      Real eliminated = right[n + j];
      for (std::size_t i = 0; i < n; ++i) {
        Real const total = marginal(Side::rows, i);
        if (total > 0) eliminated += plan(Side::columns, j, i) * right[i] / total;
      }
      norm += eliminated * eliminated;
    }
    for (std::size_t j = 0; j < m; ++j) error[n + j] += tolerance * std::sqrt(norm);
    Vector result(all, 0);
    for (std::size_t k = 0; k < all; ++k) {
      for (std::size_t l = 0; l < all; ++l) result[k] += inverse_[k * all + l] * error[l];
    }
    return result;
  }

 private:
  PointProblem const& problem_;
  Real entry_;
  Vector plan_, matrix_, inverse_;
};

Real largest(Vector const& values) {
  return *std::max_element(values.begin(), values.end());
}

class HessianTest : public PlanDerivativesTest {
 protected:
  /// Tolerance of the systems: products in float32 leave a residual of some 1e-7, and of 2e-6 where the clouds lie
  /// apart.
  double system_tolerance() const { return is_float64() ? 1e-10 : 5e-6; }

  ResponseError response_error(Problem const& given, Pair const& pair) const {
    std::int64_t const d = pair.problem.d();
    Tolerance const tolerance(given, static_cast<double>(pair.problem.eps()), products(d));
    Real entry = 0;
    for (Side const side : kSides)
      entry = std::max(entry, largest(tolerance.plan(side, pair.potentials)) + tolerance.sum_error(side));
    Arithmetic const factors = products(2 + 2 * d);
    return {pair.problem, pair.potentials, 2 * entry + factors.product + 4 * factors.unit};
  }

  /// Error of H v: sums of P_ij times what the costs and potentials of a pair change by, over eps, times its distance.
  Vector product_error(ResponseError const& error, Pair const& pair, std::span<double const> v, Real tolerance) const {
    PointProblem const& problem = pair.problem;
    std::int64_t const n = problem.size(Side::rows), m = problem.size(Side::columns), d = problem.d();
    Cloud const clouds[] = {Cloud(problem, Side::rows), Cloud(problem, Side::columns)};
    auto const norm = [&](std::int64_t first) {
      Real square = 0;
      for (std::int64_t k = 0; k < d; ++k) square += std::pow(Real(v[first * d + k]), 2.0L);
      return std::sqrt(square);
    };
    Real const s = problem.scale();
    auto const cost = [&](std::int64_t i, std::int64_t j) {
      return 2 * s * (clouds[0].radius[i] * norm(n + j) + norm(i) * clouds[1].radius[j]);
    };
    // Where the clouds lie enters the potentials' changes by what is known to float64, and nothing else.
    Vector moved = problem.response(pair.potentials, v), shift(n + m, 0), right(n + m, 0);
    for (std::int64_t k = 0; k < n + m; ++k) {
      Side const side = k < n ? Side::rows : Side::columns;
      std::int64_t const i = k < n ? k : k - n;
      for (std::int64_t p = 0; p < d; ++p)
        shift[k] += 2 * s * (problem.points(side)[i * d + p] - clouds[k < n ? 1 : 0].centre[p]) * v[k * d + p];
      if (error.marginal(side, i) == 0) shift[k] = 0;
      moved[k] -= shift[k];
      Real const rate = problem.eps() / problem.penalties().of(side);
      right[k] += rate * error.marginal(side, i) * std::abs(shift[k]);
    }
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t j = 0; j < m; ++j) {
        right[i] += error.plan(Side::rows, i, j) * cost(i, j);
        right[n + j] += error.plan(Side::rows, i, j) * cost(i, j);
      }
    }
    Vector const potentials = error.solution(moved, right, tolerance);
    Vector result;
    for (std::int64_t k = 0; k < n + m; ++k) {
      Side const side = k < n ? Side::rows : Side::columns;
      std::int64_t const i = k < n ? k : k - n, own = k, first = k < n ? n : 0;
      Cloud const& far = clouds[k < n ? 1 : 0];
      Real sum = 0;
      for (std::int64_t j = 0; j < problem.size(other(side)); ++j) {
        Real const size = std::abs(moved[own]) + std::abs(moved[first + j]) + (k < n ? cost(i, j) : cost(j, i));
        Real const change = error.entry() * size + potentials[own] + potentials[first + j];
        sum += error.plan(side, i, j) * 2 * s *
               (change / problem.eps() * far.largest + error.entry() * (norm(own) + norm(first + j)));
      }
      Real const rho = problem.penalties().of(side);
      if (!std::isinf(rho)) {
        Real slope = 0;
        for (std::int64_t p = 0; p < d; ++p) slope += std::pow(problem.points(side)[i * d + p] - far.centre[p], 2.0L);
        Real const total = error.entry() * (std::abs(moved[k]) + std::abs(shift[k])) + potentials[k];
        sum += 2 * s * std::sqrt(slope) * error.marginal(side, i) / rho * total;
      }
      result.insert(result.end(), d, sum);
    }
    return result;
  }
  static Real norm(Vector const& v) {
    Real square = 0;
    for (Real const value : v) square += value * value;
    return std::sqrt(square);
  }
  /// The L2 norm of |A| |x|, A = [diag(r) P; P^T diag(c)].
  static Real size_of_terms(PointProblem const& problem, ResponseError const& error, Vector const& x) {
    Vector sums;
    for (Side const side : kSides) {
      std::int64_t const n = problem.size(Side::rows), own = side == Side::rows ? 0 : n, far = n - own;
      for (std::int64_t i = 0; i < problem.size(side); ++i) {
        Real sum = error.marginal(side, i) * std::abs(x[own + i]);
        for (std::int64_t j = 0; j < problem.size(other(side)); ++j)
          sum += error.plan(side, i, j) * std::abs(x[far + j]);
        sums.push_back(sum);
      }
    }
    return norm(sums);
  }
  static VectorPair split(Pair const& pair, std::span<double const> v) {
    std::int64_t const n = pair.problem.size(Side::rows), d = pair.problem.d();
    VectorPair result;
    result[Side::rows] = vector(*pair.plan, Side::rows, d, v.first(n * d));
    result[Side::columns] = vector(*pair.plan, Side::columns, d, v.subspan(n * d));
    return result;
  }
  static std::vector<double> joined(Pair const& pair, VectorPair const& vectors) {
    std::vector<double> result = values(*pair.plan, Side::rows, *vectors[Side::rows]);
    std::vector<double> const rest = values(*pair.plan, Side::columns, *vectors[Side::columns]);
    result.insert(result.end(), rest.begin(), rest.end());
    return result;
  }
  static VectorPair outputs(Pair const& pair) {
    VectorPair result;
    for (Side const side : kSides) result[side] = pair.plan->vectors().make(side, pair.problem.d());
    return result;
  }
};
MONGE_FOR_EACH_OF(HessianTest, all_targets());
MONGE_FOR_EACH_ORDERED(HessianTest);

TEST_P(HessianTest, products_equal_the_oracle) {
  for_each_pair(*this, [&](Problem const& given, double, Pair& pair) {
    PointProblem const& problem = pair.problem;
    std::int64_t const n = problem.size(Side::rows), m = problem.size(Side::columns), d = problem.d();
    Random random(21);
    ResponseError const error = response_error(given, pair);
    for (int block = 1; block <= 3; ++block) {
      SCOPED_TRACE(block == 1 ? "x" : block == 2 ? "y" : "x and y");
      std::vector<double> v = gaussian_points(n + m, d, random);
      if ((block & 1) == 0) std::fill_n(v.begin(), n * d, 0.0);
      if ((block & 2) == 0) std::fill_n(v.begin() + n * d, m * d, 0.0);
      VectorPair direction = split(pair, v), out = outputs(pair);
      if ((block & 1) == 0) direction[Side::rows].reset();
      if ((block & 2) == 0) direction[Side::columns].reset();
      LinearOptions const options{.tolerance = system_tolerance(), .iterations = 500};
      LinearReport const report = pair.derivatives->hessian_product(std::move(direction), out, options);
      EXPECT_EQ(name(report.status), "converged") << report.residual << " after " << report.iterations;
      expect_close("H v", joined(pair, out), problem.hessian_product(pair.potentials, v),
                   product_error(error, pair, v, system_tolerance()));
    }
  });
}

// Powers of two change no digit on the way: neither small directions nor large ones meet an absolute tolerance, and
// nothing is lost where their squares leave the range of float64.
constexpr double kScales[] = {0x1p-900, 0x1p-541, 0x1p-400, 0x1p-40, 0x1p-20, 0x1p40, 0x1p400, 0x1p515, 0x1p900};

TEST_P(HessianTest, products_are_linear_over_any_scale) {
  Problem const given = make_problem({40, 30, 3, Weights::with_zeros});
  double const eps = 0.1 * Magnitudes(given).spread();
  auto const entropic = make_operator(given);
  Pair const pair(*entropic, nullptr, given, eps, {}, 0, precision());
  Random random(5);
  std::vector<double> const v = gaussian_points(70, 3, random);
  VectorPair const out = outputs(pair);
  pair.derivatives->hessian_product(split(pair, v), out, {.tolerance = system_tolerance()});
  std::vector<double> const expected = joined(pair, out);
  for (double const scale : kScales) {
    std::vector<double> scaled = v, target = expected;
    for (double& value : scaled) value *= scale;
    for (double& value : target) value *= scale;
    LinearReport const report =
        pair.derivatives->hessian_product(split(pair, scaled), out, {.tolerance = system_tolerance()});
    EXPECT_EQ(report.status, LinearStatus::converged);
    EXPECT_EQ(joined(pair, out), target) << scale;
  }
  std::vector<double> const zeros(v.size(), 0.0);
  EXPECT_EQ(pair.derivatives->hessian_product(split(pair, zeros), out, {}).status, LinearStatus::converged);
  EXPECT_EQ(joined(pair, out), zeros);
}

TEST_P(HessianTest, inverse_products_and_gradients_are_linear_over_any_scale) {
  Problem const given = make_problem({20, 30, 3});
  double const eps = 0.3 * Magnitudes(given).spread();
  auto const entropic = make_operator(given);
  Pair const pair(*entropic, nullptr, given, eps, {}, 0, precision());
  Random random(5);
  std::vector<double> const v = gaussian_points(20, 3, random), of_f = gaussian_points(20, 1, random);
  double sum = 0;
  for (double const value : of_f) sum += value;
  std::vector<double> const of_g(30, sum / 30), of_values = gaussian_points(30, 1, random);
  auto const derive = [&](double scale) {
    auto const times = [&](std::vector<double> values) {
      for (double& value : values) value *= scale;
      return values;
    };
    auto const inverse = pair.plan->vectors().make(Side::rows, 3);
    auto const direction = vector(*pair.plan, Side::rows, 3, times(v));
    EXPECT_EQ(pair.derivatives->inverse_hessian_product(*direction, *inverse, 0.1, {.tolerance = 1e-4}).status,
              LinearStatus::converged);
    VectorPair right, points = outputs(pair), weights;
    right[Side::rows] = vector(*pair.plan, Side::rows, 1, times(of_f));
    right[Side::columns] = vector(*pair.plan, Side::columns, 1, times(of_g));
    for (Side const side : kSides) weights[side] = pair.plan->vectors().make(side);
    EXPECT_EQ(
        pair.derivatives->potential_gradients(std::move(right), points, weights, {.tolerance = system_tolerance()})
            .status,
        LinearStatus::converged);
    std::vector<std::vector<double>> results{values(*pair.plan, Side::rows, *inverse), joined(pair, points)};
    for (Side const side : kSides) results.push_back(values(*pair.plan, side, *weights[side]));
    VectorPair factors;
    factors[Side::columns] = vector(*pair.plan, Side::columns, 1, of_values);
    factors[Side::rows] = vector(*pair.plan, Side::rows, 1, times(of_f));
    EXPECT_EQ(
        pair.derivatives->product_gradients(std::move(factors), points, weights, {.tolerance = system_tolerance()})
            .status,
        LinearStatus::converged);
    results.push_back(joined(pair, points));
    for (Side const side : kSides) results.push_back(values(*pair.plan, side, *weights[side]));
    return results;
  };
  std::vector<std::vector<double>> const expected = derive(1);
  for (double const scale : kScales) {
    std::vector<std::vector<double>> target = expected;
    for (std::vector<double>& some : target) {
      for (double& value : some) value *= scale;
    }
    EXPECT_EQ(derive(scale), target) << scale;
  }
}

// Moving all of x by t adds 2 s r_i t to the gradient by x_i and takes 2 s c_j t from that by y_j, whatever the plan
// is. A damping that is not relative to the weights would show as a bias that grows with m.
TEST_P(HessianTest, translations_have_no_bias_that_grows_with_the_points) {
  for (auto const& [n, m] : {std::pair{100, 100}, {1600, 1600}, {7, 100000}, {100000, 7}}) {
    SCOPED_TRACE(testing::Message() << n << " x " << m);
    Problem const given = oracle::make_problem({n, m, 2, Weights::uniform, Place::origin, 0.05, DataType::float32});
    double const eps = 0.25;
    auto const entropic = make_operator(given);
    entropic->sweep({eps}, 20);
    auto const plan = entropic->plan(eps);
    PlanDerivatives derivatives(*plan, nullptr, eps, {}, 2, precision());
    VectorPair v, out;
    std::vector<double> direction(2 * n);
    for (int i = 0; i < n; ++i) direction[2 * i] = 1, direction[2 * i + 1] = -0.5;
    v[Side::rows] = vector(*plan, Side::rows, 2, direction);
    for (Side const side : kSides) out[side] = plan->vectors().make(side, 2);
    LinearReport const report =
        derivatives.hessian_product(std::move(v), out, {.tolerance = is_float64() ? 1e-10 : 1e-6});
    EXPECT_EQ(name(report.status), "converged") << report.residual;
    for (Side const side : kSides) {
      std::vector<double> const found = values(*plan, side, *out[side]);
      std::vector<double> const marginal = values(*plan, side, plan->marginal(side));
      double worst = 0, largest = 0;
      for (std::int64_t i = 0; i < plan->size(side); ++i) {
        double const expected = (side == Side::rows ? 2 : -2) * marginal[i];
        worst = std::max({worst, std::abs(found[2 * i] - expected), std::abs(found[2 * i + 1] + 0.5 * expected)});
        largest = std::max(largest, std::abs(expected));
      }
      // The terms that cancel are 1 / eps times squared radii of some 10: a hundred times what is left of them.
      EXPECT_LE(worst / largest, is_float64() ? 1e-8 : 1e-4);
    }
  }
}

TEST_P(HessianTest, points_of_no_weight_have_rows_of_zero) {
  Problem const given = make_problem({40, 30, 3, Weights::with_zeros});
  auto const entropic = make_operator(given);
  Pair const pair(*entropic, nullptr, given, 2.0, {5, 3}, 0.1, precision());
  Random random(5);
  VectorPair const out = outputs(pair);
  pair.derivatives->hessian_product(split(pair, gaussian_points(70, 3, random)), out, {});
  std::vector<double> const found = joined(pair, out);
  for (int k = 0; k < 70; ++k) {
    double const weight = k < 40 ? given.a[k] : given.b[k - 40];
    for (int p = 0; p < 3; ++p) EXPECT_EQ(found[3 * k + p] == 0, weight == 0) << k;
  }
}

TEST_P(HessianTest, inverse_products_undo_products) {
  Problem const given = make_problem({30, 40, 3});
  double const eps = 0.2 * Magnitudes(given).spread();
  auto const entropic = make_operator(given);
  Pair const pair(*entropic, nullptr, given, eps, {}, 0, precision());
  Random random(8);
  std::vector<double> const v = gaussian_points(30, 3, random);
  VectorPair direction, out;
  direction[Side::rows] = vector(*pair.plan, Side::rows, 3, v);
  out[Side::rows] = pair.plan->vectors().make(Side::rows, 3);
  double const shift = 0.01 / 30, tolerance = is_float64() ? 1e-9 : 1e-4;
  pair.derivatives->hessian_product(std::move(direction), out, {.tolerance = 0.01 * tolerance});
  std::vector<double> right = values(*pair.plan, Side::rows, *out[Side::rows]);
  for (std::size_t k = 0; k < right.size(); ++k) right[k] += shift * v[k];
  auto const found = pair.plan->vectors().make(Side::rows, 3);
  LinearReport const report = pair.derivatives->inverse_hessian_product(*vector(*pair.plan, Side::rows, 3, right),
                                                                        *found, shift, {.tolerance = tolerance});
  EXPECT_EQ(name(report.status), "converged") << report.residual;
  // At this eps H is positive and its condition number below a hundred.
  std::vector<double> const inverse = values(*pair.plan, Side::rows, *found);
  for (std::size_t k = 0; k < v.size(); ++k) EXPECT_NEAR(inverse[k], v[k], 1e3 * tolerance) << k;

  // With a shift below the negative of H's largest eigenvalue nothing is positive.
  EXPECT_EQ(
      pair.derivatives->inverse_hessian_product(*vector(*pair.plan, Side::rows, 3, right), *found, -10, {}).status,
      LinearStatus::negative_curvature);
}

TEST_P(HessianTest, implicit_gradients_equal_the_oracle) {
  auto const check = [&](Problem const& given, bool by_weight, Pair& pair) {
    PointProblem const& problem = pair.problem;
    std::int64_t const n = problem.size(Side::rows), m = problem.size(Side::columns), d = problem.d();
    Random random(31);
    // L of the potentials, the same at (f + t, g - t).
    std::vector<double> of_f = gaussian_points(n, 1, random), of_g = gaussian_points(m, 1, random);
    Vector right(n + m, 0), sizes(n + m, 0);
    double sum = 0;
    for (std::int64_t i = 0; i < n; ++i) sum += of_f[i] *= given.a[i] > 0 ? by_weight ? given.a[i] : 1 : 0;
    for (std::int64_t j = 0; j < m; ++j) sum -= of_g[j] *= given.b[j] > 0 ? by_weight ? given.b[j] : 1 : 0;
    *std::find_if(of_g.begin(), of_g.end(), [](double value) { return value != 0; }) += sum;
    for (std::int64_t k = 0; k < n + m; ++k) {
      right[k] = k < n ? of_f[k] : of_g[k - n];
      sizes[k] = std::abs(right[k]);
    }
    Vector const solution = problem.solve(pair.potentials, right);
    VectorPair input, points = outputs(pair), weights;
    input[Side::rows] = vector(*pair.plan, Side::rows, 1, of_f);
    input[Side::columns] = vector(*pair.plan, Side::columns, 1, of_g);
    for (Side const side : kSides) weights[side] = pair.plan->vectors().make(side);
    LinearReport const report =
        pair.derivatives->potential_gradients(std::move(input), points, weights, {.tolerance = system_tolerance()});
    ResponseError const error = response_error(given, pair);
    // A residual below the rounding of the terms of A x is out of reach. Skewed weights make these terms 1e4 |b|.
    Real const tolerance =
        std::max<Real>(system_tolerance(), products(d).unit * size_of_terms(problem, error, solution) / norm(right));
    EXPECT_LE(report.residual, tolerance);
    EXPECT_EQ(report.status == LinearStatus::converged, report.residual <= system_tolerance()) << report.residual;
    Vector const off = error.solution(solution, sizes, std::max(system_tolerance(), report.residual));
    Dense const dense = problem.dense();
    // Products of factors on tensor cores are held to a part of the largest of them.
    Real largest = 0;
    for (std::int64_t k = 0; k < n + m; ++k) {
      Side const side = k < n ? Side::rows : Side::columns;
      // At points of little mass factors are taken relative to their own size.
      if (error.marginal(side, k < n ? k : k - n) > 0x1p-20L / (n + m))
        largest = std::max(largest, std::abs(solution[k]));
    }
    bool const halves = context().device().type == DeviceType::cuda && !is_float64();
    Real const rounding = halves ? 0x1p-20L * largest : 0.0L;
    for (Side const side : kSides) {
      std::int64_t const own = side == Side::rows ? 0 : n, first = side == Side::rows ? n : 0;
      Cloud const cloud(problem, side), far(problem, other(side));
      Vector allowed, weight_expected, weight_allowed;
      Vector const softmins = dense.softmin(side, problem.eps(), pair.potentials.of(other(side)));
      // The constant of a balanced problem is free: derivatives by weights are, too.
      Real constant = 0;
      std::vector<double> const found_weights = values(*pair.plan, side, *weights[side]);
      for (std::int64_t i = 0; i < problem.size(side); ++i) {
        Real change = 0, size = 0, mean = 0, mean_error = 0;
        for (std::int64_t j = 0; j < problem.size(other(side)); ++j) {
          Real const w = std::abs(solution[own + i]) + std::abs(solution[first + j]);
          change += error.plan(side, i, j) * (error.entry() * w + rounding + off[own + i] + off[first + j]);
          size += error.plan(side, i, j) * w;
          Real const share =
              problem.weights(other(side))[j] *
              std::exp((softmins[i] + pair.potentials.of(other(side))[j] - dense.cost(side, i, j)) / problem.eps());
          mean += share * solution[first + j];
          mean_error += share * (error.entry() * std::abs(solution[first + j]) + off[first + j]);
        }
        // The total over j is known from the equation of the row; only that meets the place of the clouds.
        Real const rho = problem.penalties().of(side);
        Real const total = error.entry() * sizes[own + i] +
                           (std::isinf(rho) ? 0
                                            : problem.eps() / rho * error.marginal(side, i) *
                                                  (error.entry() * std::abs(solution[own + i]) + off[own + i]));
        Real apart = cloud.radius[i];
        for (std::int64_t k = 0; k < d; ++k) apart += std::abs(cloud.centre[k] - far.centre[k]);
        for (std::int64_t k = 0; k < d; ++k)
          allowed.push_back(2 * problem.scale() * (change * (far.largest + cloud.radius[i]) + total * apart));
        Real f = pair.potentials.of(side)[i];
        if (problem.weights(side)[i] == 0) f = std::isinf(rho) ? softmins[i] : softmins[i] / (1 + problem.eps() / rho);
        Real const ratio = std::exp((f - softmins[i]) / problem.eps());
        weight_expected.push_back(-problem.eps() * ratio * mean);
        weight_allowed.push_back(problem.eps() * ratio * (mean_error + 2 * error.entry() * std::abs(mean)));
        if (problem.is_balanced()) constant += (found_weights[i] / ratio + problem.eps() * mean) / problem.size(side);
      }
      auto const tilt = [&](std::int64_t i, std::int64_t j) { return solution[own + i] + solution[first + j]; };
      expect_close("by points", values(*pair.plan, side, *points[side]), problem.gradient(side, pair.potentials, tilt),
                   allowed);
      for (std::int64_t i = 0; problem.is_balanced() && i < problem.size(side); ++i) {
        Real f = pair.potentials.of(side)[i];
        if (problem.weights(side)[i] == 0) f = softmins[i];
        Real const ratio = std::exp((f - softmins[i]) / problem.eps());
        weight_expected[i] += ratio * constant;
        weight_allowed[i] *= 2;
      }
      expect_close("by weights", found_weights, weight_expected, weight_allowed);
    }
  };
  for_each_pair(*this, [&](Problem const& given, double, Pair& pair) { check(given, true, pair); });
  // Derivatives by potentials that do not fall with the weights: df_i and dg_j are as large as the reciprocals.
  for_each_tiny_pair(*this, [&](Problem const& given, double, Pair& pair) { check(given, false, pair); });
}

// The oracle itself: what it calls a Hessian is the derivative of its gradient at the optimum, and so on.
TEST(DerivativesOracle, agrees_with_finite_differences) {
  for (Penalties const& penalties : penalties_of(1.0)) {
    SCOPED_TRACE(testing::Message() << penalties.a << " " << penalties.b);
    Problem const given =
        oracle::make_problem({6, 5, 2, Weights::with_zeros, Place::origin, 1, DataType::float64, 0, 0.5, 1, 3});
    PointProblem problem(given, 1.0, penalties);
    Potentials const optimum = problem.optimum();
    Random random(41);
    std::vector<double> const v = gaussian_points(11, 2, random);
    std::vector<double> const of_f = gaussian_points(6, 1, random), of_g = gaussian_points(5, 1, random);
    constexpr Real kStep = 1e-4L;
    auto const moved = [&](Real step) {
      PointProblem there = problem;
      for (std::size_t k = 0; k < v.size(); ++k)
        there.points(k < 12 ? Side::rows : Side::columns)[k < 12 ? k : k - 12] += step * v[k];
      return there;
    };
    PointProblem const after = moved(kStep), before = moved(-kStep);
    Potentials const f_after = after.optimum(), f_before = before.optimum();
    Vector gradient = problem.gradient(Side::rows, optimum), product = problem.hessian_product(optimum, v);
    Vector const rest = problem.gradient(Side::columns, optimum);
    gradient.insert(gradient.end(), rest.begin(), rest.end());
    Real slope = 0;
    for (std::size_t k = 0; k < v.size(); ++k) slope += gradient[k] * v[k];
    // Errors of central differences are third derivatives, of some tens, times 1e-8 / 6.
    EXPECT_NEAR((after.dual(f_after) - before.dual(f_before)) / (2 * kStep), slope, 1e-6);
    for (Side const side : kSides) {
      Vector const up = after.gradient(side, f_after), down = before.gradient(side, f_before);
      for (std::size_t k = 0; k < up.size(); ++k)
        EXPECT_NEAR((up[k] - down[k]) / (2 * kStep), product[side == Side::rows ? k : k + 12], 1e-6) << k;
    }
    // Potentials, up to a constant where there is one.
    Vector const response = problem.response(optimum, v);
    for (int i = 0; i < 6; ++i) {
      for (int j = 0; j < 5; ++j) {
        if (given.a[i] == 0 || given.b[j] == 0) continue;
        Real const change = f_after.f[i] + f_after.g[j] - f_before.f[i] - f_before.g[j];
        EXPECT_NEAR(change / (2 * kStep), response[i] + response[6 + j], 1e-6);
      }
    }
    for (Side const side : kSides) {
      Vector const by_weights = problem.weight_gradient(side, optimum);
      for (std::size_t i = 0; i + 1 < by_weights.size(); ++i) {
        // From one to the next, which keeps the total.
        PointProblem up = problem, down = problem;
        double const step = 1e-5;
        bool const inside = problem.weights(side)[i] > 0 && problem.weights(side)[i + 1] > 0;
        if (!inside) continue;
        up.weights(side)[i] += step, up.weights(side)[i + 1] -= step;
        down.weights(side)[i] -= step, down.weights(side)[i + 1] += step;
        Real const change = (up.dual(up.optimum()) - down.dual(down.optimum())) / (2 * step);
        EXPECT_NEAR(change, by_weights[i] - by_weights[i + 1], 1e-6) << i;
      }
    }
  }
}

}  // namespace
}  // namespace monge::oracle
