// Sweeps of every kind, and the errors they report, against the oracle's.
#include <algorithm>

#include "cpu/runtime/threads.hpp"
#include "operators/cases.hpp"

namespace monge::oracle {
namespace {

class SweepTest : public OperatorTest {
 protected:
  /// Iterates and errors of `count` sweeps of the same kind from the case's potentials.
  void expect_sweeps(Recipe const& recipe, Sweep const& kind, int count) {
    expect_sweeps(case_for(recipe, kind), kind, count, {});
  }
  /// The same under each of the penalties.
  void expect_penalised_sweeps(Recipe const& recipe, Sweep const& kind, int count) {
    SCOPED_TRACE(testing::Message() << recipe);
    Case const test = case_for(recipe, kind);
    for (Penalties const& penalties : penalties_for(test)) expect_sweeps(test, kind, count, penalties);
  }

  Case case_for(Recipe const& recipe, Sweep const& kind) const {
    bool const relaxed = kind.relaxation != 1;
    return make_case(recipe, relaxed ? Case::Disturbance::two_valued : Case::Disturbance::uniform);
  }
  void expect_sweeps(Case const& test, Sweep kind, int count, Penalties const& penalties) {
    SCOPED_TRACE(testing::Message() << count << " sweeps, penalties " << penalties.a << " and " << penalties.b);
    kind.eps = test.eps;
    SweepResult const expected = sweep(test.dense, kind, count, test.potentials, penalties);
    Real const error = test.tolerance.sweeps(kind, count, expected, penalties);
    // Rounding may decide for the other step where the safeguard is close to turning: nothing to compare then.
    if (kind.relaxation != 1 && expected.decision_margin < 2 * error / test.eps) return;
    ++compared_;
    plain_steps_ += expected.plain_steps;
    auto const entropic = make_operator(test, 1e9, penalties);
    entropic->sweep(kind, count);
    SweepErrors const errors = entropic->errors();
    Potentials const actual = potentials_of(*entropic);

    expect_iterates(test.dense, test.tolerance, test.eps, actual, expected.potentials, error, penalties);
    Real const tolerance = test.tolerance.sweep_errors(expected, error, penalties);
    expect_close("row error", errors.row, expected.row_error, tolerance);
    expect_close("column error", errors.column, expected.column_error, tolerance);
    expect_close("gradient norm", errors.gradient_norm, expected.gradient_norm, tolerance);
  }

