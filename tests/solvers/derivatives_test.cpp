// Derivatives of a plan against the oracle, at potentials that are optimal and at others.
#include <algorithm>
#include <cmath>
#include <limits>

#include "oracle/backend_test.hpp"
#include "oracle/derivatives.hpp"
#include "solvers/plan_derivatives.hpp"

namespace monge::oracle {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr Side kSides[] = {Side::rows, Side::columns};

class PlanDerivativesTest : public BackendTest {
 public:
  std::unique_ptr<EntropicOperator> entropic(Problem const& problem) const { return make_operator(problem); }

 protected:
  /// Plans of tf32 sweeps multiply in float32.
  Arithmetic products(std::int64_t d) const {
    Precision const own = precision() == Precision::tf32 ? Precision::float32 : precision();
    return oracle::arithmetic({GetParam().device}, own, d);
  }
};
MONGE_FOR_EACH_OF(PlanDerivativesTest, all_targets());

/// The oracle's and the library's plan at the same potentials.
struct Pair {
  Pair(EntropicOperator& entropic, Problem const& given, double eps, Penalties penalties, double disturbance)
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
    derivatives = std::make_unique<PlanDerivatives>(*plan, eps, penalties, problem.d());
  }

  PointProblem problem;
  Potentials potentials;
  std::unique_ptr<PlanOperator> plan;
  std::unique_ptr<PlanDerivatives> derivatives;
};

std::vector<double> values(PlanOperator const& plan, Side side, monge::Vector const& vector) {
  MatrixView const shape = plan.vectors().view(vector);
  Stored out(std::vector<double>(shape.rows() * shape.columns()), shape.rows(), shape.columns());
  EXPECT_EQ(shape.rows(), plan.size(side));
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
        SCOPED_TRACE(testing::Message() << recipe << ", rho_a " << penalties.a << ", rho_b " << penalties.b
                                        << ", disturbance " << disturbance);
        auto const entropic = test.entropic(problem);
        Pair pair(*entropic, problem, eps, penalties, disturbance);
        check(problem, eps, pair);
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

}  // namespace
}  // namespace monge::oracle
