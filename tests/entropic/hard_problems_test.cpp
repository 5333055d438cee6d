// The default call on problems that entropic solvers end short on: it converges, soon, and no later than sweeps alone.
#include "oracle/hard_problems.hpp"

#include <algorithm>
#include <map>

#include "oracle/backend_test.hpp"

namespace monge::oracle {
namespace {

class HardProblems : public testing::TestWithParam<DeviceType> {
 protected:
  void SetUp() override { require_device(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(, HardProblems, testing::Values(DeviceType::cpu, DeviceType::cuda),
                         [](auto const& info) { return std::string(info.param == DeviceType::cpu ? "cpu" : "cuda"); });

/// Time of all passes, in float32 sweeps.
double time_of(Report const& report, PassTimes const& times) {
  bool const starts_in_float32 = report.precision == Precision::float32 || report.refinement_iterations > 0;
  int const in_float64 = starts_in_float32 ? report.refinement_iterations : report.iterations;
  return report.iterations - in_float64 + times.float64 * (in_float64 - report.newton_iterations) +
         times.newton * report.newton_iterations;
}

TEST_P(HardProblems, converge_by_default_and_no_later_than_by_sweeps_alone) {
  Context const context = make_context(GetParam());
  int hard = 0, newton = 0;
  std::map<Method, double> sweeps;  // By time_of().
  for (auto const& [name, problem, eps] : hard_problems(3, 100)) {
    SCOPED_TRACE(name);
    SolveOptions options{.eps = eps};
    Report const report = solve(context, problem.geometry(), problem.a, problem.b, options).report();
    EXPECT_EQ(report.status, Status::converged) << report.message;
    EXPECT_LE(report.marginal_error, 1e-6);
    EXPECT_EQ(report.history.back().eps, eps);
    hard += report.annealing_iterations > 0;
    newton += report.newton_steps > 0;
    PassTimes const times = backend_of(context).pass_times(problem.geometry(), 0);
    auto const add = [&](Report const& of) { sweeps[options.method] += time_of(of, times); };
    add(report);
    options.method = Method::newton;
    add(solve(context, problem.geometry(), problem.a, problem.b, options).report());
    options.method = Method::sinkhorn;
    Report const by_sweeps = solve(context, problem.geometry(), problem.a, problem.b, options).report();
    add(by_sweeps);
    EXPECT_LE(report.iterations, 1.1 * by_sweeps.iterations + 20);
    // Plain sweeps may take far longer: no more of them than would beat the default by as much say anything.
    options.iterations = static_cast<int>((report.iterations - 20) / 1.1);
    if (options.iterations < 1) continue;
    options.schedule = Schedule::alternating;
    options.annealing = 1;
    Report const plain = solve(context, problem.geometry(), problem.a, problem.b, options).report();
    EXPECT_NE(plain.status, Status::converged) << plain.iterations << " plain sweeps, " << report.iterations;
  }
  EXPECT_LE(sweeps[Method::automatic], 1.25 * std::min(sweeps[Method::newton], sweeps[Method::sinkhorn]));
  EXPECT_GE(hard, 24) << "as many come down the ladder";
  // On CUDA a pass of Newton's method takes as long as 12 sweeps of so few points.
  EXPECT_GE(newton, GetParam() == DeviceType::cpu ? 16 : 5) << "as many need Newton's method";
}

// By ladder and overrelaxation alone these 96 solves took 9,928 passes (bench/notes/anderson.md has larger problems).
TEST(MixedHardProblems, take_two_thirds_of_the_passes_of_overrelaxation) {
  Context const context = Context::cpu(1);
  int passes = 0;
  for (auto const& [name, problem, eps] : hard_problems(5, 100)) {
    SolveOptions const options{.eps = eps, .tolerance = 1e-3};
    passes += solve(context, problem.geometry(), problem.a, problem.b, options).report().iterations;
  }
  EXPECT_LE(passes, 2 * 9928 / 3);
}

}  // namespace
}  // namespace monge::oracle
