// A batch is its problems solved alone.
#include <algorithm>
#include <limits>
#include <numeric>
#include <string>

#include "oracle/backend_test.hpp"
#include "oracle/refusal.hpp"

namespace monge::oracle {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

/// On several threads, so that problems run side by side.
class BatchTest : public BackendTest {
 protected:
  BatchTest() : BackendTest(3) {}
};
MONGE_FOR_EACH_OF(BatchTest, with_all_costs(all_targets()) + portable_targets());

/// Across kernels, blocks and threads: tiny ones, odd ones, dimensions of all score forms, one that is worth several
/// threads of a CPU, weights that are zero, and costs so large that it takes many sweeps.
std::vector<Problem> ragged_problems() {
  std::vector<Problem> problems;
  std::uint64_t seed = 1;
  for (auto const& [n, m, d] : std::vector<std::array<std::int64_t, 3>>{{1, 1, 1},
                                                                        {1, 40, 3},
                                                                        {33, 1, 5},
                                                                        {130, 129, 2},
                                                                        {257, 300, 9},
                                                                        {700, 600, 3},
                                                                        {64, 500, 64},
                                                                        {140, 260, 200},
                                                                        {50, 60, 17}}) {
    for (Weights const weights : {Weights::uniform, Weights::with_zeros}) {
      if (weights != Weights::uniform && (n == 1 || m == 1)) continue;
      problems.push_back(make_problem(
          {.n = n, .m = m, .d = d, .weights = weights, .place = Place::apart, .padding = 3, .seed = seed++}));
    }
  }
  problems.push_back(make_problem({.n = 80, .m = 90, .d = 2, .scale = 100}));
  // Cost matrices as they lie and transposed, one with lines that several blocks of a GPU share.
  for (auto const& [n, m] :
       std::vector<std::array<std::int64_t, 2>>{{1, 1}, {130, 129}, {129, 130}, {257, 300}, {20, 4000}, {4000, 20}}) {
    problems.push_back(make_problem({.n = n, .m = m, .d = 1, .seed = seed++, .costs = Costs::random}));
  }
  return problems;
}

std::vector<BatchProblem> batch_of(std::span<Problem const> problems) {
  std::vector<BatchProblem> batch;
  for (Problem const& problem : problems) batch.push_back({problem.geometry(), problem.a, problem.b});
  return batch;
}

void expect_same(Plan const& alone, Plan const& together) {
  Report const &expected = alone.report(), &report = together.report();
  EXPECT_EQ(together.f(), alone.f());
  EXPECT_EQ(together.g(), alone.g());
  EXPECT_EQ(report.status, expected.status) << report.message;
  EXPECT_EQ(report.message, expected.message);
  EXPECT_EQ(report.iterations, expected.iterations);
  EXPECT_EQ(report.annealing_iterations, expected.annealing_iterations);
  EXPECT_EQ(report.refinement_iterations, expected.refinement_iterations);
  EXPECT_EQ(report.newton_steps, expected.newton_steps);
  EXPECT_EQ(report.newton_iterations, expected.newton_iterations);
  EXPECT_EQ(report.precision, expected.precision);
  EXPECT_EQ(report.certified, expected.certified);
  EXPECT_EQ(report.mass, expected.mass);
  EXPECT_EQ(report.marginal_error, expected.marginal_error);
  auto const values = [](Report const& of) { return std::array{of.transport_cost, of.primal, of.dual, of.gap}; };
  if (expected.certified) {
    EXPECT_EQ(values(report), values(expected));
  }
  ASSERT_EQ(report.history.size(), expected.history.size());
  for (std::size_t k = 0; k < report.history.size(); ++k) {
    EXPECT_EQ(report.history[k].iteration, expected.history[k].iteration);
    EXPECT_EQ(report.history[k].eps, expected.history[k].eps);
    EXPECT_EQ(report.history[k].marginal_error, expected.history[k].marginal_error);
    EXPECT_EQ(report.history[k].relaxation, expected.history[k].relaxation);
    EXPECT_EQ(report.history[k].precision, expected.history[k].precision);
  }
}

/// Solves the batch and each problem alone; returns the plans of the batch.
std::vector<Plan> expect_as_alone(Context const& context, std::span<BatchProblem const> batch,
                                  SolveOptions const& options) {
  std::vector<Plan> together = solve_batch(context, batch, options);
  EXPECT_EQ(together.size(), batch.size());
  for (std::size_t i = 0; i < std::min(batch.size(), together.size()); ++i) {
    SCOPED_TRACE(testing::Message() << "problem " << i);
    SolveOptions own = options;
    own.f = batch[i].f;
    own.g = batch[i].g;
    expect_same(solve(context, batch[i].geometry, batch[i].a, batch[i].b, own), together[i]);
  }
  return together;
}

bool has_status(std::span<Plan const> plans, Status status) {
  return std::any_of(plans.begin(), plans.end(), [&](Plan const& plan) { return plan.status() == status; });
}

TEST_P(BatchTest, gives_the_bits_of_its_problems_solved_alone) {
  std::vector<Problem> const problems = ragged_problems();
  for (Schedule const schedule : {Schedule::overrelaxed, Schedule::alternating, Schedule::symmetric}) {
    SCOPED_TRACE(testing::Message() << name(schedule));
    SolveOptions const options{.eps = 2,
                               .method = Method::sinkhorn,
                               .tolerance = 1e-3,
                               .iterations = 60,
                               .schedule = schedule,
                               .precision = precision()};
    std::vector<Plan> const plans = expect_as_alone(context(), batch_of(problems), options);
    EXPECT_TRUE(has_status(plans, Status::converged));
    EXPECT_TRUE(has_status(plans, Status::iteration_limit));
  }
}

/// Equal weights: those of the first problem, of others, of the other side.
TEST_P(BatchTest, of_problems_with_the_same_weights) {
  std::vector<Problem> problems;
  for (std::uint64_t const seed : {1, 2, 3, 4, 5})
    problems.push_back(make_problem({.n = 90, .m = 90, .d = 9, .weights = Weights::skewed, .seed = seed}));
  std::vector<double> const &a = problems[0].a, &other = problems[1].a;
  std::vector<BatchProblem> batch;
  for (Problem const& problem : problems) batch.push_back({problem.geometry(), a, a});
  batch[1].b = other;
  batch[2].a = other;
  batch[3].a = batch[3].b = VectorView();
  expect_as_alone(context(), batch, {.eps = 2, .tolerance = 1e-3, .precision = precision()});
  std::swap(batch[0], batch[3]);
  expect_as_alone(context(), batch, {.eps = 2, .tolerance = 1e-3, .precision = precision()});
}

class BatchInFloat64 : public BatchTest {};
MONGE_FOR_EACH_OF(BatchInFloat64, all_devices());

TEST_P(BatchInFloat64, of_other_methods) {
  std::vector<Problem> const problems = ragged_problems();
  for (Method const method : {Method::newton, Method::splr, Method::automatic}) {
    SCOPED_TRACE(name(method));
    bool const chooses = method == Method::automatic;
    SolveOptions const options{
        .eps = chooses ? 0.01 : 0.2, .method = method, .tolerance = 1e-7, .iterations = chooses ? 2000 : 100};
    std::vector<Plan> const plans = expect_as_alone(context(), batch_of(problems), options);
    EXPECT_TRUE(has_status(plans, Status::converged));
    EXPECT_TRUE(
        std::any_of(plans.begin(), plans.end(), [](Plan const& plan) { return plan.report().newton_steps > 0; }));
  }
}

TEST_P(BatchTest, of_problems_that_start_warm_and_cold) {
  std::vector<Problem> const problems = ragged_problems();
  std::vector<BatchProblem> batch = batch_of(problems);
  SolveOptions options{.eps = 3, .tolerance = 1e-2, .iterations = 30, .precision = precision(), .certificate = false};
  std::vector<std::vector<double>> f, g;
  for (Plan const& plan : solve_batch(context(), batch, options)) {
    f.push_back(plan.f());
    g.push_back(plan.g());
  }
  for (std::size_t i = 0; i < batch.size(); i += 2) {
    batch[i].f = f[i];
    batch[i].g = g[i];
  }
  expect_as_alone(context(), batch, options);
  options.annealing = 1;
  expect_as_alone(context(), batch, options);
}

TEST_P(BatchTest, of_no_problems_is_empty) {
  EXPECT_TRUE(solve_batch(context(), {}, {.eps = 1, .precision = precision()}).empty());
}

TEST_P(BatchTest, of_one_problem_is_that_problem) {
  Problem const problem = make_problem({120, 90, 20});
  BatchProblem const one{problem.geometry(), problem.a, problem.b};
  expect_as_alone(context(), {&one, 1}, {.eps = 1, .tolerance = 1e-4, .precision = precision()});
}

// On a GPU they are more blocks than it runs at a time.
TEST_P(BatchTest, of_many_problems) {
  Problem const problem = make_problem({140, 150, 4});
  std::vector<BatchProblem> const batch(700, {problem.geometry(), problem.a, problem.b});
  SolveOptions const options{.eps = 2, .tolerance = 1e-3, .precision = precision()};
  Plan const alone = solve(context(), batch[0].geometry, batch[0].a, batch[0].b, options);
  for (Plan const& plan : solve_batch(context(), batch, options)) {
    ASSERT_EQ(plan.f(), alone.f());
    ASSERT_EQ(plan.report().marginal_error, alone.report().marginal_error);
  }
}

TEST_P(BatchTest, problems_stop_one_by_one) {
  std::vector<Problem> const problems = ragged_problems();
  SolveOptions options{.eps = 1, .tolerance = 1e-9, .iterations = 40, .annealing = 1, .precision = precision()};
  options.check_every = 4;
  std::vector<int> calls(problems.size());
  options.progress = [&](Progress const& progress) { return ++calls[progress.problem] < 2 + progress.problem % 3; };
  std::vector<Plan> const plans = solve_batch(context(), batch_of(problems), options);
  for (std::size_t i = 0; i < problems.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "problem " << i);
    if (plans[i].status() == Status::stopped) {
      EXPECT_EQ(calls[i], 2 + static_cast<int>(i) % 3);
    }
    SolveOptions alone = options;
    int seen = 0;
    alone.progress = [&](Progress const& progress) {
      EXPECT_EQ(progress.problem, 0);
      return ++seen < 2 + static_cast<int>(i) % 3;
    };
    expect_same(solve(context(), problems[i].geometry(), problems[i].a, problems[i].b, alone), plans[i]);
  }
  EXPECT_TRUE(has_status(plans, Status::stopped));
}

