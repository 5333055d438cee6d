// Sweeps with all scores in shared memory: which problems have them, and many problems at once. Their iterates are
// those of the oracle in tests/operators/sweep_test.cpp.
#include <memory>
#include <vector>

#include "cuda/entropic/entropic_operator.hpp"
#include "oracle/backend_test.hpp"

namespace monge::oracle {
namespace {

bool sweeps_are_resident(EntropicOperator& entropic) {
  auto& own = static_cast<cuda::EntropicOperator&>(entropic);
  own.sweep({1.0}, 1);
  return own.resident_sweeps().has_value();
}

class ResidentSweeps : public BackendTest {};
INSTANTIATE_TEST_SUITE_P(, ResidentSweeps,
                         testing::ValuesIn(with_all_costs({{DeviceType::cuda, Precision::float32},
                                                           {DeviceType::cuda, Precision::float64}})),
                         target_name);

TEST_P(ResidentSweeps, are_those_of_small_problems) {
  for (std::int64_t const n : {1, 64, 65, 129, 1000}) {
    SCOPED_TRACE(testing::Message() << "n " << n);
    Problem const problem = make_problem({n, 900, 40});
    EXPECT_TRUE(sweeps_are_resident(*make_operator(problem)));
    EXPECT_FALSE(sweeps_are_resident(*make_operator(problem, 0, {1.0, 2.0}))) << "with a translation";
    auto const portable = use_portable_kernels();
    EXPECT_FALSE(sweeps_are_resident(*make_operator(problem)));
  }
  EXPECT_FALSE(sweeps_are_resident(*make_operator(make_problem({3000, 2900, 3}))));
}

TEST(ResidentSweepsOfCuda, are_not_those_of_tf32) {
  require_device(DeviceType::cuda);
  if (testing::Test::IsSkipped()) return;
  Problem const problem = make_problem({100, 90, 20});
  auto const entropic =
      backend_of(Context::cuda()).entropic_operator(problem.geometry(), {problem.a, problem.b}, {Precision::tf32, 0});
  EXPECT_FALSE(sweeps_are_resident(*entropic));
}

// The largest tiles. The certificate, which has kernels of its own, judges the sweeps.
TEST_P(ResidentSweeps, of_tiles_of_128_points_converge) {
  if (GetParam().costs != Costs::points) return;
  Problem const problem = is_float64() ? make_problem({1400, 1390, 64}) : make_problem({1900, 1800, 64});
  auto const entropic = make_operator(problem);
  ASSERT_TRUE(sweeps_are_resident(*entropic));
  cuda::ResidentSweepPlan const& plan = *static_cast<cuda::EntropicOperator const&>(*entropic).resident_sweeps();
  EXPECT_EQ(plan.tile[0], 128);
  EXPECT_EQ(plan.tile[1], 128);
  SolveOptions const options{.eps = 0.1 * Magnitudes(problem).spread(), .tolerance = 1e-4, .precision = precision()};
  Report const report = solve(context(), problem.geometry(), problem.a, problem.b, options).report();
  EXPECT_EQ(report.status, Status::converged) << report.message;
  EXPECT_TRUE(report.certified);
}

// More than the device holds at once, of all shapes of tiles, with counts of their own; some rest.
TEST_P(ResidentSweeps, of_many_problems_have_the_bits_of_each_alone) {
  std::vector<Problem> problems;
  for (std::uint64_t k = 0; k < 40; ++k) {
    std::int64_t const n = k % 4 == 3 ? 1 + static_cast<std::int64_t>(k) : 500 + 20 * static_cast<std::int64_t>(k);
    problems.push_back(make_problem({.n = n, .m = 700, .d = 1 + static_cast<std::int64_t>(k) % 20, .seed = k}));
  }
  for (bool const symmetric : {false, true}) {
    std::vector<std::unique_ptr<EntropicOperator>> alone, together;
    std::vector<SweepStep> steps;
    for (std::size_t k = 0; k < problems.size(); ++k) {
      double const eps = 0.1 * Magnitudes(problems[k]).spread();
      Sweep const sweep{eps, symmetric, symmetric ? 1.0 : 1.3};
      int const count = static_cast<int>(k % 7);
      alone.push_back(make_operator(problems[k]));
      alone.back()->sweep(sweep, count);
      together.push_back(make_operator(problems[k]));
      steps.push_back({together.back().get(), sweep, count});
    }
    auto const sweeper = backend_of(context()).sweeper();
    sweeper->sweep(steps);
    for (std::size_t k = 0; k < problems.size(); ++k) {
      SCOPED_TRACE(testing::Message() << "problem " << k);
      Potentials const expected = potentials_of(*alone[k]), found = potentials_of(*together[k]);
      EXPECT_EQ(found.f, expected.f);
      EXPECT_EQ(found.g, expected.g);
      if (steps[k].count == 0) continue;
      SweepErrors const errors = alone[k]->errors();
      EXPECT_EQ(steps[k].errors.row, errors.row);
      EXPECT_EQ(steps[k].errors.column, errors.column);
      EXPECT_EQ(steps[k].errors.gradient_norm, errors.gradient_norm);
    }
  }
}

// A launch carries on where the last one has ended: barriers count on, and nothing stays in shared memory.
TEST_P(ResidentSweeps, in_several_launches_have_the_bits_of_one) {
  Problem const problem = make_problem({300, 400, 10, Weights::with_zeros});
  double const eps = 0.05 * Magnitudes(problem).spread();
  for (bool const symmetric : {false, true}) {
    auto const one = make_operator(problem), several = make_operator(problem);
    one->sweep({eps, symmetric}, 12);
    for (int const count : {1, 2, 3, 6}) several->sweep({eps, symmetric}, count);
    EXPECT_EQ(potentials_of(*one).f, potentials_of(*several).f);
    EXPECT_EQ(potentials_of(*one).g, potentials_of(*several).g);
    EXPECT_EQ(one->errors().row, several->errors().row);
  }
}

}  // namespace
}  // namespace monge::oracle
