// Problems that cover the sizes, dimensions, weights and layouts of the operators, and one of them made ready.
#pragma once
#include <memory>
#include <vector>

#include "oracle/backend_test.hpp"

namespace monge::oracle {

/// Sizes around multiples of 16, 64 and 128, single points, long and flat, and large enough for several threads;
/// dimensions 1 to 784; all weights and places; eps from 1e-4 to 10 times the spread.
std::vector<Recipe> const& covering_recipes();

struct Case {
  /// How the potentials differ from softmins, in units of eps.
  enum class Disturbance {
    uniform,     // up to 1 either way
    two_valued,  // up to 0.1 either way, every fifth lower by 4: far from where a safeguard of relaxed steps turns
  };
  Case(Recipe const& recipe, Arithmetic arithmetic, Disturbance disturbance = Disturbance::uniform)
      : Case(make_problem(recipe), recipe, arithmetic, disturbance) {}
  /// Eps and seed are the recipe's.
  Case(Problem made, Recipe const& recipe, Arithmetic arithmetic, Disturbance disturbance = Disturbance::uniform);

  Problem problem;
  Dense dense;
  double eps;
  Tolerance tolerance;
  /// A plan of moderate size that is not feasible: the potentials are softmins, disturbed.
  Potentials potentials;
};

/// Both, one and the other, from below eps to far above it; in units that keep mass in plans between clouds far apart.
std::vector<Penalties> penalties_for(Case const& test);

/// Three threads: shares of the rows are uneven, and some threads have none.
class OperatorTest : public BackendTest {
 protected:
  OperatorTest() : BackendTest(kThreads) {}
  static constexpr int kThreads = 3;

  /// With the geometry of the target.
  Case make_case(Recipe recipe, Case::Disturbance disturbance = Case::Disturbance::uniform) const {
    recipe.costs = GetParam().costs;
    return Case(recipe, arithmetic(recipe.d), disturbance);
  }
  /// The covering ones; for the further costs of points, whose kernels those cover, the small of these.
  std::vector<Recipe> recipes() const;
  using BackendTest::make_operator;
  /// At the case's potentials.
  std::unique_ptr<EntropicOperator> make_operator(Case const& test, double cache_bytes = 1e9,
                                                  Penalties const& penalties = {}) const;
  std::unique_ptr<PlanOperator> make_plan(Case const& test, double cache_bytes = 1e9) const;
};

}  // namespace monge::oracle