TEST_P(BatchTest, plans_outlive_each_other) {
  std::vector<Problem> const problems = ragged_problems();
  SolveOptions const options{.eps = 2, .tolerance = 1e-2, .iterations = 20, .precision = precision()};
  std::vector<Plan> plans = solve_batch(context(), batch_of(problems), options);
  while (!plans.empty()) {
    Problem const& problem = problems[plans.size() - 1];
    Plan const alone = solve(context(), problem.geometry(), problem.a, problem.b, options);
    auto const image = [&](Plan const& plan) {
      std::vector<double> out(static_cast<std::size_t>(plan.rows()));
      plan.apply({problem.b.data(), plan.columns(), 1}, {out.data(), plan.rows(), 1});
      return out;
    };
    EXPECT_EQ(image(plans.back()), image(alone));
    plans.pop_back();
  }
}

/// The message of solve_batch().
std::string error_of(Context const& context, std::span<BatchProblem const> batch, SolveOptions const& options) {
  return oracle::refusal_of([&] { solve_batch(context, batch, options); });
}

class BatchOfPoints : public BatchTest {};
MONGE_FOR_EACH_POINT_TARGET(BatchOfPoints);

TEST_P(BatchOfPoints, one_bad_problem_refuses_the_call_by_its_number) {
  Problem const good = make_problem({20, 30, 3});
  SolveOptions options{.eps = 1, .precision = precision()};
  std::vector<double> values = good.x.values();
  values[7] = kNaN;
  Stored const not_finite(values, 20, 3);
  std::vector<double> const negative(20, -1.0), start(20, 0.0);
  BatchProblem const fine{good.geometry(), good.a, good.b};
  std::vector<BatchProblem> const batch(5, fine);
  auto const with = [&](std::size_t index, BatchProblem const& bad) {
    std::vector<BatchProblem> result = batch;
    result[index] = bad;
    return error_of(context(), result, options);
  };
  EXPECT_EQ(with(3, {PointCloud{not_finite.view(), good.y.view()}, good.a, good.b}),
            "problem 3: x: row 2, column 1 is nan; coordinates must be finite");
  EXPECT_EQ(with(0, {good.geometry(), negative, good.b}).substr(0, 13), "problem 0: a:");
  EXPECT_EQ(with(4, {PointCloud{good.x.view(), {}}, good.a, good.b}).substr(0, 13), "problem 4: y:");
  EXPECT_EQ(with(1, {good.geometry(), good.a, good.b, start, {}}),
            "problem 1: g: is missing; a warm start needs both f and g");
  Stored const far(std::vector<double>{1e200, -1e200}, 2, 1);
  EXPECT_EQ(with(2, {PointCloud{far.view(), far.view()}}).substr(0, 52),
            "problem 2: x, y: the squares of coordinates overflow");
  // The first of several.
  std::vector<BatchProblem> two = batch;
  two[1] = two[4] = {PointCloud{not_finite.view(), good.y.view()}, good.a, good.b};
  EXPECT_EQ(error_of(context(), two, options).substr(0, 13), "problem 1: x:");
  // What all of them share has no number.
  options.f = start;
  options.g = start;
  EXPECT_EQ(error_of(context(), batch, options).substr(0, 2), "f:");
}

