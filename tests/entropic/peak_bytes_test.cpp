// The memory that a report says a call has taken.
#include <algorithm>

#include "oracle/backend_test.hpp"

namespace monge::oracle {
namespace {

class PeakBytes : public BackendTest {
 protected:
  Plan solve(Problem const& problem, double cache_bytes = 0) const {
    return monge::solve(context(), problem.geometry(), problem.a, problem.b,
                        {.eps_relative = 0.1, .precision = precision(), .cache_bytes = cache_bytes});
  }
};
MONGE_FOR_EACH_TARGET(PeakBytes);

/// On the CPU the order in which threads make small arrays moves the peak by some of them.
constexpr std::int64_t kSmallArrays = 4096;

TEST_P(PeakBytes, are_those_of_the_call_and_of_plans_that_are_alive) {
  Problem const problem = make_problem({300, 200, 40});
  bool const has_points = GetParam().costs == Costs::points;
  std::int64_t const scalar = is_float64() ? 8 : 4, packed = has_points ? scalar * (300 + 200) * 40 : 0;
  (void)solve(problem);  // The next call finds free blocks.
  std::int64_t const alone = solve(problem).report().peak_bytes;
  EXPECT_GE(alone, packed);
  EXPECT_NEAR(solve(problem).report().peak_bytes, alone, kSmallArrays);
  {
    Plan const first = solve(problem);
    EXPECT_GE(solve(problem).report().peak_bytes, alone + packed - kSmallArrays);
  }
  EXPECT_NEAR(solve(problem).report().peak_bytes, alone, kSmallArrays);
  if (has_points && GetParam().device == DeviceType::cpu) {
    EXPECT_GE(solve(problem, 1e9).report().peak_bytes, alone + scalar * 300 * 200 - kSmallArrays) << "with the scores";
  }
}

TEST_P(PeakBytes, are_in_every_report_of_a_batch_a_solver_and_a_divergence) {
  Problem const problem = make_problem({60, 50, 3});
  SolveOptions const options{.eps_relative = 0.1, .precision = precision()};
  std::vector<BatchProblem> const batch(3, {problem.geometry(), problem.a, problem.b});
  for (Plan const& plan : solve_batch(context(), batch, options)) EXPECT_GT(plan.report().peak_bytes, 0);
  Solver solver(context(), problem.geometry(), problem.a, problem.b, options);
  (void)solver.solve();
  std::int64_t const second = solver.solve().report().peak_bytes;
  EXPECT_GT(second, 0);
  EXPECT_NEAR(solver.solve().report().peak_bytes, second, kSmallArrays);
  if (GetParam().costs != Costs::points) return;
  Divergence const divergence = sinkhorn_divergence(context(), problem.clouds(), problem.a, problem.b, options);
  for (Plan const* plan : {&divergence.ab, &divergence.aa, &divergence.bb}) EXPECT_GT(plan->report().peak_bytes, 0);
}

TEST_P(PeakBytes, of_derivatives_by_points_are_far_below_those_of_all_pairs) {
  if (GetParam().costs != Costs::points) GTEST_SKIP() << "a matrix has all pairs";
  if (GetParam().device == DeviceType::cuda) GTEST_SKIP() << "a buffer of at most 256 MiB holds rows of this length";
  constexpr std::int64_t kSize = 3000;
  Plan const plan = solve(make_problem({kSize, kSize, 3}));
  std::vector<double> direction(3 * kSize, 1.0), x(3 * kSize);
  std::int64_t const of_gradient = plan.gradients({.x = {x.data(), kSize, 3}}).peak_bytes;
  LinearReport const product =
      plan.hessian_product({.x = {direction.data(), kSize, 3}}, {.x = {x.data(), kSize, 3}}, {.iterations = 5});
  for (std::int64_t const peak : {of_gradient, product.peak_bytes}) {
    EXPECT_GE(peak, 4 * 2 * kSize * 3) << "the points of the plan are alive";
    EXPECT_LT(peak, 4 * kSize * kSize / 2);
  }
}

}  // namespace
}  // namespace monge::oracle
