// Several ranks get the bits of one rank that has as many threads.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "edges/calls.hpp"
#include "oracle/problem.hpp"
#include "ranks/meeting.hpp"

namespace monge::oracle {
namespace {

using Numbers = std::vector<double>;

void append(Numbers& numbers, std::vector<double> const& more) {
  numbers.insert(numbers.end(), more.begin(), more.end());
}
void append(Numbers& numbers, std::vector<float> const& more) {
  numbers.insert(numbers.end(), more.begin(), more.end());
}
void append(Numbers& numbers, std::vector<std::int64_t> const& more) {
  for (std::int64_t const value : more) numbers.push_back(static_cast<double>(value));
}
void append(Numbers& numbers, Report const& report) {
  append(numbers, Numbers{static_cast<double>(report.iterations), static_cast<double>(report.newton_steps),
                          static_cast<double>(report.status), report.mean_cost, report.eps, report.marginal_error,
                          report.gradient_norm, report.transport_cost, report.primal, report.dual});
}
std::vector<double> sized(std::int64_t size) {
  return std::vector<double>(static_cast<std::size_t>(size));
}

/// Everything that a plan gives. Outputs have strided rows, or float32, in places.
Numbers numbers_of(Plan const& plan, Problem const& problem) {
  std::int64_t const n = problem.n(), m = problem.m(), d = problem.d();
  Numbers all;
  append(all, plan.report());
  append(all, plan.f());
  append(all, plan.g());
  std::vector<double> rows = sized(n), columns = sized(m);
  plan.marginals(rows, columns);
  append(all, rows);
  append(all, columns);
  Random random(3);
  std::vector<double> v = gaussian_points(m, 2, random), u = gaussian_points(n, 2, random);
  std::vector<float> wide(static_cast<std::size_t>(n * 5));
  plan.apply({v.data(), m, 2}, {wide.data(), n, 2, 5});
  append(all, wide);
  std::vector<double> out = sized(2 * m);
  plan.apply_transpose({u.data(), n, 2}, {out.data(), m, 2});
  append(all, out);
  plan.apply({v.data(), m, 1, 2}, {rows.data(), n, 1});
  append(all, rows);
  plan.apply_hadamard_transpose({u.data(), n, 2}, {v.data(), m, 2}, {u.data(), n, 1, 2}, {columns.data(), m, 1});
  append(all, columns);
  plan.apply_gram(VectorView(u.data(), n, 2), VectorView(v.data(), m, 2), columns);
  append(all, columns);
  plan.apply_gram_transpose(VectorView(v.data(), m, 2), VectorView(u.data(), n, 2), rows);
  append(all, rows);
  all.push_back(plan.transport_cost());
  if (std::min(n, m) < 5) return all;

  std::int64_t const k = std::min<std::int64_t>(3, m);
  std::vector<std::int64_t> indices(static_cast<std::size_t>(n * (k + 1)));
  std::vector<double> largest = sized(n * k);
  plan.top_k({indices.data(), n, k, k + 1}, {largest.data(), n, k});
  append(all, indices);
  append(all, largest);
  std::vector<std::int64_t> row_begin(static_cast<std::size_t>(n + 1));
  double const threshold = 0.5 / static_cast<double>(n * m);
  std::int64_t const count = plan.count_above(threshold, {row_begin.data(), n + 1, 1, 1});
  std::vector<std::int64_t> places(static_cast<std::size_t>(count));
  std::vector<double> values = sized(count);
  plan.entries_above(threshold, {row_begin.data(), n + 1, 1, 1}, {places.data(), count, 1, 1}, values);
  append(all, row_begin);
  append(all, places);
  append(all, values);
  std::vector<std::int64_t> pairs(2 * 500);
  plan.sample(7, {pairs.data(), 500, 2, 2});
  append(all, pairs);
  std::vector<float> dense(static_cast<std::size_t>(n * m));
  plan.dense({dense.data(), n, m});
  append(all, dense);
  if (d == 0 || problem.has_labels()) return all;

  std::vector<double> x = sized(n * d), y = sized(m * d);
  plan.barycentric_projection({x.data(), n, d});
  append(all, x);
  plan.map(problem.y.view(), {y.data(), m, d});
  append(all, y);
  plan.potential(problem.y.view(), columns);
  append(all, columns);
  GradientReport const gradients = plan.gradients({{x.data(), n, d}, {y.data(), m, d}, rows, columns}, {});
  for (std::vector<double> const& part : {x, y, rows, columns}) append(all, part);
  append(all, Numbers{gradients.scale, gradients.distance});
  std::vector<double> const direction = gaussian_points(n, d, random);
  LinearReport const report = plan.hessian_product({.x = {direction.data(), n, d}}, {.x = {x.data(), n, d}}, {});
  append(all, x);
  all.push_back(report.iterations);
  return all;
}

Numbers solved(Context const& context, Problem const& problem, SolveOptions const& options) {
  return numbers_of(solve(context, problem.geometry(), problem.a, problem.b, options), problem);
}

/// Bits, so that NaN equals NaN.
void expect_equal_bits(Numbers const& actual, Numbers const& expected, std::string const& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  for (std::size_t k = 0; k < actual.size(); ++k) {
    if (std::isnan(actual[k]) && std::isnan(expected[k])) continue;
    ASSERT_EQ(actual[k], expected[k]) << what << ", number " << k << " of " << actual.size();
  }
}

/// work(context) on ranks of one thread equals that on one rank of `threads` threads; returns the messages of a rank.
template <class Work>
int expect_bits_of_threads(int threads, int ranks, Work const& work) {
  Numbers const expected = work(Context::cpu(threads));
  Meeting meeting(ranks);
  auto const outcomes =
      on_ranks(ranks, [&](int rank) { return work(Context::distributed(meeting.communicator(rank), 1)); });
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    EXPECT_EQ(outcomes[rank].error, "");
    if (outcomes[rank].result) expect_equal_bits(*outcomes[rank].result, expected, "rank " + std::to_string(rank));
  }
  return meeting.messages();
}

/// Where ranks share their passes.
template <class Work>
int expect_bits_of_one_rank(int ranks, Work const& work) {
  return expect_bits_of_threads(ranks, ranks, work);
}

/// Problems whose passes are worth five threads.
constexpr std::int64_t kN = 905, kM = 801;

struct RanksCase {
  std::string name;
  Recipe recipe;
  SolveOptions options;
};
std::ostream& operator<<(std::ostream& out, RanksCase const& of) {
  return out << of.name;
}

std::vector<RanksCase> ranks_cases() {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  auto const of = [](Precision precision, Method method = Method::sinkhorn) {
    return SolveOptions{
        .eps_relative = 0.05, .method = method, .tolerance = 1e-4, .iterations = 200, .precision = precision};
  };
  Recipe const points{.n = kN, .m = kM, .d = 3, .weights = Weights::with_zeros};
  auto const with = [&](auto const& change) {
    Recipe recipe = points;
    change(recipe);
    return recipe;
  };
  SolveOptions unbalanced = of(Precision::float32), symmetric = of(Precision::float64), one_sided = symmetric,
               short_one = of(Precision::float32);
  unbalanced.penalty_a = unbalanced.penalty_b = 2;
  symmetric.schedule = Schedule::symmetric;
  symmetric.iterations = 60;
  one_sided.penalty_b = 3;
  one_sided.penalty_a = kInfinity;
  short_one.iterations = 12;
  return {
      {"points", points, of(Precision::float32)},
      {"automatic", points, of(Precision::automatic, Method::automatic)},
      {"unbalanced", points, unbalanced},
      {"one_sided", points, one_sided},
      {"symmetric", points, symmetric},
      {"newton", points, of(Precision::float64, Method::newton)},
      {"splr", points, of(Precision::float64, Method::splr)},
      {"kept", with([](Recipe& r) { r.d = 40; }), of(Precision::float32)},
      {"far", with([](Recipe& r) { r.place = Place::apart; }), of(Precision::float32)},
      {"labels", with([](Recipe& r) { r.costs = Costs::labels; }), of(Precision::float32)},
      {"p_norm", with([](Recipe& r) { r.costs = Costs::p_norm; }), of(Precision::float64)},
      {"matrix", with([](Recipe& r) { r.costs = Costs::random; }), of(Precision::float32)},
      {"transposed", with([](Recipe& r) { r.costs = Costs::random, r.seed = 2; }), of(Precision::float64)},
      {"few_rows", with([](Recipe& r) { r.n = 3, r.m = 250001, r.weights = Weights::skewed; }), short_one},
      {"few_columns", with([](Recipe& r) { r.n = 250001, r.m = 3, r.d = 1; }), short_one},
  };
}

class RanksTest : public testing::TestWithParam<RanksCase> {};
INSTANTIATE_TEST_SUITE_P(, RanksTest, testing::ValuesIn(ranks_cases()),
                         [](testing::TestParamInfo<RanksCase> const& info) { return info.param.name; });

TEST_P(RanksTest, HaveTheBitsOfOneRank) {
  Problem const problem = make_problem(GetParam().recipe);
  for (int const ranks : {2, 3, 5}) {
    int const messages = expect_bits_of_one_rank(
        ranks, [&](Context const& context) { return solved(context, problem, GetParam().options); });
    // A pass takes two messages, and each solve makes at least ten sweeps.
    EXPECT_GT(messages, 20) << ranks << " ranks";
  }
}

TEST(Ranks, OfSeveralThreadsAgree) {
  Problem const problem = make_problem({.n = kN, .m = kM, .d = 5});
  SolveOptions const options{.eps_relative = 0.05, .tolerance = 1e-6};
  Meeting meeting(2);
  auto const outcomes = on_ranks(2, [&](int rank) {
    Plan const plan =
        solve(Context::distributed(meeting.communicator(rank), 2), problem.geometry(), problem.a, problem.b, options);
    EXPECT_EQ(plan.report().ranks, 2);
    return std::pair(numbers_of(plan, problem), plan.report());
  });
  ASSERT_TRUE(outcomes[0].result && outcomes[1].result) << outcomes[0].error << outcomes[1].error;
  expect_equal_bits(outcomes[0].result->first, outcomes[1].result->first, "ranks");
  // Sums of columns have another order than on one rank, so the bits differ. Each dual value is within its gap of the
  // optimum.
  Report const alone = solve(Context::cpu(4), problem.geometry(), problem.a, problem.b, options).report();
  Report const& together = outcomes[0].result->second;
  EXPECT_EQ(alone.ranks, 1);
  EXPECT_NEAR(together.dual, alone.dual, std::abs(together.gap) + std::abs(alone.gap));
}

TEST(Ranks, SolveBatches) {
  std::vector<Problem> problems;
  for (std::int64_t const n : {std::int64_t{1}, std::int64_t{40}, kN, std::int64_t{30}, std::int64_t{600}})
    problems.push_back(make_problem({.n = n, .m = kM, .d = 2, .seed = static_cast<std::uint64_t>(n)}));
  problems.push_back(make_problem({.n = kN, .m = kM, .d = 2, .costs = Costs::random}));
  expect_bits_of_one_rank(3, [&](Context const& context) {
    std::vector<BatchProblem> batch;
    for (Problem const& problem : problems) batch.push_back({problem.geometry(), problem.a, problem.b});
    Numbers all;
    for (Plan const& plan : solve_batch(context, batch, {.eps = 0.5, .tolerance = 1e-3})) {
      append(all, plan.f());
      append(all, plan.report());
    }
    return all;
  });
}

/// Potentials of a check on some ranks are a start on another number of ranks.
TEST(Ranks, GoOnFromPotentialsOfAnotherNumberOfRanks) {
  Problem const problem = make_problem({.n = kN, .m = kM, .d = 3, .weights = Weights::with_zeros});
  SolveOptions const options{
      .eps = 0.05, .method = Method::sinkhorn, .tolerance = 1e-6, .precision = Precision::float64};
  auto const potentials = [&](int ranks) {
    Meeting meeting(ranks);
    auto const outcomes = on_ranks(ranks, [&](int rank) {
      Potentials seen;
      SolveOptions stopping = options;
      stopping.progress = [&](Progress const& progress) {
        if (progress.iteration < 150) return true;
        seen = progress.potentials();
        return false;
      };
      solve(Context::distributed(meeting.communicator(rank), 1), problem.geometry(), problem.a, problem.b, stopping);
      Numbers all = seen.f;
      append(all, seen.g);
      return all;
    });
    for (auto const& outcome : outcomes) {
      EXPECT_EQ(outcome.error, "");
      EXPECT_EQ(*outcome.result, *outcomes[0].result);
    }
    return *outcomes[0].result;
  };
  int const cold = solve(Context::cpu(1), problem.geometry(), problem.a, problem.b, options).report().iterations;
  for (auto const& [before, after] : {std::pair(1, 3), std::pair(2, 5), std::pair(5, 1)}) {
    Numbers const start = potentials(before);
    ASSERT_EQ(start.size(), static_cast<std::size_t>(kN + kM));
    expect_bits_of_one_rank(after, [&](Context const& context) {
      SolveOptions warm = options;
      warm.f = VectorView(start.data(), kN);
      warm.g = VectorView(start.data() + kN, kM);
      Report const report = solve(context, problem.geometry(), problem.a, problem.b, warm).report();
      EXPECT_EQ(report.status, Status::converged);
      EXPECT_LT(report.iterations, cold);
      return Numbers{report.dual, static_cast<double>(report.iterations)};
    });
  }
}

TEST(Ranks, ShareDivergencesAndSolvers) {
  Problem const problem = make_problem({.n = kN, .m = kM, .d = 4, .weights = Weights::with_zeros});
  expect_bits_of_one_rank(3, [&](Context const& context) {
    Divergence const divergence =
        sinkhorn_divergence(context, problem.clouds(), problem.a, problem.b, {.eps = 0.5, .tolerance = 1e-5});
    Numbers all{divergence.value, divergence.gap};
    append(all, divergence.aa.f());
    std::vector<double> x = sized(kN * 4);
    divergence.gradients({.x = {x.data(), kN, 4}});
    append(all, x);
    Solver solver(context, problem.geometry(), problem.a, problem.b, {.eps = 0.5, .tolerance = 1e-4});
    append(all, solver.solve().f());
    solver.set_weights({}, problem.b);
    append(all, solver.solve().f());
    return all;
  });
}

TEST(Ranks, ShareTransformsAndExactPlans) {
  Problem const problem = make_problem({.n = kN, .m = kM, .d = 3});
  int const messages = expect_bits_of_one_rank(3, [&](Context const& context) {
    std::vector<double> const g(static_cast<std::size_t>(kM), 0.5);
    std::vector<double> f = sized(kN);
    std::vector<std::int64_t> nearest(static_cast<std::size_t>(kN));
    c_transform(context, problem.geometry(), g, f, {nearest.data(), kN, 1, 1});
    Numbers all = f;
    append(all, nearest);
    ExactPlan const plan = solve_exact(context, problem.geometry(), problem.a, problem.b);
    append(all, plan.values);
    append(all, plan.f);
    append(all, Numbers{plan.report.value, plan.report.dual});
    return all;
  });
  EXPECT_GT(messages, 20);
}

TEST(Ranks, ShareGromovWasserstein) {
  Problem const points = make_problem({.n = 60, .m = 50, .d = 3}),
                matrices = make_problem({.n = 30, .m = 30, .d = 2, .costs = Costs::distances});
  GromovClouds const clouds{.x = points.clouds().x, .y = points.clouds().y};
  GromovMatrices spaces;
  spaces.source = spaces.target = std::get<CostMatrix>(matrices.geometry()).cost;
  using enum GromovMarginals;
  for (auto const& options : {GromovOptions{}, GromovOptions{.eps = 1}, GromovOptions{.marginals = semirelaxed},
                              GromovOptions{.eps = 1, .marginals = unbalanced, .penalty_a = 2, .penalty_b = 2},
                              GromovOptions{.marginals = partial, .mass = 0.6}}) {
    auto const numbers_of = [](Gromov const& found) {
      Numbers all{found.report.value, found.report.lower_bound, found.report.stationarity};
      append(all, found.cross_moment);
      if (found.plan) append(all, found.plan->f());
      if (found.exact) append(all, found.exact->values);
      for (GromovStart const& start : found.report.starts) all.push_back(start.value);
      return all;
    };
    expect_bits_of_one_rank(3,
                            [&](Context const& context) { return numbers_of(solve_gromov(context, clouds, options)); });
    expect_bits_of_one_rank(3,
                            [&](Context const& context) { return numbers_of(solve_gromov(context, spaces, options)); });
  }
  // A progress function that stops on one rank stops all.
  expect_bits_of_one_rank(2, [&](Context const& context) {
    int calls = 0;
    GromovOptions options;
    options.progress = [&](GromovProgress const&) { return ++calls < 4; };
    Status const status = solve_gromov(context, clouds, options).report.status;
    return Numbers{static_cast<double>(status), static_cast<double>(calls)};
  });
}

TEST(Ranks, ComputeRegularizedPlansEach) {
  Problem const problem = make_problem({.n = 90, .m = 80, .d = 3, .costs = Costs::distances});
  expect_bits_of_one_rank(2, [&](Context const& context) {
    RegularizedPlan const plan = solve_regularized(context, problem.geometry(), problem.a, problem.b,
                                                   {.quadratic = 1, .hypentropy = 0.1}, {.iterations = 100});
    return plan.u();
  });
}

class EveryCall : public testing::TestWithParam<PublicCall> {};
INSTANTIATE_TEST_SUITE_P(, EveryCall, testing::ValuesIn(public_calls()),
                         [](testing::TestParamInfo<PublicCall> const& info) { return info.param.name; });

/// Three threads are busy, so one of four ranks has none.
TEST_P(EveryCall, TakesRanksWithoutThreads) {
  expect_bits_of_threads(GetParam().shares_passes ? 4 : 1, 4, GetParam().numbers);
}

/// Two ranks have two threads each: one takes part with one thread, the other with two.
TEST_P(EveryCall, TakesRanksWithSeveralThreads) {
  Meeting meeting(2);
  auto const outcomes =
      on_ranks(2, [&](int rank) { return GetParam().numbers(Context::distributed(meeting.communicator(rank), 2)); });
  ASSERT_TRUE(outcomes[0].result && outcomes[1].result) << outcomes[0].error << outcomes[1].error;
  expect_equal_bits(*outcomes[0].result, *outcomes[1].result, "ranks");
}

TEST(Ranks, SolveSmallProblemsWithoutMessages) {
  Problem const problem = make_problem({.n = 60, .m = 50, .d = 3});
  Meeting meeting(2);
  auto const outcomes = on_ranks(2, [&](int rank) {
    Context const context = Context::distributed(meeting.communicator(rank), 1);
    return solve(context, problem.geometry(), problem.a, problem.b, {.eps = 0.1}).report().iterations;
  });
  EXPECT_GT(*outcomes[0].result, 5);
  EXPECT_EQ(meeting.messages(), 6);  // Begin, inputs and end of making the context and of the solve.
}

/// Calls `work` on each rank, which throws on some of them. Afterwards all ranks solve a problem on the same context.
class RankErrors : public testing::Test {
 protected:
  template <class Work>
  std::vector<std::string> errors(int ranks, Work const& work) const {
    Meeting meeting(ranks);
    auto const outcomes = on_ranks(ranks, [&](int rank) {
      Context const context = Context::distributed(meeting.communicator(rank), 1);
      std::string message;
      try {
        work(context, rank);
      } catch (std::exception const& error) {
        message = error.what();
      }
      EXPECT_EQ(solve_again(context).status(), Status::converged);
      return message;
    });
    std::vector<std::string> messages;
    for (auto const& outcome : outcomes) messages.push_back(outcome.result.value_or("then: " + outcome.error));
    return messages;
  }
  Plan solve_again(Context const& context, std::function<bool(Progress const&)> progress = {}) const {
    return solve(context, problem_.geometry(), problem_.a, problem_.b,
                 {.eps = 0.5, .tolerance = 1e-4, .progress = std::move(progress)});
  }
  Problem problem_ = make_problem({.n = kN, .m = kM, .d = 3});
};

TEST_F(RankErrors, OfOneRankEndTheCallOnAll) {
  auto const messages = errors(3, [&](Context const& context, int rank) {
    solve_again(context, [&](Progress const& progress) {
      if (rank == 1 && progress.iteration > 5) throw std::runtime_error("the disk is full");
      return true;
    });
  });
  EXPECT_EQ(messages,
            (std::vector<std::string>{"rank 1: the disk is full", "the disk is full", "rank 1: the disk is full"}));
}

TEST_F(RankErrors, NameInputsThatDiffer) {
  auto const messages = errors(3, [&](Context const& context, int rank) {
    std::vector<double> x = problem_.x.values();
    if (rank == 2) x[100] = std::numeric_limits<double>::quiet_NaN();
    solve(context, PointCloud{{x.data(), kN, 3}, problem_.y.view()}, {}, {}, {.eps = 1});
  });
  EXPECT_EQ(messages,
            std::vector<std::string>(3, "x: rank 2 has another value than rank 0; must be equal on all ranks"));
  auto const options = errors(
      2, [&](Context const& context, int rank) { solve(context, problem_.geometry(), {}, {}, {.eps = rank + 1.0}); });
  EXPECT_EQ(options,
            std::vector<std::string>(2, "eps: rank 1 has another value than rank 0; must be equal on all ranks"));
}

TEST_F(RankErrors, SayHowArraysDiffer) {
  std::vector<double> const x = problem_.x.values();
  std::vector<float> const rounded(x.begin(), x.end());
  auto const all = [](std::string const& field, std::string const& part) {
    return std::vector<std::string>(
        3, field + ": rank 2 has another " + part + " than rank 0; must be equal on all ranks");
  };
  PointCloud const clouds{{x.data(), kN, 3}, problem_.y.view()};
  EXPECT_EQ(errors(3,
                   [&](Context const& context, int rank) {
                     solve(context, PointCloud{{x.data(), kN - rank / 2, 3}, problem_.y.view()}, {}, {}, {.eps = 1});
                   }),
            all("x", "shape"));
  // As many numbers in other rows.
  EXPECT_EQ(errors(3,
                   [&](Context const& context, int rank) {
                     MatrixView const cost = rank == 2 ? MatrixView(x.data(), 3, kN) : MatrixView(x.data(), kN, 3);
                     solve(context, CostMatrix{cost}, {}, {}, {.eps = 1});
                   }),
            all("cost", "shape"));
  EXPECT_EQ(errors(3,
                   [&](Context const& context, int rank) {
                     MatrixView const own = rank == 2 ? MatrixView(rounded.data(), kN, 3) : MatrixView(x.data(), kN, 3);
                     solve(context, PointCloud{own, problem_.y.view()}, {}, {}, {.eps = 1});
                   }),
            all("x", "type"));
  std::vector<double> const a(static_cast<std::size_t>(kN), 1.0 / kN);
  EXPECT_EQ(
      errors(3, [&](Context const& context,
                    int rank) { solve(context, clouds, rank == 2 ? VectorView(a) : VectorView(), {}, {.eps = 1}); }),
      all("a", "shape"));
  EXPECT_EQ(errors(3,
                   [&](Context const& context, int rank) {
                     std::vector<double> b(static_cast<std::size_t>(kM), 1);
                     if (rank == 2) b.back() = 0;
                     solve(context, clouds, {}, b, {.eps = 1});
                   }),
            all("b", "value"));
  // The problems of a batch in another order.
  EXPECT_EQ(errors(3,
                   [&](Context const& context, int rank) {
                     BatchProblem const problems[] = {{clouds}, {PointCloud{clouds.y, clouds.x}}};
                     std::vector<BatchProblem> own(std::begin(problems), std::end(problems));
                     if (rank == 2) std::swap(own[0], own[1]);
                     solve_batch(context, own, {.eps = 1});
                   }),
            all("x", "shape"));
}

/// Numbers that are equal as double, and parts of a start other than its masses.
TEST_F(RankErrors, SayThatSeedsAndStartsDiffer) {
  auto const all = [](std::string const& field) {
    return std::vector<std::string>(2, field + ": rank 1 has another value than rank 0; must be equal on all ranks");
  };
  EXPECT_EQ(errors(2,
                   [&](Context const& context, int rank) {
                     std::vector<std::int64_t> pairs(2);
                     solve_again(context).sample((std::uint64_t{1} << 60) + static_cast<std::uint64_t>(rank),
                                                 {pairs.data(), 1, 2, 2});
                   }),
            all("seed"));
  Problem const small = make_problem({.n = 6, .m = 5, .d = 2});
  ExactPlan const plan = solve_exact(Context::cpu(1), small.geometry(), {}, {});
  EXPECT_EQ(errors(2,
                   [&](Context const& context, int rank) {
                     ExactPlan start = plan;
                     if (rank == 1) std::swap(start.column_indices.front(), start.column_indices.back());
                     solve_exact(context, small.geometry(), {}, {}, {.start = &start});
                   }),
            all("start.column_indices"));
  EXPECT_EQ(errors(2,
                   [&](Context const& context, int rank) {
                     ExactPlan start = plan;
                     start.f[0] += rank;
                     solve_exact(context, small.geometry(), {}, {}, {.start = &start});
                   }),
            all("start.f"));
}

TEST(RankRows, NeedACommunicator) {
  std::vector<double> const mine(6);
  try {
    gather_rows(Communicator{}, std::span<double const>(mine), 2);
    FAIL();
  } catch (Error const& error) {
    EXPECT_STREQ(error.what(), "communicator: has no all_gather; must have one");
  }
}

/// MPI may be called on one thread alone.
TEST(Ranks, SendMessagesOnTheThreadOfTheCaller) {
  Problem const problem = make_problem({.n = kN, .m = kM, .d = 3});
  Meeting meeting(2);
  auto const outcomes = on_ranks(2, [&](int rank) {
    Communicator communicator = meeting.communicator(rank);
    auto const thread = std::this_thread::get_id();
    int elsewhere = 0;
    communicator.all_gather = [&, gather = communicator.all_gather](void const* mine, void* all,
                                                                    std::span<std::size_t const> bytes_of) {
      elsewhere += std::this_thread::get_id() != thread;
      gather(mine, all, bytes_of);
    };
    Context const context = Context::distributed(communicator, 1);
    for (Method const method : {Method::newton, Method::splr})
      solve(context, problem.geometry(), problem.a, problem.b,
            {.eps_relative = 0.02, .method = method, .iterations = 30});
    return elsewhere;
  });
  for (auto const& outcome : outcomes) EXPECT_EQ(outcome.result, 0) << outcome.error;
}

TEST(RankRows, ThatDifferInColumnsAreRefused) {
  Meeting meeting(2);
  auto const outcomes = on_ranks(2, [&](int rank) {
    std::vector<double> const mine(6);
    return gather_rows(meeting.communicator(rank), std::span<double const>(mine), 2 + rank).end;
  });
  for (auto const& outcome : outcomes)
    EXPECT_EQ(outcome.error, "rows: rank 1 has 3 columns of 8 bytes; must be as rank 0, 2 of 8, and at least one");
  auto const odd = on_ranks(2, [&](int rank) {
    std::vector<double> const mine(rank == 0 ? 4 : 5);
    return gather_rows(meeting.communicator(rank), std::span<double const>(mine), 2).end;
  });
  for (auto const& outcome : odd)
    EXPECT_EQ(outcome.error, "rows: rank 1 has 5 numbers; must be a multiple of 2, the columns");
}

TEST_F(RankErrors, OfAllRanksAreTheirOwn) {
  auto const messages = errors(2, [&](Context const& context, int) {
    solve(context, problem_.geometry(), {}, {}, {.eps = 1, .tolerance = -1});
  });
  EXPECT_EQ(messages, std::vector<std::string>(2, "tolerance: is -1; must be finite and >= 0"));
}

TEST_F(RankErrors, NameCallsThatDiffer) {
  auto const messages = errors(2, [&](Context const& context, int rank) {
    if (rank == 0) {
      solve_again(context);
    } else {
      std::vector<double> g = sized(kM), f = sized(kN);
      std::vector<std::int64_t> nearest(static_cast<std::size_t>(kN));
      c_transform(context, problem_.geometry(), g, f, {nearest.data(), kN, 1, 1});
    }
  });
  EXPECT_EQ(messages, std::vector<std::string>(2,
                                               "ranks: rank 0 is in solve (begin) and rank 1 in c_transform (begin); "
                                               "all ranks must make the same calls"));
}

TEST_F(RankErrors, ComeFromThreadsThatDiffer) {
  Meeting meeting(2);
  auto const outcomes =
      on_ranks(2, [&](int rank) { return Context::distributed(meeting.communicator(rank), rank + 1).device(); });
  for (auto const& outcome : outcomes)
    EXPECT_EQ(outcome.error, "threads: rank 1 has another value than rank 0; must be equal on all ranks");
}

TEST_F(RankErrors, OfTheCommunicatorEndTheContext) {
  Meeting meeting(2, 1);
  std::vector<std::string> messages;
  on_ranks(2, [&](int rank) {
    Context const context = Context::distributed(meeting.communicator(rank), 1);
    for (int k = 0; rank == 0 && k < 2; ++k) {
      try {
        solve_again(context);
      } catch (std::exception const& error) {
        messages.push_back(error.what());
      }
    }
    return 0;
  });
  EXPECT_EQ(messages,
            (std::vector<std::string>{"ranks: rank 1 did not come within 1 s (limit)",
                                      "ranks: a message of an earlier call, solve, failed; make a new context"}));
}

TEST_F(RankErrors, OfMemoryEndTheCallOnAll) {
  auto const messages = errors(3, [&](Context const& context, int rank) {
    solve_again(context, [&](Progress const& progress) {
      if (rank == 2 && progress.iteration > 5) throw std::bad_alloc();
      return true;
    });
  });
  EXPECT_EQ(messages, (std::vector<std::string>{"rank 2: solve: the host has too little memory",
                                                "rank 2: solve: the host has too little memory",
                                                "solve: the host has too little memory"}));
}

/// Whichever rank ends, the others learn of it at once.
TEST_F(RankErrors, NameARankThatHasEnded) {
  for (int const ended : {0, 1, 2}) {
    std::vector<Communicator> communicators = local_communicators(3);
    auto const outcomes = on_ranks(3, [&](int rank) {
      Context const context = Context::distributed(std::exchange(communicators[static_cast<std::size_t>(rank)], {}), 1);
      if (rank != ended) solve_again(context);
      return 0;
    });
    for (int rank = 0; rank < 3; ++rank) {
      std::string const& error = outcomes[static_cast<std::size_t>(rank)].error;
      EXPECT_EQ(error, rank == ended ? "" : "ranks: rank " + std::to_string(ended) + " has ended");
    }
  }
}

TEST_F(RankErrors, OfLimitsNameTheValue) {
  for (double const limit : {0.0, -1.0, 2e6}) {
    Communicator communicator = std::move(local_communicators(1)[0]);
    communicator.limit = limit;
    auto const outcomes = on_ranks(1, [&](int) { return Context::distributed(communicator, 1).device(); });
    EXPECT_TRUE(outcomes[0].error.starts_with("communicator: has limit")) << outcomes[0].error;
  }
}

TEST_F(RankErrors, AnswersAreThoseOfRankZero) {
  for (int const stops : {0, 1}) {
    errors(2, [&](Context const& context, int rank) {
      Plan const plan = solve_again(context, [&](Progress const&) { return rank != stops; });
      EXPECT_EQ(plan.status(), stops == 0 ? Status::stopped : Status::converged) << "rank " << rank;
    });
  }
}

}  // namespace
}  // namespace monge::oracle
