#include "operators/cases.hpp"

#include <algorithm>
#include <limits>

namespace monge::oracle {
namespace {

double eps_of(Recipe const& recipe, Problem const& problem) {
  double const spread = Magnitudes(problem).spread();
  return recipe.eps_over_spread * (spread > 0 ? spread : 1.0);
}

Potentials moderate_potentials(Problem const& problem, Dense const& dense, double eps, std::uint64_t seed,
                               Case::Disturbance disturbance) {
  Random random(seed + 1000);
  Magnitudes const magnitudes(problem);
  double const size = 0.1 * magnitudes.spread();
  Potentials result{{}, widen(magnitudes.shift(Side::columns))};
  for (Real& value : result.g) value += random.uniform(-size, size);
  for (Side const side : {Side::rows, Side::columns}) {
    result.of(side) = dense.softmin(side, eps, result.of(other(side)));
  }
  for (Side const side : {Side::rows, Side::columns}) {
    // What crosses the seam is float64.
    Vector& potential = result.of(side);
    bool const two_valued = disturbance == Case::Disturbance::two_valued;
    double const size = two_valued ? 0.1 * eps : eps;
    for (std::size_t i = 0; i < potential.size(); ++i) {
      double const step = two_valued && i % 5 == 3 ? -4 * eps : 0.0;
      potential[i] = static_cast<double>(potential[i] + step + random.uniform(-size, size));
    }
  }
  return result;
}

}  // namespace

std::vector<Recipe> const& covering_recipes() {
  static constexpr auto kUniform = Weights::uniform, kSkewed = Weights::skewed, kZeros = Weights::with_zeros;
  static constexpr auto kOrigin = Place::origin, kShifted = Place::shifted, kApart = Place::apart;
  static constexpr auto kFloat = DataType::float32, kDouble = DataType::float64;
  static std::vector<Recipe> const recipes{
      {1, 1, 1, kUniform, kOrigin, 0.05, kDouble, 0, 1, 1, 1},
      {1, 200, 3, kSkewed, kOrigin, 0.1, kFloat, 1, 1, 1, 2},
      {200, 1, 2, kUniform, kShifted, 1, kDouble, 0, 0.5, 1, 3},
      {15, 16, 8, kZeros, kOrigin, 0.01, kDouble, 3, 1, 1, 4},
      {16, 17, 9, kUniform, kApart, 0.05, kDouble, 0, 1, 2.5, 5},
      {17, 15, 5, kSkewed, kShifted, 1e-3, kFloat, 0, 0.5, 1, 6},
      {63, 64, 37, kUniform, kOrigin, 0.02, kFloat, 5, 1, 1, 7},
      {64, 65, 64, kSkewed, kOrigin, 1e-3, kDouble, 0, 1, 1, 8},
      {65, 63, 3, kZeros, kApart, 1e-4, kDouble, 2, 1, 1, 9},
      {64, 64, 1, kUniform, kOrigin, 10, kFloat, 0, 1, 1000, 10},
      {127, 128, 2, kUniform, kOrigin, 1e-4, kFloat, 0, 1, 1, 11},
      {128, 129, 1, kSkewed, kShifted, 0.01, kDouble, 0, 1, 1, 12},
      {129, 127, 200, kZeros, kOrigin, 0.01, kFloat, 0, 0.5, 1, 13},
      {128, 128, 16, kUniform, kApart, 1e-3, kFloat, 4, 1, 1e-3, 14},
      {333, 129, 784, kUniform, kShifted, 1e-3, kFloat, 16, 1, 1, 15},
      {333, 129, 5, kSkewed, kOrigin, 1e-4, kDouble, 1, 1, 1, 16},
      {129, 333, 12, kZeros, kShifted, 10, kDouble, 0, 1, 1, 17},
      {257, 511, 64, kUniform, kOrigin, 0.05, kDouble, 0, 1, 1, 18},
      {31, 2051, 3, kSkewed, kApart, 0.05, kFloat, 0, 1, 1, 19},
      {1027, 45, 33, kZeros, kOrigin, 1e-3, kDouble, 0, 1, 1, 20},
      {600, 700, 3, kSkewed, kShifted, 0.02, kFloat, 0, 1, 1, 21},
      {701, 613, 40, kZeros, kOrigin, 0.01, kDouble, 0, 1, 1, 22},
  };
  return recipes;
}

Case::Case(Problem made, Recipe const& recipe, Arithmetic arithmetic, Disturbance disturbance)
    : problem(std::move(made)),
      dense(problem),
      eps(eps_of(recipe, problem)),
      tolerance(problem, eps, arithmetic),
      potentials(moderate_potentials(problem, dense, eps, recipe.seed, disturbance)) {}

std::vector<Recipe> OperatorTest::recipes() const {
  constexpr std::int64_t kMostDifferences = 300'000;
  std::vector<Recipe> recipes = covering_recipes();
  if (GetParam().costs > Costs::random)
    std::erase_if(recipes, [](Recipe const& recipe) { return recipe.n * recipe.m * recipe.d > kMostDifferences; });
  return recipes;
}

std::vector<Penalties> penalties_for(Case const& test) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  double const unit = std::max(test.eps, static_cast<double>(test.dense.largest_cost()) / 10);
  return {{unit, 10 * unit}, {kInfinity, 0.3 * unit}, {1e4 * unit, kInfinity}};
}

std::unique_ptr<EntropicOperator> OperatorTest::make_operator(Case const& test, double cache_bytes,
                                                              Penalties const& penalties) const {
  auto entropic = make_operator(test.problem, cache_bytes, penalties);
  entropic->set_potentials(narrow(test.potentials.f), narrow(test.potentials.g));
  return entropic;
}

std::unique_ptr<PlanOperator> OperatorTest::make_plan(Case const& test, double cache_bytes) const {
  return make_operator(test, cache_bytes)->plan(test.eps);
}

}  // namespace monge::oracle
