// The default call on problems that entropic solvers end short on: it converges, soon, and no later than sweeps alone.
#include "oracle/hard_problems.hpp"

#include "oracle/backend_test.hpp"

namespace monge::oracle {
namespace {

class HardProblems : public testing::TestWithParam<DeviceType> {
 protected:
  void SetUp() override { require_device(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(, HardProblems, testing::Values(DeviceType::cpu, DeviceType::cuda),
                         [](auto const& info) { return std::string(info.param == DeviceType::cpu ? "cpu" : "cuda"); });

TEST_P(HardProblems, converge_by_default_and_no_later_than_by_sweeps_alone) {
  Context const context = make_context(GetParam());
  int total = 0, hard = 0, newton = 0;
  for (auto const& [name, problem, eps] : hard_problems(3, 100)) {
    SCOPED_TRACE(name);
    SolveOptions options{.eps = eps};
    Report const report = solve(context, problem.geometry(), problem.a, problem.b, options).report();
    EXPECT_EQ(report.status, Status::converged) << report.message;
    EXPECT_LE(report.marginal_error, 1e-6);
    EXPECT_EQ(report.history.back().eps, eps);
    total += report.iterations;
    hard += report.annealing_iterations > 0;
    newton += report.newton_steps > 0;
    options.method = Method::sinkhorn;
    Report const sweeps = solve(context, problem.geometry(), problem.a, problem.b, options).report();
    EXPECT_LE(report.iterations, 1.1 * sweeps.iterations + 20);
    // Plain sweeps may take far longer: no more of them than would beat the default by as much say anything.
    options.iterations = static_cast<int>((report.iterations - 20) / 1.1);
    if (options.iterations < 1) continue;
    options.schedule = Schedule::alternating;
    options.annealing = 1;
    Report const plain = solve(context, problem.geometry(), problem.a, problem.b, options).report();
    EXPECT_NE(plain.status, Status::converged) << plain.iterations << " plain sweeps, " << report.iterations;
  }
  // On CUDA sweeps in float32 are cheap enough to come first.
  EXPECT_LE(total, GetParam() == DeviceType::cpu ? 10000 : 18000);
  EXPECT_GE(hard, 24) << "as many come down the ladder";
  EXPECT_GE(newton, GetParam() == DeviceType::cpu ? 24 : 16) << "as many need Newton's method";
}

}  // namespace
}  // namespace monge::oracle
