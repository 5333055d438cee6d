// Ranks with a CUDA device each. On one device the ranks gather by way of host memory; on several by NCCL.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cuda/backend.hpp"
#include "cuda/runtime/device_ranks.hpp"
#include "cuda/runtime/runtime.hpp"
#include "oracle/backend_test.hpp"
#include "ranks/meeting.hpp"

namespace monge::oracle {
namespace {

using Numbers = std::vector<double>;

std::vector<double> sized(std::int64_t size) {
  return std::vector<double>(static_cast<std::size_t>(size));
}

/// What a rank has, as vectors with a scale each, beyond which a difference of two runs is measured.
struct Found {
  std::vector<std::pair<std::string, Numbers>> parts;
  Report report{};
  void add(std::string name, Numbers const& numbers) { parts.emplace_back(std::move(name), numbers); }
};

/// Results of the passes that ranks share, and of some that they do not.
Found found(Plan const& plan, Problem const& problem, bool derivatives) {
  std::int64_t const n = problem.n(), m = problem.m(), d = problem.d();
  Found all;
  all.report = plan.report();
  all.add("f", plan.f());
  all.add("g", plan.g());
  Numbers rows = sized(n), columns = sized(m);
  plan.marginals(rows, columns);
  all.add("row marginal", rows);
  all.add("column marginal", columns);
  Random random(3);
  Numbers const v = gaussian_points(m, 2, random), u = gaussian_points(n, 2, random);
  std::vector<float> strided(static_cast<std::size_t>(n * 5));
  plan.apply({v.data(), m, 2}, {strided.data(), n, 2, 5});
  all.add("apply", Numbers(strided.begin(), strided.end()));
  Numbers out = sized(2 * m);
  plan.apply_transpose({u.data(), n, 2}, {out.data(), m, 2});
  all.add("apply_transpose", out);
  if (std::max(n, m) < 10000) {
    std::int64_t const wide = 70;  // Through entries in memory.
    Numbers const w = gaussian_points(m, wide, random);
    Numbers products = sized(n * (wide + 1));
    plan.apply({w.data(), m, wide}, {products.data(), n, wide, wide + 1});
    all.add("wide apply", products);
  }
  plan.apply_hadamard_transpose({u.data(), n, 2}, {v.data(), m, 2}, {u.data(), n, 1, 2}, {columns.data(), m, 1});
  all.add("hadamard", columns);
  plan.apply_gram(VectorView(u.data(), n, 2), VectorView(v.data(), m, 2), columns);
  all.add("gram", columns);
  all.add("transport_cost", {plan.transport_cost()});
  if (!derivatives) return all;
  Numbers x = sized(n * d), y = sized(m * d);
  plan.gradients({{x.data(), n, d}, {y.data(), m, d}, rows, columns}, {.error_iterations = 2});
  all.add("gradient x", x);
  all.add("gradient y", y);
  Numbers const direction = gaussian_points(n, d, random);
  plan.hessian_product({.x = {direction.data(), n, d}}, {.x = {x.data(), n, d}}, {.tolerance = 0, .iterations = 3});
  all.add("hessian", x);
  return all;
}

void expect_equal_bits(Found const& actual, Found const& expected, std::string const& what) {
  ASSERT_EQ(actual.parts.size(), expected.parts.size()) << what;
  EXPECT_EQ(actual.report.iterations, expected.report.iterations) << what;
  EXPECT_EQ(actual.report.dual, expected.report.dual) << what;
  for (std::size_t p = 0; p < actual.parts.size(); ++p) {
    auto const& [name, numbers] = actual.parts[p];
    Numbers const& others = expected.parts[p].second;
    ASSERT_EQ(numbers.size(), others.size()) << what << ": " << name;
    for (std::size_t k = 0; k < numbers.size(); ++k) {
      if (std::isnan(numbers[k]) && std::isnan(others[k])) continue;
      ASSERT_EQ(numbers[k], others[k]) << what << ": " << name << ", number " << k;
    }
  }
}

/// Within `tolerance` of the largest number of each part.
void expect_near(Found const& actual, Found const& expected, double tolerance) {
  ASSERT_EQ(actual.parts.size(), expected.parts.size());
  for (std::size_t p = 0; p < actual.parts.size(); ++p) {
    auto const& [name, numbers] = actual.parts[p];
    Numbers const& others = expected.parts[p].second;
    ASSERT_EQ(numbers.size(), others.size()) << name;
    double largest = 0, difference = 0;
    for (std::size_t k = 0; k < numbers.size(); ++k) {
      ASSERT_EQ(std::isnan(numbers[k]), std::isnan(others[k])) << name;
      if (std::isnan(numbers[k])) continue;
      largest = std::max(largest, std::abs(others[k]));
      difference = std::max(difference, std::abs(numbers[k] - others[k]));
    }
    EXPECT_LE(difference, tolerance * largest) << name;
  }
}

/// work(context) of each rank. Rank r has the device r mod `devices`. The ranks exchange at least `messages`.
template <class Work>
auto results(int ranks, int devices, Work const& work, int messages = 0) {
  Meeting meeting(ranks, 60);
  auto const outcomes = on_ranks(ranks, [&](int rank) {
    Context const context = Context::distributed(meeting.communicator(rank), CudaOptions{.index = rank % devices});
    cuda::DeviceRanks const* const joined = cuda::runtime_of(context).ranks();
    EXPECT_EQ(joined->size(), ranks);
    EXPECT_EQ(joined->enqueues(), devices == ranks) << "NCCL joins devices, and only devices.";
    return work(context);
  });
  std::vector<decltype(work(std::declval<Context>()))> found;
  for (auto const& outcome : outcomes) {
    EXPECT_EQ(outcome.error, "");
    if (outcome.result) found.push_back(*outcome.result);
  }
  EXPECT_GE(meeting.messages(), messages);
  return found;
}

/// Numbers of ranks of the tests: 2, 3, and one for each device of a larger machine.
std::vector<int> numbers_of_ranks() {
  std::vector<int> numbers{2, 3};
  if (cuda::device_count() > 3) numbers.push_back(cuda::device_count());
  return numbers;
}

struct CudaRanksCase {
  std::string name;
  Recipe recipe;
  SolveOptions options;
  double tolerance;  // Beside one rank; 0: only the values agree.
  bool derivatives = false;
};
std::ostream& operator<<(std::ostream& out, CudaRanksCase const& of) {
  return out << of.name;
}

/// Passes long enough to be shared (Costs::sharing_ranks()). A few sweeps from the same start differ by the rounding of
/// sums: 2^-22 of eps in float32 for a half-step, and so of the entries.
std::vector<CudaRanksCase> cuda_ranks_cases() {
  double const in_float = 3e-5, in_double = 1e-11;
  auto const of = [](Precision precision, Schedule schedule = Schedule::alternating) {
    return SolveOptions{
        .eps_relative = 0.05, .tolerance = 0, .iterations = 12, .schedule = schedule, .precision = precision};
  };
  auto const method = [](Method method, Precision precision) {
    return SolveOptions{
        .eps_relative = 0.1, .method = method, .tolerance = 1e-3, .iterations = 300, .precision = precision};
  };
  Recipe const points{.n = 9001, .m = 8200, .d = 3, .weights = Weights::with_zeros};
  Recipe const tensor{.n = 9001, .m = 8200, .d = 40};
  Recipe const fewer{.n = 5001, .m = 4700, .d = 3, .weights = Weights::with_zeros};
  Recipe const matrix{.n = 6001, .m = 5900, .d = 3, .storage = DataType::float32, .costs = Costs::random};
  Recipe transposed = matrix;
  transposed.seed = 2;
  Recipe const few_rows{.n = 2, .m = 3000001, .d = 1}, few_columns{.n = 3000001, .m = 2, .d = 1};
  SolveOptions unbalanced = of(Precision::float32);
  unbalanced.penalty_a = unbalanced.penalty_b = 2;
  SolveOptions many = of(Precision::float32);
  many.iterations = 150;  // With graphs, where the ranks gather by NCCL.
  Recipe p_norm = fewer;
  p_norm.costs = Costs::p_norm;
  return {
      {"cuda_points", points, of(Precision::float32), in_float, true},
      {"cuda_tensor_cores", tensor, of(Precision::float32), in_float, true},
      {"cuda_tf32", tensor, of(Precision::tf32), 3e-3},
      {"cuda_symmetric", points, of(Precision::float32, Schedule::symmetric), in_float},
      {"cuda_overrelaxed", tensor, of(Precision::float32, Schedule::overrelaxed), 3 * in_float},
      {"cuda_unbalanced", points, unbalanced, in_float},
      {"cuda_float64", fewer, of(Precision::float64), in_double, true},
      {"cuda_p_norm", p_norm, of(Precision::float64, Schedule::symmetric), in_double},
      {"cuda_matrix", matrix, of(Precision::float32), in_float},
      {"cuda_matrix_symmetric", matrix, of(Precision::float32, Schedule::symmetric), in_float},
      {"cuda_transposed", transposed, of(Precision::float32, Schedule::symmetric), in_float},
      {"cuda_transposed_alternating", transposed, of(Precision::float32), in_float},
      {"cuda_matrix_float64", matrix, of(Precision::float64), in_double},
      {"cuda_few_rows", few_rows, of(Precision::float32), in_float},
      {"cuda_few_columns", few_columns, of(Precision::float32), in_float},
      {"cuda_many_sweeps", tensor, many, 0},
      {"cuda_automatic", points, method(Method::automatic, Precision::automatic), 0},
      {"cuda_newton", fewer, method(Method::newton, Precision::float64), 0},
      {"cuda_splr", fewer, method(Method::splr, Precision::float64), 0},
  };
}

class CudaRanks : public testing::TestWithParam<CudaRanksCase> {
 protected:
  void SetUp() override { require_device(DeviceType::cuda); }
  Found solved(Context const& context, Problem const& problem) const {
    return found(solve(context, problem.geometry(), problem.a, problem.b, GetParam().options), problem,
                 GetParam().derivatives);
  }
};
INSTANTIATE_TEST_SUITE_P(, CudaRanks, testing::ValuesIn(cuda_ranks_cases()),
                         [](testing::TestParamInfo<CudaRanksCase> const& info) { return info.param.name; });

TEST_P(CudaRanks, have_equal_bits) {
  Problem const problem = make_problem(GetParam().recipe);
  Found const alone = solved(Context::cuda(), problem);
  auto const work = [&](Context const& context) { return solved(context, problem); };
  for (int const ranks : numbers_of_ranks()) {
    // By way of host memory a half-step takes two messages.
    std::vector<Found> const shared = results(ranks, 1, work, 24);
    ASSERT_EQ(shared.size(), static_cast<std::size_t>(ranks));
    for (Found const& other : shared) expect_equal_bits(other, shared[0], std::to_string(ranks) + " ranks");
    EXPECT_EQ(shared[0].report.ranks, ranks);
    if (GetParam().tolerance > 0) {
      expect_near(shared[0], alone, GetParam().tolerance);
    } else {
      // Each dual value is within its gap of the optimum.
      EXPECT_NEAR(shared[0].report.dual, alone.report.dual,
                  std::abs(shared[0].report.gap) + std::abs(alone.report.gap));
    }
    if (cuda::device_count() < ranks) continue;
    for (Found const& other : results(ranks, ranks, work)) expect_equal_bits(other, shared[0], "NCCL");
  }
}

class CudaRanksTogether : public testing::Test {
 protected:
  void SetUp() override { require_device(DeviceType::cuda); }
};

/// Problems that share their passes, recorded ones and resident ones. A problem of the batch has the bits that it has
/// alone with as many ranks; those that are not shared have the bits of one rank.
TEST_F(CudaRanksTogether, cuda_batches_are_spread) {
  std::vector<Problem> problems;
  for (std::int64_t const n : {1, 40, 9001, 1000, 1001, 1002, 3000, 3001, 41, 42})
    problems.push_back(
        make_problem({.n = n, .m = n > 5000 ? 8200 : 1000, .d = 20, .seed = static_cast<std::uint64_t>(n)}));
  SolveOptions const options{.eps_relative = 0.05, .tolerance = 1e-4, .iterations = 100};
  auto const work = [&](Context const& context) {
    std::vector<BatchProblem> batch;
    for (Problem const& problem : problems) batch.push_back({problem.geometry(), problem.a, problem.b});
    std::vector<Numbers> all;
    for (Plan const& plan : solve_batch(context, batch, options)) {
      all.push_back(plan.f());
      all.back().push_back(plan.report().dual);
      all.back().push_back(plan.report().iterations);
    }
    return all;
  };
  std::vector<Numbers> const alone = work(Context::cuda());
  for (int const ranks : numbers_of_ranks()) {
    for (int const devices : {1, ranks}) {
      if (cuda::device_count() < devices) continue;
      for (std::vector<Numbers> const& shared : results(ranks, devices, work)) {
        for (std::size_t k = 0; k < shared.size(); ++k) {
          if (problems[k].n() > 5000) continue;
          EXPECT_EQ(shared[k], alone[k]) << "problem " << k << ", " << ranks << " ranks";
        }
      }
    }
  }
}

TEST_F(CudaRanksTogether, cuda_self_problems_share_passes) {
  Problem const problem = make_problem({.n = 9001, .m = 8200, .d = 3});
  auto const work = [&](Context const& context) {
    Divergence const divergence =
        sinkhorn_divergence(context, problem.clouds(), problem.a, problem.b, {.eps_relative = 0.1, .tolerance = 1e-4});
    Numbers all{divergence.value, divergence.gap};
    Numbers const f = divergence.aa.f();
    all.insert(all.end(), f.begin(), f.end());
    return all;
  };
  Numbers const alone = work(Context::cuda());
  std::vector<Numbers> const shared = results(3, 1, work);
  for (Numbers const& other : shared) EXPECT_EQ(other, shared[0]);
  EXPECT_NEAR(shared[0][0], alone[0], std::abs(shared[0][1]) + std::abs(alone[1]));
}

/// Each rank reads some of the lines: an invalid cost in the part of any rank, and points without partners.
TEST_F(CudaRanksTogether, cuda_surveys_of_matrices_are_shared) {
  std::int64_t const rows = 6001, columns = 5900;
  std::vector<float> costs(static_cast<std::size_t>(rows * columns), 1);
  auto const at = [&](std::int64_t i, std::int64_t j) -> float& {
    return costs[static_cast<std::size_t>(i * columns + j)];
  };
  float const inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  // The least cost, in the part of the last rank, is the gauge of the whole matrix.
  at(6000, 3) = -7;
  auto const message_of = [&](bool transposed) {
    CostMatrix const matrix{{costs.data(), rows, columns}, transposed};
    auto const work = [&](Context const& context) {
      try {
        double const dual = solve(context, matrix, {}, {}, {.eps = 0.5, .tolerance = 1e-3}).report().dual;
        return std::to_string(std::lround(1000 * dual));
      } catch (std::exception const& error) {
        return std::string(error.what());
      }
    };
    std::string const alone = work(Context::cuda());
    for (int const ranks : numbers_of_ranks()) {
      for (int const devices : {1, ranks}) {
        if (cuda::device_count() < devices) continue;
        for (std::string const& shared : results(ranks, devices, work)) EXPECT_EQ(shared, alone);
      }
    }
    return alone;
  };
  for (bool const transposed : {false, true}) EXPECT_EQ(message_of(transposed).find("cost"), std::string::npos);
  for (std::int64_t j = 0; j < columns; ++j) at(5000, j) = inf;
  for (bool const transposed : {false, true}) EXPECT_NE(message_of(transposed).find("5000"), std::string::npos);
  for (std::int64_t i = 0; i < rows; ++i) at(i, 17) = inf;
  EXPECT_NE(message_of(false).find("row 5000"), std::string::npos);
  EXPECT_NE(message_of(true).find("row 17"), std::string::npos);
  at(5999, 5800) = nan;
  at(3100, 20) = nan;
  for (bool const transposed : {false, true}) EXPECT_NE(message_of(transposed).find("3100"), std::string::npos);
}

TEST_F(CudaRanksTogether, cuda_errors_of_one_rank_end_the_call_on_all) {
  Problem const problem = make_problem({.n = 9001, .m = 8200, .d = 3});
  for (int const devices : {1, 2}) {
    if (cuda::device_count() < devices) continue;
    Meeting meeting(2, 60);
    auto const outcomes = on_ranks(2, [&](int rank) {
      Context const context = Context::distributed(meeting.communicator(rank), CudaOptions{.index = rank % devices});
      std::string message;
      try {
        solve(context, problem.geometry(), {}, {}, {.eps_relative = 0.05, .progress = [&](Progress const& progress) {
                                                      if (rank == 1 && progress.iteration > 5)
                                                        throw std::runtime_error("the disk is full");
                                                      return true;
                                                    }});
      } catch (std::exception const& error) {
        message = error.what();
      }
      EXPECT_EQ(solve(context, problem.geometry(), {}, {}, {.eps_relative = 0.5, .tolerance = 1e-3}).status(),
                Status::converged);
      return message;
    });
    EXPECT_EQ(outcomes[0].result.value_or(outcomes[0].error), "rank 1: the disk is full");
    EXPECT_EQ(outcomes[1].result.value_or(outcomes[1].error), "the disk is full");
  }
}

/// Rank 1 does not come to the second launch of a graph. Rank 0 has an error within the limit, and no work that waits.
/// A graph that is launched later has the same error: the communicator of its gathers is gone.
TEST_F(CudaRanksTogether, cuda_gathers_end_at_the_limit) {
  if (cuda::device_count() < 2) GTEST_SKIP() << "needs two CUDA devices";
  Problem const problem = make_problem({.n = 30, .m = 20, .d = 3});
  std::vector<Communicator> communicators = local_communicators(2, 2);
  std::string later;
  auto const outcomes = on_ranks(2, [&](int rank) {
    Context const context = Context::distributed(std::exchange(communicators[static_cast<std::size_t>(rank)], {}),
                                                 CudaOptions{.index = rank});
    cuda::Runtime const& runtime = cuda::runtime_of(context);
    auto const work = [&] {
      cuda::DeviceGuard const guard(rank);
      cuda::PinnedArray<double> const memory(2);
      cuda::Graph const graph(runtime, [&](cudaStream_t stream) { runtime.ranks()->gather(memory.data(), 8, stream); });
      memory[rank] = rank + 5;
      runtime.ranks()->launch(graph, runtime.stream());
      runtime.wait();
      EXPECT_EQ(memory[1 - rank], 6 - rank);
      if (rank == 1) return std::this_thread::sleep_for(std::chrono::seconds(4));
      runtime.ranks()->launch(graph, runtime.stream());
      try {
        runtime.wait();
      } catch (Error const& error) {
        std::string message;
        try {
          runtime.ranks()->launch(graph, runtime.stream());
        } catch (Error const& other) {
          message = other.what();
        }
        EXPECT_EQ(message, error.what());
        throw;
      }
    };
    try {
      ranks_of(context)->run("test", {}, work);
    } catch (std::exception const& error) {
      EXPECT_EQ(cudaStreamQuery(runtime.stream()), cudaSuccess);
      if (rank == 0) {
        try {
          solve(context, problem.geometry(), {}, {}, {.eps = 1});
        } catch (std::exception const& other) {
          later = other.what();
        }
      }
      throw;
    }
    return 0;
  });
  EXPECT_EQ(outcomes[0].error, "ranks: not all of the 2 ranks came within 2 s (limit); rank 0 waits no longer");
  EXPECT_EQ(later, "ranks: a message of an earlier call, test, failed; make a new context");
  EXPECT_EQ(outcomes[1].error, "ranks: rank 0 has ended");
}

TEST_F(CudaRanksTogether, cuda_and_cpu_are_named_where_ranks_differ) {
  Meeting meeting(2);
  auto const outcomes = on_ranks(2, [&](int rank) {
    return rank == 0 ? Context::distributed(meeting.communicator(rank), 1).device()
                     : Context::distributed(meeting.communicator(rank), CudaOptions{}).device();
  });
  for (auto const& outcome : outcomes)
    EXPECT_EQ(outcome.error, "device: rank 1 has another value than rank 0; must be equal on all ranks");
}

}  // namespace
}  // namespace monge::oracle
