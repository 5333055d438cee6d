// The default call on problems that entropic solvers end short on: it converges, soon, and no later than plain sweeps.
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

TEST_P(HardProblems, converge_by_default_and_no_later_than_plain_sweeps) {
  Context const context = make_context(GetParam());
  int total = 0, hard = 0;
  for (auto const& [name, problem, eps] : hard_problems(3, 100)) {
    SCOPED_TRACE(name);
    SolveOptions options{.eps = eps};
    Report const report = solve(context, problem.geometry(), problem.a, problem.b, options).report();
    EXPECT_EQ(report.status, Status::converged) << report.message;
    EXPECT_LE(report.marginal_error, 1e-6);
    EXPECT_EQ(report.history.back().eps, eps);
    total += report.iterations;
    hard += report.annealing_iterations > 0;
    // What the default may lose against plain sweeps is a tenth and 20 sweeps, so no more of those say anything.
    options.schedule = Schedule::alternating;
    options.annealing = 1;
    options.iterations = static_cast<int>((report.iterations - 20) / 1.1);
    if (options.iterations < 1) continue;
    Report const plain = solve(context, problem.geometry(), problem.a, problem.b, options).report();
    EXPECT_NE(plain.status, Status::converged) << plain.iterations << " plain sweeps, " << report.iterations;
  }
  EXPECT_LE(total, 40000);
  EXPECT_GE(hard, 24) << "as many come down the ladder";
}

}  // namespace
}  // namespace monge::oracle