class BatchPrecisionTest : public BackendTest {
 protected:
  BatchPrecisionTest() : BackendTest(3) {}
};
MONGE_FOR_EACH_DEVICE(BatchPrecisionTest);

// Auto: some go on in float64 while others are content with float32.
TEST_P(BatchPrecisionTest, each_problem_refines_by_itself) {
  std::vector<Problem> problems;
  for (double const size : {1.0, 0.05, 3.0, 0.02}) {
    Problem problem = make_problem({.n = 60, .m = 70, .d = 3, .seed = 5});
    for (Stored* cloud : {&problem.x, &problem.y}) {
      std::vector<double> values = cloud->values();
      for (double& value : values) value *= size;
      *cloud = Stored(values, cloud->rows(), 3);
    }
    problems.push_back(std::move(problem));
  }
  std::vector<Plan> const plans =
      expect_as_alone(context(), batch_of(problems), {.eps = 1, .tolerance = 1e-6, .iterations = 5000});
  auto const count = [&](Precision precision) {
    return std::count_if(plans.begin(), plans.end(),
                         [&](Plan const& plan) { return plan.report().precision == precision; });
  };
  EXPECT_GT(count(Precision::float32), 0);
  EXPECT_GT(count(Precision::float64), 0);
}

}  // namespace
}  // namespace monge::oracle
