// What a batch asks of the device does not grow with the number of its problems.
#include "cuda/backend.hpp"
#include "cuda/runtime/runtime.hpp"
#include "oracle/backend_test.hpp"
#include "oracle/device_memory.hpp"

namespace monge::oracle {
namespace {

class BatchLaunches : public BackendTest {
 protected:
  /// Those of a batch of `count` problems that are one and the same.
  cuda::RuntimeCounters counts_of(Problem const& problem, std::size_t count, SolveOptions options) const {
    options.precision = precision();
    cuda::RuntimeCounters const& counters = cuda::runtime_of(context()).counters();
    cuda::RuntimeCounters const before = counters;
    std::vector<BatchProblem> const batch(count, {problem.geometry(), problem.a, problem.b});
    std::vector<Plan> const plans = solve_batch(context(), batch, options);
    return {counters.allocations - before.allocations, counters.waits - before.waits,
            counters.batch_launches - before.batch_launches};
  }
};
INSTANTIATE_TEST_SUITE_P(, BatchLaunches,
                         testing::Values(Target{DeviceType::cuda, Precision::float32},
                                         Target{DeviceType::cuda, Precision::tf32},
                                         Target{DeviceType::cuda, Precision::float64}),
                         target_name);

TEST_P(BatchLaunches, are_those_of_two_problems_whatever_their_number) {
  for (std::int64_t const d : {3, 20, 64}) {
    for (Schedule const schedule : {Schedule::overrelaxed, Schedule::symmetric}) {
      SCOPED_TRACE(testing::Message() << "d " << d << ", " << name(schedule));
      Problem const problem = make_problem({140, 150, d, Weights::with_zeros});
      SolveOptions options{.eps = 1, .tolerance = 1e-9, .iterations = 25, .schedule = schedule};
      if (precision() != Precision::tf32) options.penalty_a = 5;  // Otherwise the sweeps are resident.
      cuda::RuntimeCounters const two = counts_of(problem, 2, options), many = counts_of(problem, 300, options);
      EXPECT_GE(two.batch_launches, 4 * 25);
      EXPECT_EQ(many.batch_launches, two.batch_launches);
    }
  }
}

TEST_P(BatchLaunches, of_newtons_method_wait_for_certificates_alone) {
  if (precision() != Precision::float64) GTEST_SKIP() << "Newton's method is in float64";
  Problem const problem = make_problem({60, 50, 3});
  SolveOptions const options{.eps = 0.1, .method = Method::newton, .tolerance = 1e-9};
  Report const report = solve(context(), problem.geometry(), problem.a, problem.b, options).report();
  EXPECT_TRUE(report.newton_on_host);
  EXPECT_GT(report.newton_steps, 0);
  // On the device each pass of each problem waits. The way to the host and back waits twice, beside reads of inputs.
  EXPECT_LT(counts_of(problem, 20, options).waits, 20 * report.newton_iterations);
}

TEST_P(BatchLaunches, of_newtons_method_read_costs_from_the_device) {
  if (precision() != Precision::float64) GTEST_SKIP() << "Newton's method is in float64";
  Problem const problem = oracle::make_problem({.n = 60, .m = 50, .d = 3, .costs = Costs::random});
  OnDevice<double> const costs(problem.costs(), 60, 50, 5);
  SolveOptions const options{.eps_relative = 0.02, .method = Method::newton, .tolerance = 1e-9};
  Plan const host = solve(context(), problem.geometry(), problem.a, problem.b, options),
             device = solve(context(), CostMatrix{costs.matrix()}, problem.a, problem.b, options);
  EXPECT_TRUE(device.report().newton_on_host);
  EXPECT_EQ(device.f(), host.f());
  EXPECT_EQ(device.g(), host.g());
}

TEST_P(BatchLaunches, of_newtons_method_repeat_to_the_bit) {
  if (precision() != Precision::float64) GTEST_SKIP() << "Newton's method is in float64";
  std::vector<Problem> problems;
  for (std::uint64_t k = 0; k < 40; ++k)
    problems.push_back(make_problem({40 + static_cast<std::int64_t>(37 * k % 90), 70, 3, Weights::skewed, Place::origin,
                                     0.01, DataType::float64, 0, 1, 1, k + 1}));
  std::vector<BatchProblem> batch;
  for (Problem const& problem : problems) batch.push_back({problem.geometry(), problem.a, problem.b});
  SolveOptions const options{.eps = 0.02, .method = Method::newton, .tolerance = 1e-9};
  std::vector<std::vector<double>> alone;
  for (Problem const& problem : problems)
    alone.push_back(solve(context(), problem.geometry(), problem.a, problem.b, options).f());
  for (int repeat = 0; repeat < 3; ++repeat) {
    std::vector<Plan> const plans = solve_batch(context(), batch, options);
    for (std::size_t k = 0; k < plans.size(); ++k) EXPECT_EQ(plans[k].f(), alone[k]) << k;
  }
}

// 300 problems have 4800 tiles of 64 x 64, of which the device holds a few hundred at once.
TEST_P(BatchLaunches, of_resident_sweeps_are_few) {
  if (precision() == Precision::tf32) return;
  Problem const problem = make_problem({140, 150, 20, Weights::with_zeros});
  SolveOptions const options{.eps = 1, .tolerance = 1e-9, .iterations = 25};
  cuda::RuntimeCounters const two = counts_of(problem, 2, options), many = counts_of(problem, 300, options);
  EXPECT_GT(two.batch_launches, 0);
  EXPECT_LT(many.batch_launches, 300);
}

}  // namespace
}  // namespace monge::oracle
