// The caller's allocator: it fails at any of its calls, and destroys plans of the same context within them.
#include <deque>
#include <functional>
#include <utility>
#include <vector>

#include "cuda/backend.hpp"
#include "cuda/entropic/entropic_operator.hpp"
#include "cuda/outputs.hpp"
#include "oracle/backend_test.hpp"
#include "oracle/device_memory.hpp"

namespace monge::oracle {
namespace {

using Values = std::vector<double>;

void append(Values& values, std::span<double const> more) {
  values.insert(values.end(), more.begin(), more.end());
}
void append(Values& values, std::vector<std::int64_t> const& more) {
  for (std::int64_t const index : more) values.push_back(static_cast<double>(index));
}
Values values_of(Plan const& plan) {
  Values result = plan.f();
  append(result, plan.g());
  result.push_back(plan.report().primal);
  return result;
}

/// Most arrays of so many points are too large for pieces of memory that arrays share, so an allocation is a call.
Problem const& large_problem() {
  static Problem const problem = make_problem({40000, 5, 3});
  return problem;
}
Problem const& small_problem() {
  static Problem const problem = make_problem({600, 500, 3});
  return problem;
}

Plan solved(Context const& context, Problem const& problem, SolveOptions const& options) {
  return solve(context, problem.geometry(), problem.a, problem.b, options);
}
Plan solved(Context const& context) {
  return solved(context, large_problem(), {.eps = 0.5, .tolerance = 1e-3});
}

/// Calls run() with an allocator that fails from its first, second, ... call on, until it does not fail; it skips a few
/// of many calls. After each failure `check` is called, with an allocator that works.
template <class Run, class Check>
void fail_at_each_call(Pool& pool, Run const& run, Check const& check) {
  int const enough = pool.limit;
  for (int k = 0;; k += 1 + k / 16) {
    SCOPED_TRACE(testing::Message() << "call " << k << " of the allocator fails");
    ASSERT_LT(k, 1000);
    pool.limit = pool.allocations + k;
    bool failed = false;
    try {
      run();
    } catch (Error const& error) {
      failed = true;
      EXPECT_EQ(error.code(), ErrorCode::out_of_memory) << error.what();
    }
    pool.limit = enough;
    if (!failed) {
      EXPECT_GT(k, 0) << "no memory was asked for";
      return;
    }
    check();
    if (testing::Test::HasFailure()) return;
  }
}

/// A function that makes all of its objects anew.
struct Call {
  char const* name;
  Values (*run)(Context const&);
};
void PrintTo(Call const& call, std::ostream* out) {
  *out << "cuda_" << call.name;
}

class OutOfMemory : public testing::TestWithParam<Call> {
 protected:
  void SetUp() override { require_device(DeviceType::cuda); }
};

Values regularized_values(Context const& context, RegularizedMethod method) {
  Problem const& problem = small_problem();
  RegularizedPlan const plan = solve_regularized(context, problem.geometry(), problem.a, problem.b, {.quadratic = 10},
                                                 {.method = method, .iterations = 100});
  Values result(length(plan.rows(), plan.columns()));
  plan.dense({result.data(), plan.rows(), plan.columns()});
  Values out(length(plan.rows(), 9)), v(length(plan.columns(), 9), 0.5);
  plan.apply({v.data(), plan.columns(), 9}, {out.data(), plan.rows(), 9});
  append(result, out);
  return result;
}

INSTANTIATE_TEST_SUITE_P(
    , OutOfMemory,
    testing::Values(
        Call{"solve", [](Context const& context) { return values_of(solved(context)); }},
        Call{"solve_float64",
             [](Context const& context) {
               return values_of(
                   solved(context, large_problem(), {.eps = 0.5, .tolerance = 1e-3, .precision = Precision::float64}));
             }},
        Call{"solve_unbalanced",
             [](Context const& context) {
               return values_of(solved(context, large_problem(), {.eps = 0.5, .tolerance = 1e-3, .penalty_a = 1}));
             }},
        Call{"solve_of_a_matrix",
             [](Context const& context) {
               static Problem const problem = make_problem({.n = 40000, .m = 5, .d = 3, .costs = Costs::distances});
               return values_of(solved(context, problem, {.eps = 0.5, .tolerance = 1e-3}));
             }},
        Call{"solve_at_a_share_of_the_mean_distance",
             [](Context const& context) {
               static Problem const problem = make_problem({.n = 40000, .m = 5, .d = 3, .costs = Costs::euclidean});
               return values_of(solved(context, problem, {.eps_relative = 0.1, .tolerance = 1e-3}));
             }},
        Call{"newton",
             [](Context const& context) {
               return values_of(solved(context, small_problem(), {.eps = 0.5, .method = Method::newton}));
             }},
        Call{"splr",
             [](Context const& context) {
               return values_of(solved(context, small_problem(), {.eps = 0.5, .method = Method::splr}));
             }},
        Call{"solve_batch",
             [](Context const& context) {
               std::vector<BatchProblem> problems;
               for (Problem const* problem : {&small_problem(), &large_problem(), &small_problem()})
                 problems.push_back({.geometry = problem->geometry(), .a = problem->a, .b = problem->b});
               Values result;
               for (Plan const& plan : solve_batch(context, problems, {.eps = 0.5, .tolerance = 1e-3}))
                 append(result, values_of(plan));
               return result;
             }},
        Call{"newton_batch",
             [](Context const& context) {
               std::vector<BatchProblem> const problems(3, {.geometry = small_problem().geometry()});
               Values result;
               for (Plan const& plan : solve_batch(context, problems, {.eps = 0.5, .method = Method::newton}))
                 append(result, values_of(plan));
               return result;
             }},
        Call{"sinkhorn_divergence",
             [](Context const& context) {
               Problem const& problem = small_problem();
               Divergence const divergence =
                   sinkhorn_divergence(context, problem.clouds(), problem.a, problem.b, {.eps = 0.5});
               Values by_x(length(problem.n(), problem.d()));
               divergence.gradients({.x = {by_x.data(), problem.n(), problem.d()}});
               by_x.push_back(divergence.value);
               return by_x;
             }},
        Call{"solve_exact",
             [](Context const& context) {
               ExactPlan const plan =
                   solve_exact(context, small_problem().geometry(), small_problem().a, small_problem().b);
               Values result = plan.f;
               append(result, plan.g);
               return result;
             }},
        Call{"c_transform",
             [](Context const& context) {
               Values const g(5, 0.25);
               Values f(40000);
               std::vector<std::int64_t> argmin(40000);
               c_transform(context, large_problem().geometry(), g, f, {argmin.data(), 40000, 1, 1, {}});
               append(f, argmin);
               return f;
             }},
        Call{"linear_sum_assignment",
             [](Context const& context) {
               constexpr std::int64_t kCount = 64, kSize = 40;
               std::vector<float> costs(length(kCount * kSize, kSize));
               for (std::size_t k = 0; k < costs.size(); ++k) costs[k] = static_cast<float>(k * k % 1009);
               std::vector<std::int64_t> rows(kCount * kSize), columns(kCount * kSize), status(kCount);
               linear_sum_assignment(context, BatchView(costs.data(), kCount, kSize, kSize),
                                     {{rows.data(), kCount, kSize, kSize, {}},
                                      {columns.data(), kCount, kSize, kSize, {}},
                                      {status.data(), kCount, 1, 1, {}}});
               Values result;
               append(result, columns);
               append(result, status);
               return result;
             }},
        Call{"project",
             [](Context const& context) {
               std::vector<float> logits(2000 * 64), out(logits.size());
               for (std::size_t k = 0; k < logits.size(); ++k) logits[k] = static_cast<float>(k % 7);
               project(context, {logits.data(), 2000, 8, 8}, {out.data(), 2000, 8, 8}, {});
               return Values(out.begin(), out.end());
             }},
        Call{"splitting",
             [](Context const& context) { return regularized_values(context, RegularizedMethod::splitting); }},
        Call{"quadratic_newton",
             [](Context const& context) { return regularized_values(context, RegularizedMethod::newton); }}),
    testing::PrintToStringParamName());

TEST_P(OutOfMemory, loses_nothing_and_the_next_call_is_right) {
  Pool pool;
  {
    Context const context = Context::cuda({.allocator = pool.allocator()});
    Values const expected = GetParam().run(context);
    std::size_t const kept = pool.bytes;
    fail_at_each_call(
        pool, [&] { GetParam().run(context); },
        [&] {
          EXPECT_EQ(pool.bytes, kept);
          EXPECT_EQ(GetParam().run(context), expected);
        });
    EXPECT_EQ(pool.bytes, kept);
  }
  EXPECT_TRUE(pool.out.empty());
  EXPECT_EQ(pool.wrong_releases, 0);
}

/// A method of a plan.
struct PlanCall {
  char const* name;
  Values (*run)(Plan const&);
};
void PrintTo(PlanCall const& call, std::ostream* out) {
  *out << "cuda_" << call.name;
}

class OutOfMemoryOfPlans : public testing::TestWithParam<PlanCall> {
 protected:
  void SetUp() override { require_device(DeviceType::cuda); }
};

/// Numbers without a pattern, around 0.
Values wave(std::int64_t rows, std::int64_t columns) {
  Values result(length(rows, columns));
  for (std::size_t k = 0; k < result.size(); ++k) result[k] = static_cast<double>(k * k % 1009) / 1009 - 0.5;
  return result;
}
/// The result of multiply(v, out), v with rows of `columns` numbers.
template <class Multiply>
Values product(std::int64_t from, std::int64_t to, std::int64_t columns, Multiply const& multiply) {
  Values const v = wave(from, columns);
  Values out(length(to, columns));
  multiply(MatrixView(v.data(), from, columns), MutableMatrixView(out.data(), to, columns));
  return out;
}

INSTANTIATE_TEST_SUITE_P(
    , OutOfMemoryOfPlans,
    testing::Values(
        PlanCall{"marginals",
                 [](Plan const& plan) {
                   Values row(length(plan.rows())), column(length(plan.columns()));
                   plan.marginals(row, column);
                   append(row, column);
                   return row;
                 }},
        PlanCall{"apply",
                 [](Plan const& plan) {
                   return product(plan.columns(), plan.rows(), 20,
                                  [&](MatrixView v, MutableMatrixView out) { plan.apply(v, out); });
                 }},
        PlanCall{"apply_transpose",
                 [](Plan const& plan) {
                   return product(plan.rows(), plan.columns(), 20,
                                  [&](MatrixView v, MutableMatrixView out) { plan.apply_transpose(v, out); });
                 }},
        PlanCall{"apply_hadamard",
                 [](Plan const& plan) {
                   Values const l = wave(plan.rows(), 4), r = wave(plan.columns(), 4);
                   return product(plan.columns(), plan.rows(), 2, [&](MatrixView v, MutableMatrixView out) {
                     plan.apply_hadamard({l.data(), plan.rows(), 4}, {r.data(), plan.columns(), 4}, v, out);
                   });
                 }},
        PlanCall{"apply_gram",
                 [](Plan const& plan) {
                   Values const w = wave(plan.rows(), 1), v = wave(plan.columns(), 1);
                   Values out(v.size());
                   plan.apply_gram(w, v, out);
                   return out;
                 }},
        PlanCall{
            "gradients",
            [](Plan const& plan) {
              Values by_x(length(plan.rows(), 3)), by_y(length(plan.columns(), 3)), by_a(length(plan.rows()));
              plan.gradients({.x = {by_x.data(), plan.rows(), 3}, .y = {by_y.data(), plan.columns(), 3}, .a = by_a});
              append(by_x, by_y);
              append(by_x, by_a);
              return by_x;
            }},
        PlanCall{"hessian_product",
                 [](Plan const& plan) {
                   return product(plan.rows(), plan.rows(), 3, [&](MatrixView v, MutableMatrixView out) {
                     plan.hessian_product({.x = v}, {.x = out}, {.damping = 0.1});
                   });
                 }},
        PlanCall{"top_k",
                 [](Plan const& plan) {
                   std::vector<std::int64_t> indices(length(plan.rows(), 3));
                   Values values(indices.size());
                   plan.top_k({indices.data(), plan.rows(), 3, 3, {}}, {values.data(), plan.rows(), 3});
                   append(values, indices);
                   return values;
                 }},
        PlanCall{"entries_above",
                 [](Plan const& plan) {
                   std::vector<std::int64_t> begin(length(plan.rows() + 1));
                   MutableIndexView const row_begin{begin.data(), plan.rows() + 1, 1, 1, {}};
                   std::int64_t const count = plan.count_above(1e-6, row_begin);
                   std::vector<std::int64_t> columns(length(count));
                   Values values(length(count));
                   plan.entries_above(1e-6, row_begin, {columns.data(), count, 1, 1, {}}, values);
                   append(values, columns);
                   return values;
                 }},
        PlanCall{"sample",
                 [](Plan const& plan) {
                   std::vector<std::int64_t> pairs(2000);
                   plan.sample(1, {pairs.data(), 1000, 2, 2, {}});
                   return Values(pairs.begin(), pairs.end());
                 }},
        PlanCall{"barycentric_projection",
                 [](Plan const& plan) {
                   Values out(length(plan.rows(), 3));
                   plan.barycentric_projection(MutableMatrixView(out.data(), plan.rows(), 3));
                   return out;
                 }},
        PlanCall{"map",
                 [](Plan const& plan) {
                   Values const points = wave(plan.rows(), 3);
                   Values out(points.size());
                   plan.map({points.data(), plan.rows(), 3}, {out.data(), plan.rows(), 3});
                   return out;
                 }},
        PlanCall{"potential",
                 [](Plan const& plan) {
                   Values const points = wave(plan.rows(), 3);
                   Values out(length(plan.rows()));
                   plan.potential({points.data(), plan.rows(), 3}, out);
                   return out;
                 }},
        PlanCall{"dense",
                 [](Plan const& plan) {
                   Values out(length(plan.rows(), plan.columns()));
                   plan.dense({out.data(), plan.rows(), plan.columns()});
                   return out;
                 }}),
    testing::PrintToStringParamName());

TEST_P(OutOfMemoryOfPlans, leaves_the_plan_as_it_was) {
  Pool pool;
  {
    Context const context = Context::cuda({.allocator = pool.allocator()});
    Values const expected = GetParam().run(solved(context));
    std::optional<Plan> plan = solved(context);
    fail_at_each_call(
        pool, [&] { GetParam().run(*plan); },
        [&] {
          EXPECT_EQ(GetParam().run(*plan), expected);
          plan = solved(context);
        });
  }
  EXPECT_TRUE(pool.out.empty());
  EXPECT_EQ(pool.wrong_releases, 0);
}

class CallersAllocator : public testing::Test {
 protected:
  void SetUp() override { require_device(DeviceType::cuda); }
};

TEST_F(CallersAllocator, cuda_may_fail_in_a_solver_that_goes_on) {
  Pool pool;
  Context const context = Context::cuda({.allocator = pool.allocator()});
  Problem const first = make_problem({40000, 5, 3}), second = make_problem({.n = 40000, .m = 5, .d = 3, .seed = 3});
  SolveOptions const options{.eps = 0.5, .tolerance = 1e-3};
  Values const expected = values_of(solve(context, second.geometry(), options));
  Solver solver(context, first.geometry(), options);
  solver.solve();
  fail_at_each_call(
      pool,
      [&] {
        solver.set_geometry(second.geometry());
        solver.solve();
      },
      [&] {
        EXPECT_EQ(values_of(solver.solve()), expected);
        solver.set_geometry(first.geometry());
        solver.solve();
      });
}

/// Two small problems and a large one: resident sweeps, which count arrivals at their barriers, and recorded ones.
TEST_F(CallersAllocator, cuda_may_fail_between_sweeps_of_many_operators) {
  Pool pool;
  Context const context = Context::cuda({.allocator = pool.allocator()});
  Backend const& backend = backend_of(context);
  Problem const third = make_problem({5000, 4000, 3});
  for (auto const& [other, symmetric] :
       {std::pair{&small_problem(), false}, {&small_problem(), true}, {&third, false}}) {
    auto const swept = [&, other = other, symmetric = symmetric](auto const& sweep) {
      std::vector<std::unique_ptr<EntropicOperator>> operators;
      std::vector<SweepStep> steps;
      for (Problem const* problem : {other, &third, other}) {
        operators.push_back(
            backend.entropic_operator(problem->geometry(), {problem->a, problem->b}, {Precision::float32, 0, {}}));
        steps.push_back({operators.back().get(), Sweep{0.5, symmetric}, 5});
      }
      auto const sweeper = backend.sweeper();
      sweep([&] {
        // Each start is the same, whatever a failed call has left.
        for (auto const& entropic : operators) entropic->set_potentials({}, {});
        sweeper->sweep(steps);
      });
      Values result;
      for (auto const& entropic : operators) {
        Potentials const found = potentials_of(*entropic);
        append(result, narrow(found.f));
        append(result, narrow(found.g));
      }
      return result;
    };
    Values const expected = swept([](auto const& sweep) { sweep(); });
    Values const found = swept([&](auto const& sweep) {
      fail_at_each_call(pool, sweep, [] {});  // One failure after the other, the first of them before the first sweep.
      fail_at_each_call(pool, sweep, sweep);
    });
    EXPECT_EQ(found, expected);
  }
}

/// As where the allocator is Python's, and a collection of cycles within it destroys plans of the same context.
TEST_F(CallersAllocator, cuda_may_destroy_plans_of_its_context) {
  Pool pool;
  DeviceAllocator const own = pool.allocator();
  std::deque<Plan> garbage;
  auto const collect = [&] {
    if (garbage.empty()) return;
    Plan const plan = std::move(garbage.front());
    garbage.pop_front();
  };
  int collections = 0;
  DeviceAllocator const collecting{[&](std::size_t bytes, void* stream) {
                                     if (!garbage.empty()) ++collections;
                                     collect();
                                     return own.allocate(bytes, stream);
                                   },
                                   [&](void* memory, std::size_t bytes, void* stream) {
                                     own.release(memory, bytes, stream);
                                     if (!garbage.empty()) ++collections;
                                     collect();
                                   }};
  {
    Context const context = Context::cuda({.allocator = collecting});
    Context const reference = Context::cuda();
    SolveOptions const options{.eps = 0.5, .tolerance = 1e-3};
    std::vector<BatchProblem> problems(3, {.geometry = small_problem().geometry()});
    Values const expected = values_of(solved(reference, small_problem(), options));
    for (int k = 0; k < 4; ++k) {
      for (Problem const* problem : {&small_problem(), &large_problem(), &small_problem()})
        garbage.push_back(solved(context, *problem, options));
      // Pieces of memory that a batch shares end together.
      for (Plan& plan : solve_batch(context, problems, options)) garbage.push_back(std::move(plan));
      EXPECT_EQ(values_of(solved(context, small_problem(), options)), expected);
    }
    EXPECT_GT(collections, 0);
    while (!garbage.empty()) collect();
  }
  EXPECT_TRUE(pool.out.empty());
  EXPECT_EQ(pool.wrong_releases, 0);
}

}  // namespace
}  // namespace monge::oracle
