// Newton's method of small problems of a device runs on the CPU. Its result equals that of a solve on the CPU; the
// operators of the device certify the result and make the plan.
#include <thread>

#include "entropic/sinkhorn.hpp"
#include "oracle/backend_test.hpp"
#include "regularized/quadratic_newton.hpp"

namespace monge::oracle {
namespace {

/// A backend of the CPU that says of itself that Newton's method is faster on its host, as a device does.
class WaitingDevice final : public Backend {
 public:
  explicit WaitingDevice(Backend const& of) : of_(of) {}
  PassTimes pass_times(Geometry const& geometry, double cache_bytes) const override {
    PassTimes times = of_.pass_times(geometry, cache_bytes);
    times.newton_on_host = true;
    return times;
  }
  Device device() const override { return of_.device(); }
  Ranks* ranks() const override { return of_.ranks(); }
  std::unique_ptr<CloudTree> tree(EntropicOperator const& entropic, OperatorInput const& input,
                                  Side side) const override {
    return of_.tree(entropic, input, side);
  }
  void add_transform(Side side, double factor, PlanOperator& plan, EntropicOperator& to) const override {
    of_.add_transform(side, factor, plan, to);
  }
  DeviceInfo info() const override { return of_.info(); }
  MemoryCount& memory() const override { return of_.memory(); }
  std::vector<double> read(MatrixView view) const override { return of_.read(view); }
  std::vector<std::unique_ptr<EntropicOperator>> entropic_operators(
      std::span<OperatorInput const> inputs) const override {
    return of_.entropic_operators(inputs);
  }
  double mean_cost(PointCloud const& clouds, Marginals const& marginals) const override {
    return of_.mean_cost(clouds, marginals);
  }
  std::unique_ptr<Sweeper> sweeper() const override { return of_.sweeper(); }
  void evaluate(std::span<EvaluationStep> steps) const override { of_.evaluate(steps); }
  std::vector<std::unique_ptr<PlanOperator>> plans(std::span<PlanInput const> inputs) const override {
    return of_.plans(inputs);
  }
  void mix(VectorOperations const& vectors, monge::Vector const& image_f, monge::Vector const& image_g,
           Mixture& mixture, monge::Vector& f, monge::Vector& g) const override {
    of_.mix(vectors, image_f, image_g, mixture, f, g);
  }
  std::vector<std::shared_ptr<RegularizedCosts const>> regularized_costs(
      std::span<RegularizedInput const> inputs) const override {
    return of_.regularized_costs(inputs);
  }
  std::vector<std::unique_ptr<SplittingOperator>> splitting_operators(
      std::span<SplittingInput const> inputs) const override {
    return of_.splitting_operators(inputs);
  }
  void iterate(std::span<SplittingStep> steps) const override { of_.iterate(steps); }
  std::unique_ptr<QuadraticOperator> quadratic_operator(std::shared_ptr<RegularizedCosts const> costs) const override {
    return of_.quadratic_operator(std::move(costs));
  }
  void run_each(std::span<ProblemSize const> sizes, bool watched, std::function<bool(std::size_t)> const& work,
                std::function<void(std::size_t)> const& show) const override {
    together.emplace_back(sizes.size(), watched);
    of_.run_each(sizes, watched, work, show);
  }
  ProjectionOperator const& projection() const override { return of_.projection(); }
  AssignmentOperator const& assignment() const override { return of_.assignment(); }

  mutable std::vector<std::pair<std::size_t, bool>> together;  // The problems of each call of run_each().

