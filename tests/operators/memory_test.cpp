// What calls ask of the heap: nothing in sweeps and in products like earlier ones, and no more than O(n + m) in a
// solve. Every allocation of the program is counted, so this is an executable of its own.
#include <sys/resource.h>
#include <unistd.h>

#include <cstddef>
#include <fstream>
#include <vector>

#include "core/numbers.hpp"
#include "cpu/runtime/memory.hpp"
#include "edges/counted_malloc.hpp"
#include "operators/cases.hpp"

namespace monge::oracle {
namespace {

class Memory : public OperatorTest {};
MONGE_FOR_EACH_OF(Memory,
                  with_all_costs({{DeviceType::cpu, Precision::float32}, {DeviceType::cpu, Precision::float64}}));

Recipe const kLarge{600, 700, 40, Weights::with_zeros, Place::origin, 0.05};

TEST_P(Memory, counts) {
  std::int64_t const before = malloc_calls;
  auto const some = make_operator(make_problem({5, 6, 2}));
  EXPECT_GT(malloc_calls, before);
}

TEST_P(Memory, sweeps_allocate_nothing) {
  Case const test = make_case(kLarge);
  for (double const cache_bytes : {0.0, 1e9}) {
    for (Sweep kind : {Sweep{}, Sweep{0, true}, Sweep{0, false, 1.5}}) {
      kind.eps = test.eps;
      auto const entropic = make_operator(test, cache_bytes);
      entropic->sweep(kind, 1);
      std::int64_t const before = malloc_calls;
      entropic->sweep(kind, 5);
      EXPECT_EQ(malloc_calls, before);
    }
  }
}

TEST_P(Memory, products_like_earlier_ones_allocate_nothing) {
  bool const has_points = GetParam().costs == Costs::points;
  Case const test = make_case(kLarge);
  std::int64_t const n = 600, m = 700, k = 5;
  Random random(1);
  for (double const cache_bytes : {0.0, 1e9}) {
    auto const plan = make_plan(test, cache_bytes);
    Stored const l(gaussian_points(n, k, random), n, k), r(gaussian_points(m, k, random), m, k);
    Stored const v(gaussian_points(m, 70, random), m, 70), u(gaussian_points(m, 3, random), m, 3);
    Stored wide(std::vector<double>(n * 70), n, 70), narrow_out(std::vector<double>(n * 3), n, 3);
    Stored points(std::vector<double>(n * 40), n, 40);
    auto const w = plan->vectors().make(Side::rows), x = plan->vectors().make(Side::rows);
    auto const in = plan->vectors().make(Side::columns), out = plan->vectors().make(Side::columns);
    auto const all = [&] {
      plan->multiply(Side::rows, Scaling::plan, v.view(), wide.mutable_view());
      plan->multiply(Side::rows, Scaling::shares, u.view(), narrow_out.mutable_view());
      if (has_points) plan->points().multiply_points(Side::rows, Scaling::shares, points.mutable_view());
      plan->multiply_hadamard(Side::rows, l.view(), r.view(), v.view(), wide.mutable_view());
      plan->multiply(Side::rows, *in, *x);
      plan->multiply(Side::columns, *w, *out);
      plan->multiply_gram(Side::columns, *w, *in, *out);
      plan->multiply_gram(Side::rows, *in, *w, *x);
    };
    all();
    std::int64_t const before = malloc_calls;
    all();
    EXPECT_EQ(malloc_calls, before);
  }
}

/// Bytes that a solve, products with its plan and entries of it ask for, in all.
std::int64_t bytes_of_a_solve(Context const& context, Precision precision, Problem const& problem) {
  std::int64_t const n = problem.n();
  SolveOptions const options{
      .eps = 1, .tolerance = 0, .iterations = 3, .annealing = 1, .precision = precision, .cache_bytes = 0};
  std::vector<double> out(n), marginal(n);
  std::int64_t const before = malloc_bytes;
  Plan const plan = solve(context, problem.geometry(), problem.a, problem.b, options);
  plan.apply(MatrixView(problem.a.data(), n, 1), MutableMatrixView(out.data(), n, 1));
  plan.apply_gram(problem.a, problem.b, out);
  plan.marginals(out, marginal);
  std::vector<std::int64_t> indices(3 * n + 1);
  std::vector<double> values(3 * n);
  plan.top_k({indices.data(), n, 3, 3, {}}, MutableMatrixView(values.data(), n, 3));
  plan.count_above(0, {indices.data(), n + 1, 1, 1, {}});
  plan.sample(1, {indices.data(), n, 2, 2, {}});
  return malloc_bytes - before;
}

// The points are doubled. Quadratic memory would grow four times. Linear memory may grow three times, because the
// smaller solve takes more of its blocks from the pool of free blocks.
TEST_P(Memory, of_a_solve_is_linear_in_the_number_of_points) {
  Context const context = make_context(DeviceType::cpu, 1);
  for (std::uint64_t const seed : {1, 2}) {  // A matrix as it is, and transposed.
    // The dimension is one where scores would be kept if cache_bytes allowed it.
    auto const bytes_of = [&](std::int64_t n) {
      Problem const problem =
          make_problem({n, n, 40, Weights::with_zeros, Place::origin, 0.05, DataType::float32, 0, 1, 1, seed});
      cpu::release_free_blocks();
      return static_cast<double>(bytes_of_a_solve(context, precision(), problem));
    };
    bytes_of(1000);
    double const small = bytes_of(1000), large = bytes_of(2000);
    EXPECT_LT(large, 3.2 * small);
    EXPECT_LT(large, 0.5 * 2000 * 2000 * sizeof(float));
  }
}

TEST_P(Memory, of_derivatives_by_points_is_linear_in_their_number) {
  if (GetParam().costs != Costs::points) return;
  Context const context = make_context(DeviceType::cpu, 1);
  auto const bytes_of = [&](std::int64_t n, Costs costs) {
    Problem const problem = oracle::make_problem({.n = n, .m = n, .d = 3, .costs = costs});
    Plan const plan = solve(context, problem.geometry(), problem.a, problem.b,
                            {.eps = 1, .tolerance = 0, .iterations = 3, .precision = precision(), .cache_bytes = 0});
    std::vector<double> x(n * 3), y(n * 3);
    PointViews const v{problem.x.view(), problem.y.view()};
    MutablePointViews const out{{x.data(), n, 3}, {y.data(), n, 3}};
    cpu::release_free_blocks();
    std::int64_t const before = malloc_bytes;
    plan.gradients({.x = out.x, .y = out.y}, {.error_iterations = 0});
    plan.hessian_product(v, out, {.iterations = 2});
    return static_cast<double>(malloc_bytes - before);
  };
  for (Costs const costs : {Costs::points, Costs::cosine, Costs::euclidean, Costs::p_norm}) {
    double const small = bytes_of(1000, costs), large = bytes_of(2000, costs);
    EXPECT_LE(large, 2.2 * small);
    EXPECT_LT(large, 0.5 * 2000 * 2000 * sizeof(float));
  }
}

// The kept scores are most of the memory of this solve.
TEST_P(Memory, of_kept_scores_is_taken_again) {
  Context const context = make_context(DeviceType::cpu, 1);
  Problem const problem = oracle::make_problem({1000, 1000, 40});
  auto const bytes_of = [&] {
    std::int64_t const before = malloc_bytes;
    solve(context, problem.geometry(), problem.a, problem.b,
          {.eps = 10, .tolerance = 0, .iterations = 3, .annealing = 1, .precision = precision()});
    return malloc_bytes - before;
  };
  cpu::release_free_blocks();
  std::int64_t const first = bytes_of(), again = bytes_of(), scores = 1000 * 1000 * (is_float64() ? 8 : 4);
  EXPECT_GT(first, scores);
  EXPECT_LT(again, first - scores);
}

#if !defined(__SANITIZE_ADDRESS__) && defined(__linux__)
// Sanitizers reserve more addresses than any limit allows.
TEST(FreeBlocks, go_where_no_memory_is_left) {
  std::int64_t const mebibyte = 1 << 20;
  cpu::release_free_blocks();
  std::int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_AS, &limit), 0);
  cpu::aligned_array<double>(25 * mebibyte);  // 200 MiB, which are kept.
  rlimit const low{static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE) + 350 * mebibyte), limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_AS, &low), 0);
  EXPECT_NO_THROW(cpu::aligned_array<double>(40 * mebibyte));
  cpu::aligned_array<double>(25 * mebibyte);
  EXPECT_NO_THROW((std::vector<double, cpu::CountedAllocator<double>>(to_size(40 * mebibyte))));
  ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
}
#endif

}  // namespace
}  // namespace monge::oracle