  int compared_ = 0;
  std::int64_t plain_steps_ = 0;
};
MONGE_FOR_EACH_TARGET(SweepTest);
MONGE_FOR_EACH_ORDERED(SweepTest);

class PlainSweeps : public SweepTest {};
MONGE_FOR_EACH_COST_TARGET(PlainSweeps);
MONGE_FOR_EACH_ORDERED(PlainSweeps);

// The other tests of operators use the same recipes.
TEST(CoveringRecipes, keep_several_threads_busy) {
  auto const busy = [](Recipe const& recipe) { return useful_threads(3, recipe.n, recipe.m) == 3; };
  EXPECT_GE(std::count_if(covering_recipes().begin(), covering_recipes().end(), busy), 2);
}

// Sums over the columns are grouped by thread, so a team of another size shows in the last digits.
TEST(SweepThreads, are_at_work) {
  Problem const problem = make_problem({600, 700, 5});
  double const eps = 0.05 * Magnitudes(problem).spread();
  auto const swept = [&](int threads) {
    auto const entropic = backend_of(Context::cpu(threads))
                              .entropic_operator(problem.geometry(), {problem.a, problem.b}, {Precision::float64, 0});
    entropic->sweep({eps}, 3);
    return potentials_of(*entropic).g;
  };
  EXPECT_EQ(swept(3), swept(3));
  EXPECT_NE(swept(1), swept(3));
}

TEST_P(PlainSweeps, alternating) {
  for (Recipe const& recipe : recipes()) expect_sweeps(recipe, {}, 1);
}

TEST_P(PlainSweeps, alternating_seven_times) {
  for (Recipe const& recipe : recipes()) expect_sweeps(recipe, {}, 7);
}

TEST_P(PlainSweeps, symmetric) {
  for (Recipe const& recipe : recipes()) expect_sweeps(recipe, {0, true}, 1);
}

TEST_P(PlainSweeps, symmetric_seven_times) {
  for (Recipe const& recipe : recipes()) expect_sweeps(recipe, {0, true}, 7);
}

TEST_P(SweepTest, relaxed) {
  for (Recipe const& recipe : recipes()) expect_sweeps(recipe, {0, false, 1.5}, 1);
  EXPECT_GE(compared_, precision() == Precision::tf32 ? 5 : 15);
  EXPECT_GT(plain_steps_, 20) << "unsuitable problems: the safeguard hardly acted";
}

TEST_P(SweepTest, relaxed_seven_times) {
  for (Recipe const& recipe : recipes()) expect_sweeps(recipe, {0, false, 1.5}, 7);
  EXPECT_GE(compared_, precision() == Precision::tf32 ? 3 : 10);
}

TEST_P(SweepTest, alternating_with_penalties) {
  for (Recipe const& recipe : covering_recipes()) expect_penalised_sweeps(recipe, {}, 3);
}

TEST_P(SweepTest, symmetric_with_penalties) {
  for (Recipe const& recipe : covering_recipes()) expect_penalised_sweeps(recipe, {0, true}, 3);
}

TEST_P(SweepTest, relaxed_with_penalties) {
  for (Recipe const& recipe : covering_recipes()) expect_penalised_sweeps(recipe, {0, false, 1.5}, 2);
  EXPECT_GE(compared_, precision() == Precision::tf32 ? 10 : 30);
  EXPECT_GT(plain_steps_, 20) << "unsuitable problems: the safeguard hardly acted";
}

TEST_P(SweepTest, sweeps_one_by_one_equal_sweeps_at_once) {
  for (Sweep kind : {Sweep{}, Sweep{0, true}, Sweep{0, false, 1.5}}) {
    Case const test = make_case({70, 90, 3});
    kind.eps = test.eps;
    auto const at_once = make_operator(test.problem);
    auto const one_by_one = make_operator(test.problem);
    at_once->sweep(kind, 20);
    for (int k = 0; k < 20; ++k) one_by_one->sweep(kind, 1);
    Potentials const actual = potentials_of(*one_by_one);
    SweepResult expected{potentials_of(*at_once)};
    expected.size = 2;
    Real const error = test.tolerance.sweeps(kind, 1, expected);
    expect_iterates(test.dense, test.tolerance, test.eps, actual, expected.potentials, error);
    Real const allowed = test.tolerance.sweep_errors(expected, error);
    expect_close("row error", one_by_one->errors().row, at_once->errors().row, allowed);
    expect_close("column error", one_by_one->errors().column, at_once->errors().column, allowed);
  }
}

TEST_P(SweepTest, no_sweeps_change_nothing) {
  Case const test = make_case({20, 30, 3});
  auto const entropic = make_operator(test);
  Potentials const before = potentials_of(*entropic);
  entropic->sweep({test.eps}, 0);
  EXPECT_EQ(potentials_of(*entropic).f, before.f);
  EXPECT_EQ(potentials_of(*entropic).g, before.g);
}

// The safeguard: from far away a relaxed step overshoots, so some rows must take the plain one; the dual never falls.
TEST_P(SweepTest, relaxation_never_lowers_the_dual) {
  Case const test = make_case({60, 80, 2, Weights::uniform, Place::origin, 0.01});
  std::vector<Penalties> every_penalty = penalties_for(test);
  every_penalty.push_back({});
  Potentials start{Vector(60, 0), Vector(80, 0)};
  Random random(7);
  for (Real& value : start.f) value = test.eps * random.uniform(0, 5);
  for (Real& value : start.g) value = test.eps * random.uniform(0, 5);
  for (double const omega : {0.5, 1.2, 1.5, 1.9, 1.99}) {
    std::int64_t plain_steps = 0;
    for (Penalties const& penalties : every_penalty) {
      SCOPED_TRACE(testing::Message() << "omega " << omega << ", penalties " << penalties.a << " and " << penalties.b);
      auto const entropic = make_operator(test.problem, 1e9, penalties);
      entropic->set_potentials(narrow(start.f), narrow(start.g));
      Real dual = evaluate(test.dense, test.eps, start, penalties).dual;
      for (int k = 0; k < 30; ++k) {
        Potentials const before = potentials_of(*entropic);
        Sweep const kind{test.eps, false, omega};
        plain_steps += sweep(test.dense, kind, 1, before, penalties).plain_steps;
        entropic->sweep(kind, 1);
        Potentials const after = potentials_of(*entropic);
        Real const next = evaluate(test.dense, test.eps, after, penalties).dual;
        EvaluationTolerance const tolerance = test.tolerance.evaluation(test.dense, after, penalties);
        EXPECT_GE(next, dual - tolerance.dual) << "after sweep " << k + 1;
        dual = next;
      }
    }
    EXPECT_TRUE(omega <= 1 || plain_steps > 0) << "unsuitable problem: the safeguard never acted";
  }
}

TEST_P(SweepTest, columns_are_exact_after_a_plain_sweep) {
  Case const test = make_case({60, 80, 5, Weights::skewed});
  std::vector<Penalties> every_penalty = penalties_for(test);
  every_penalty.push_back({});
  for (Penalties const& penalties : every_penalty) {
    SCOPED_TRACE(testing::Message() << "penalties " << penalties.a << " and " << penalties.b);
    auto const entropic = make_operator(test.problem, 1e9, penalties);
    entropic->sweep({test.eps}, 3);
    SweepErrors const errors = entropic->errors();
    Potentials const potentials = potentials_of(*entropic);
    DenseEvaluation const truth = evaluate(test.dense, test.eps, potentials, penalties);
    EvaluationTolerance const tolerance = test.tolerance.evaluation(test.dense, potentials, penalties);
    expect_close("column error", 0, truth.column_error, tolerance.column_error);
    EXPECT_LE(truth.row_error, errors.column + tolerance.row_error);
    if (penalties.balanced()) {
      EXPECT_LE(errors.column, errors.row + tolerance.row_error);
    }
  }
}

// Symmetric sweeps use the old f for the columns: where it is far above the softmin of the rows, and a column far below
// all others, products of huge and tiny numbers meet that leave the range of float32.
TEST_P(SweepTest, stray_potentials_of_both_signs) {
  Case const test = make_case({40, 50, 2, Weights::uniform, Place::origin, 0.01});
  for (double const size : {20.0, 60.0, 90.0}) {
    for (double const far : {-100.0, -200.0, -800.0}) {
      SCOPED_TRACE(testing::Message() << "f raised by " << size << " eps, one g by " << far << " eps");
      Potentials start{test.dense.softmin(Side::rows, test.eps, Vector(50, 0)), Vector(50, 0)};
      for (Real& value : start.f) value = static_cast<double>(value + size * test.eps);
      start.g[17] = far * test.eps;
      auto const entropic = make_operator(test.problem);
      entropic->set_potentials(narrow(start.f), narrow(start.g));
      Sweep const kind{test.eps, true};
      entropic->sweep(kind, 1);
      SweepResult const expected = sweep(test.dense, kind, 1, start);
      Real allowed = test.tolerance.sweeps(kind, 1, expected);
      Vector const stored = test.tolerance.stored(Side::rows, start.f);
      allowed += *std::max_element(stored.begin(), stored.end());
      expect_iterates(test.dense, test.tolerance, test.eps, potentials_of(*entropic), expected.potentials, allowed);
    }
  }
}

TEST_P(SweepTest, is_bitwise_repeatable) {
  Case const test = make_case({333, 257, 37});
  for (Penalties const& penalties : {Penalties{}, Penalties{10 * test.eps, 50 * test.eps}}) {
    for (Sweep kind : {Sweep{}, Sweep{0, true}, Sweep{0, false, 1.5}}) {
      kind.eps = test.eps;
      Potentials results[2];
      for (Potentials& result : results) {
        auto const entropic = make_operator(test.problem, 1e9, penalties);
        entropic->sweep(kind, 5);
        result = potentials_of(*entropic);
      }
      EXPECT_EQ(results[0].f, results[1].f);
      EXPECT_EQ(results[0].g, results[1].g);
    }
  }
}

TEST_P(SweepTest, stored_scores_give_the_same_iterates) {
  for (std::int64_t const d : {2, 37}) {
    SCOPED_TRACE(testing::Message() << "d " << d);
    Case const test = make_case({200, 150, d, Weights::skewed, Place::shifted, 0.01});
    Sweep const kind{test.eps};
    SweepResult const expected = sweep(test.dense, kind, 7, {Vector(200, 0), Vector(150, 0)});
    for (double const cache_bytes : {0.0, 1e9}) {
      auto const entropic = make_operator(test.problem, cache_bytes);
      entropic->set_potentials({}, {});
      entropic->sweep(kind, 7);
      expect_close("g", narrow(potentials_of(*entropic).g), expected.potentials.g,
                   Vector(150, test.tolerance.sweeps(kind, 7, expected)));
    }
  }
}

}  // namespace
}  // namespace monge::oracle