 private:
  Backend const& of_;
};

std::vector<Problem> small_problems() {
  return {make_problem({30, 40, 3}),
          make_problem({.n = 50, .m = 20, .d = 2, .weights = Weights::with_zeros, .place = Place::apart}),
          make_problem({.n = 33, .m = 33, .d = 3, .costs = Costs::random}),
          make_problem({.n = 25, .m = 60, .d = 4, .costs = Costs::euclidean})};
}

struct Solved {
  std::vector<Report> reports;
  std::vector<Potentials> potentials;
};

Solved solve_on(Context const& context, Backend const& backend, std::vector<Problem> const& given,
                SolveOptions const& options) {
  std::vector<SinkhornProblem> problems;
  for (Problem const& problem : given) {
    problems.push_back(checked_problem(context, {problem.geometry(), problem.a, problem.b}, options, true));
    SinkhornProblem& last = problems.back();
    last.entropic = backend.entropic_operator(last.geometry, last.marginals, first_operator(last));
    begin(backend, last, true);
  }
  run_sinkhorn(backend, problems);
  Solved result;
  for (SinkhornProblem const& problem : problems) {
    result.reports.push_back(problem.report);
    result.potentials.push_back(potentials_of(*problem.entropic));
  }
  return result;
}

TEST(HostNewton, ends_as_a_solve_there_at_potentials_that_the_device_certifies) {
  Context const context = Context::cpu(1);
  Backend const& plain = backend_of(context);
  std::vector<Problem> const problems = small_problems();
  for (SolveOptions const& options :
       {SolveOptions{.tolerance = 1e-9}, SolveOptions{.tolerance = 1e-9, .criterion = Criterion::gap},
        SolveOptions{.penalty_a = 2, .penalty_b = 3}, SolveOptions{.tolerance = 0, .iterations = 5},
        SolveOptions{.tolerance = 0, .iterations = 3, .annealing = 1},
        SolveOptions{.tolerance = 1e-9, .certificate = false}, SolveOptions{.iterations = 12}}) {
    SolveOptions newton = options;
    newton.eps_relative = 0.01;
    newton.method = Method::newton;
    Solved const expected = solve_on(context, plain, problems, newton),
                 actual = solve_on(context, WaitingDevice(plain), problems, newton);
    for (std::size_t k = 0; k < problems.size(); ++k) {
      Report const &report = actual.reports[k], &other = expected.reports[k];
      SCOPED_TRACE(testing::Message() << "problem " << k << ", " << report.message);
      EXPECT_EQ(report.newton_on_host, other.newton_iterations > 0);
      EXPECT_FALSE(other.newton_on_host);
      EXPECT_EQ(report.status, other.status) << other.message;
      if (options.tolerance == 0) {
        EXPECT_EQ(report.newton_steps, other.newton_steps);
      }
      EXPECT_EQ(report.history.back().iteration, report.iterations);
      if (options.certificate) {
        expect_report_matches(report, problems[k], report.eps, actual.potentials[k]);
      } else {
        EXPECT_NEAR(Dense(problems[k]).plan(report.eps, actual.potentials[k])[0],
                    Dense(problems[k]).plan(report.eps, expected.potentials[k])[0], 1e-9);
      }
    }
  }
}

// Sweeps in float32 come before, on the device, and steps in float64 after, without the float32 operator.
TEST(HostNewton, follows_sweeps_of_the_device) {
  Context const context = Context::cpu(1);
  std::vector<Problem> const problems{make_problem({.n = 60, .m = 70, .d = 2, .costs = Costs::random})};
  SolveOptions const options{.eps_relative = 0.002, .tolerance = 1e-9};
  Solved const solved = solve_on(context, WaitingDevice(backend_of(context)), problems, options);
  EXPECT_EQ(solved.reports[0].status, Status::converged) << solved.reports[0].message;
  EXPECT_TRUE(solved.reports[0].newton_on_host);
  EXPECT_GT(solved.reports[0].newton_steps, 0);
  EXPECT_GT(solved.reports[0].iterations, solved.reports[0].refinement_iterations);
}

TEST(HostNewton, calls_progress_on_the_callers_thread_and_stops) {
  Context const context = Context::cpu(1);
  std::vector<Problem> const problems{small_problems()[0], small_problems()[2]};  // Both take some 40 passes.
  SolveOptions options{.eps_relative = 0.01, .method = Method::newton, .tolerance = 1e-9};
  auto const caller = std::this_thread::get_id();
  options.progress = [&](Progress const& progress) {
    EXPECT_TRUE(std::this_thread::get_id() == caller);
    EXPECT_EQ(progress.potentials().f.size(), problems[static_cast<std::size_t>(progress.problem)].a.size());
    return progress.iteration < 20;
  };
  for (Report const& report : solve_on(context, WaitingDevice(backend_of(context)), problems, options).reports) {
    EXPECT_EQ(report.status, Status::stopped) << report.message;
    EXPECT_TRUE(report.newton_on_host);
  }
}

// Python watches every solve for signals.
TEST(HostNewton, of_watched_problems_has_the_same_bits) {
  Context const context = Context::cpu(1);
  WaitingDevice const waiting(backend_of(context));
  std::vector<Problem> const problems = small_problems();
  SolveOptions options{.eps_relative = 0.01, .method = Method::newton, .tolerance = 1e-9};
  Solved const expected = solve_on(context, waiting, problems, options);
  std::vector<std::size_t> seen(problems.size(), 0);
  options.progress = [&](Progress const& progress) { return ++seen[static_cast<std::size_t>(progress.problem)] > 0; };
  Solved const actual = solve_on(context, waiting, problems, options);
  for (std::size_t k = 0; k < problems.size(); ++k) {
    EXPECT_EQ(actual.potentials[k].f, expected.potentials[k].f);
    EXPECT_EQ(actual.reports[k].history.size(), expected.reports[k].history.size());
    EXPECT_EQ(seen[k], expected.reports[k].history.size());
  }
}

TEST(HostNewton, of_quadratic_plans_ends_at_the_plan_of_a_solve_there) {
  Context const context = Context::cpu(1);
  Backend const& plain = backend_of(context);
  WaitingDevice const waiting(plain);
  Problem const problem = make_problem({.n = 40, .m = 30, .d = 3, .costs = Costs::random});
  std::vector<double> mask(40 * 30, 1);
  mask[7] = mask[300] = 0;
  RegularizedOptions options{.method = RegularizedMethod::newton, .tolerance = 1e-9};
  auto const solved = [&](Backend const& backend) {
    RegularizedRun run{checked_problem(
        context,
        {problem.geometry(), problem.a, problem.b, {.quadratic = 0.5, .mask = MatrixView(mask.data(), 40, 30)}},
        options, {})};
    RegularizedInput const input = run.problem.input();
    run.costs = backend.regularized_costs({&input, 1})[0];
    run.found = backend.quadratic_operator(run.costs);
    RegularizedRun* const pointer = &run;
    int const index = 0;
    run_newton(backend, {&pointer, 1}, {&index, 1}, options);
    return run;
  };
  RegularizedRun const expected = solved(plain), actual = solved(waiting);
  EXPECT_EQ(actual.report.status, Status::converged) << actual.report.message;
  EXPECT_TRUE(actual.report.newton_on_host);
  EXPECT_FALSE(expected.report.newton_on_host);
  EXPECT_EQ(actual.report.newton_steps, expected.report.newton_steps) << "none on the device";
  EXPECT_EQ(actual.report.iterations, expected.report.iterations) << "the device repeats the last";
  EXPECT_EQ(actual.report.history.size(), expected.report.history.size());
  EXPECT_NEAR(actual.report.primal, expected.report.primal, 1e-9 * std::abs(expected.report.primal));
  options.iterations = 4;
  RegularizedRun const limit = solved(plain), limited = solved(waiting);
  EXPECT_EQ(limited.report.status, Status::iteration_limit);
  EXPECT_EQ(limited.report.iterations, limit.report.iterations);
  EXPECT_EQ(limited.report.weight, limit.report.weight);
  EXPECT_NEAR(limited.report.primal, limit.report.primal, 1e-9 * std::abs(limit.report.primal));
  options.iterations = 1000;
  options.progress = [](RegularizedProgress const& progress) { return progress.iteration < 4; };
  RegularizedRun const stopped = solved(waiting);
  EXPECT_EQ(stopped.report.status, Status::stopped);
  EXPECT_LE(stopped.report.iterations, 6);
  EXPECT_EQ(stopped.report.weight, solved(plain).report.weight);
}

TEST(HostNewton, of_watched_quadratic_plans_runs_together) {
  Context const context = Context::cpu(2);
  WaitingDevice const waiting(backend_of(context));
  Problem const problem = make_problem({.n = 40, .m = 30, .d = 3, .costs = Costs::random});
  RegularizedOptions options{.method = RegularizedMethod::newton, .tolerance = 1e-9};
  std::vector<RegularizedRun> runs(5);
  std::vector<RegularizedRun*> pointers;
  std::vector<int> index, calls(runs.size(), 0);
  for (RegularizedRun& run : runs) {
    int const k = static_cast<int>(index.size());
    run.problem =
        checked_problem(context, {problem.geometry(), problem.a, problem.b, {.quadratic = 0.5 + k}}, options, {});
    RegularizedInput const input = run.problem.input();
    run.costs = waiting.regularized_costs({&input, 1})[0];
    run.found = waiting.quadratic_operator(run.costs);
    pointers.push_back(&run);
    index.push_back(k);
  }
  auto const caller = std::this_thread::get_id();
  options.progress = [&](RegularizedProgress const& progress) {
    EXPECT_TRUE(std::this_thread::get_id() == caller);
    ++calls[static_cast<std::size_t>(progress.problem)];
    return progress.problem != 3 || progress.iteration < 4;
  };
  run_newton(waiting, pointers, index, options);
  EXPECT_EQ(waiting.together, (std::vector{std::pair(runs.size(), true)})) << "the host has a call of its own";
  for (std::size_t k = 0; k < runs.size(); ++k) {
    EXPECT_TRUE(runs[k].report.newton_on_host);
    EXPECT_EQ(runs[k].report.status, k == 3 ? Status::stopped : Status::converged) << runs[k].report.message;
    EXPECT_EQ(calls[k], static_cast<int>(runs[k].report.history.size()));
  }
}

/// On CUDA the choice goes by pairs and labels.
class HostNewtonOnDevice : public BackendTest {};
MONGE_FOR_EACH_OF(HostNewtonOnDevice, with_all_costs(all_devices()));

TEST_P(HostNewtonOnDevice, plans_are_those_of_the_oracle) {
  bool const is_cuda = context().device().type == DeviceType::cuda;
  std::vector<Problem> problems;
  for (std::uint64_t seed = 1; seed <= 12; ++seed)
    problems.push_back(make_problem({.n = 20 + static_cast<std::int64_t>(seed), .m = 35, .d = 3, .seed = seed}));
  std::vector<BatchProblem> batch;
  for (Problem const& problem : problems) batch.push_back({problem.geometry(), problem.a, problem.b});
  SolveOptions const options{.eps_relative = 0.02, .method = Method::newton, .tolerance = 1e-10};
  std::vector<Plan> const plans = solve_batch(context(), batch, options);
  int steps = 0;
  for (std::size_t k = 0; k < plans.size(); ++k) {
    SCOPED_TRACE(testing::Message() << "problem " << k);
    Report const& report = plans[k].report();
    EXPECT_EQ(report.status, Status::converged) << report.message;
    EXPECT_EQ(report.newton_on_host, is_cuda && report.newton_iterations > 0);
    steps += report.newton_steps;
    expect_report_matches(report, problems[k], report.eps, potentials_of(plans[k]));
    EXPECT_EQ(plans[k].f(), solve(context(), batch[k].geometry, batch[k].a, batch[k].b, options).f()) << "alone";
  }
  EXPECT_GT(steps, 12);
}

TEST_P(HostNewtonOnDevice, leaves_large_problems_to_the_device) {
  Problem const problem = make_problem({.n = 400, .m = 330, .d = 3});
  Report const report = solve(context(), problem.geometry(), problem.a, problem.b,
                              {.eps_relative = 0.05, .method = Method::newton, .tolerance = 1e-6})
                            .report();
  EXPECT_EQ(report.status, Status::converged) << report.message;
  EXPECT_FALSE(report.newton_on_host);
}

}  // namespace
}  // namespace monge::oracle
