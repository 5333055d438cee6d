#include "edges/calls.hpp"

#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>

#include "oracle/problem.hpp"

namespace monge::oracle {
namespace {

using Numbers = std::vector<double>;

/// n m is above three times 2^17.
constexpr std::int64_t kRows = 660, kColumns = 600, kDimension = 3;

std::shared_ptr<Problem const> problem_with(Costs costs) {
  return std::make_shared<Problem const>(
      make_problem({.n = kRows, .m = kColumns, .d = kDimension, .weights = Weights::with_zeros, .costs = costs}));
}

template <class Values>
void append(Numbers& to, Values const& values) {
  for (auto const value : values) to.push_back(static_cast<double>(value));
}

Numbers sized(std::int64_t size) {
  return Numbers(static_cast<std::size_t>(size));
}
std::vector<std::int64_t> indices(std::int64_t size) {
  return std::vector<std::int64_t>(static_cast<std::size_t>(size));
}

Numbers of_plan(Plan const& plan) {
  Numbers all{plan.report().marginal_error, plan.report().dual, static_cast<double>(plan.report().iterations)};
  append(all, plan.f());
  append(all, plan.g());
  return all;
}

Numbers of_report(RegularizedPlan const& plan) {
  RegularizedReport const& report = plan.report();
  Numbers all{report.primal_residual, report.dual, report.transport_cost, static_cast<double>(report.nonzeros)};
  append(all, plan.u());
  append(all, plan.v());
  return all;
}

void add_solves(std::vector<PublicCall>& calls) {
  auto const add = [&](std::string name, Costs costs, SolveOptions const& options) {
    calls.push_back({std::move(name), [problem = problem_with(costs), options](Context const& context) {
                       return of_plan(solve(context, problem->geometry(), problem->a, problem->b, options));
                     }});
  };
  auto const of = [](Precision precision, Method method) {
    return SolveOptions{
        .eps_relative = 0.05, .method = method, .tolerance = 1e-4, .iterations = 15, .precision = precision};
  };
  add("solve_points", Costs::points, of(Precision::float32, Method::sinkhorn));
  add("solve_automatic", Costs::points, of(Precision::automatic, Method::automatic));
  add("solve_newton", Costs::points, of(Precision::float64, Method::newton));
  add("solve_splr", Costs::points, of(Precision::float64, Method::splr));
  add("solve_labels", Costs::labels, of(Precision::float32, Method::sinkhorn));
  add("solve_p_norm", Costs::p_norm, of(Precision::float64, Method::sinkhorn));
  add("solve_cosine", Costs::cosine, of(Precision::float32, Method::sinkhorn));
  add("solve_matrix", Costs::random, of(Precision::float32, Method::sinkhorn));
  add("solve_matrix_newton", Costs::distances, of(Precision::float64, Method::newton));
  SolveOptions unbalanced = of(Precision::float32, Method::sinkhorn);
  unbalanced.penalty_a = unbalanced.penalty_b = 2;
  add("solve_unbalanced", Costs::points, unbalanced);
  calls.push_back({"solve_batch", [](Context const& context) {
                     Problem const large = *problem_with(Costs::points),
                                   small = make_problem({.n = 30, .m = 20, .d = 2}),
                                   matrix = make_problem({.n = 20, .m = 40, .d = 2, .costs = Costs::random});
                     std::vector<BatchProblem> batch;
                     for (Problem const* problem : {&large, &small, &matrix, &small})
                       batch.push_back({problem->geometry(), problem->a, problem->b});
                     Numbers all;
                     for (Plan const& plan : solve_batch(context, batch, {.eps_relative = 0.1, .iterations = 10}))
                       append(all, of_plan(plan));
                     return all;
                   }});
  calls.push_back({"solver", [problem = problem_with(Costs::points)](Context const& context) {
                     Solver solver(context, problem->geometry(), problem->a, problem->b,
                                   {.eps_relative = 0.1, .iterations = 5});
                     Numbers all = of_plan(solver.solve());
                     solver.set_weights({}, problem->b);
                     append(all, of_plan(solver.solve()));
                     return all;
                   }});
  for (Costs const costs : {Costs::points, Costs::distances}) {
    calls.push_back({costs == Costs::points ? "exact_points" : "exact_matrix",
                     [problem = problem_with(costs)](Context const& context) {
                       ExactPlan const plan =
                           solve_exact(context, problem->geometry(), problem->a, problem->b, {.rounds = 4});
                       Numbers all = plan.values;
                       append(all, plan.f);
                       append(all, plan.column_indices);
                       return all;
                     }});
  }
}

/// The rows of the source have so many `columns`.
Numbers numbers_of(Gromov const& found, std::int64_t columns) {
  Numbers all = found.cross_moment, by_x = sized(kRows * columns), by_a = sized(kRows);
  found.gradients({.x = {by_x.data(), kRows, columns}, .a = by_a});
  append(all, by_x);
  append(all, by_a);
  append(all, Numbers{found.report.value, found.report.lower_bound});
  return all;
}

void add_gromov(std::vector<PublicCall>& calls) {
  for (bool const exact : {false, true}) {
    calls.push_back(
        {exact ? "gromov_exact" : "gromov", [problem = problem_with(Costs::points), exact](Context const& given) {
           // Failing memory of a GPU is not tried for points.
           Context const context = given.device().type == DeviceType::cpu ? given : Context::cpu(2);
           MatrixView const x = problem->x.view(), y = problem->y.view();
           GromovClouds const clouds{x, y, x, y};
           Gromov const found = solve_gromov(context, clouds, problem->a, problem->b,
                                             {.eps = exact ? 0.0 : 5.0, .iterations = 2, .starts = exact ? 1 : 2});
           return numbers_of(found, kDimension);
         }});
    calls.push_back(
        {exact ? "gromov_matrices_exact" : "gromov_matrices",
         [problem = problem_with(Costs::points), exact](Context const& context) {
           Numbers source = sized(kRows * kRows), target = sized(kColumns * kColumns);
           for (std::size_t i = 0; i < source.size(); ++i) source[i] = std::sin(static_cast<double>(7 * i));
           for (std::size_t j = 0; j < target.size(); ++j) target[j] = std::cos(static_cast<double>(5 * j));
           GromovMatrices const matrices{{source.data(), kRows, kRows}, {target.data(), kColumns, kColumns}};
           Gromov const found = solve_gromov(context, matrices, problem->a, problem->b,
                                             {.eps = exact ? 0.0 : 5.0, .iterations = 2, .starts = exact ? 1 : 2});
           return numbers_of(found, kRows);
         }});
  }
}

void add_divergence_and_transform(std::vector<PublicCall>& calls) {
  calls.push_back({"divergence", [problem = problem_with(Costs::points)](Context const& context) {
                     Divergence const divergence = sinkhorn_divergence(
                         context, problem->clouds(), problem->a, problem->b, {.eps_relative = 0.2, .iterations = 5});
                     Numbers x = sized(kRows * kDimension);
                     divergence.gradients({.x = {x.data(), kRows, kDimension}});
                     x.push_back(divergence.value);
                     return x;
                   }});
  calls.push_back({"c_transform", [problem = problem_with(Costs::points)](Context const& context) {
                     Numbers const g = sized(kColumns);
                     Numbers f = sized(kRows);
                     std::vector<std::int64_t> nearest = indices(kRows);
                     c_transform(context, problem->geometry(), g, f, {nearest.data(), kRows, 1, 1});
                     append(f, nearest);
                     f.push_back(semi_dual_value(context, problem->a, problem->b, VectorView(f.data(), kRows), g));
                     return f;
                   }});
}

void add_regularized(std::vector<PublicCall>& calls) {
  auto const add = [&](std::string name, Costs costs, auto const& change) {
    calls.push_back({std::move(name),
                     [problem = problem_with(costs), change](Context const& context) {
                       Regularizer terms;
                       RegularizedOptions options{.tolerance = 1e-3, .iterations = 12, .check_every = 4};
                       std::vector<std::int64_t> groups = indices(kRows * kColumns);
                       for (std::size_t k = 0; k < groups.size(); ++k) groups[k] = static_cast<std::int64_t>(k % 5);
                       change(terms, options, groups);
                       return of_report(
                           solve_regularized(context, problem->geometry(), problem->a, problem->b, terms, options));
                     },
                     false});
  };
  using Groups = std::vector<std::int64_t>;
  add("quadratic_newton", Costs::points, [](Regularizer& terms, RegularizedOptions& options, Groups&) {
    terms.quadratic = 1;
    options.method = RegularizedMethod::newton;
    options.check_every = 20;
  });
  add("splitting", Costs::distances, [](Regularizer& terms, RegularizedOptions& options, Groups&) {
    terms.hypentropy = 0.1;
    options.accelerate = true;
  });
  add("splitting_groups", Costs::points, [](Regularizer& terms, RegularizedOptions&, Groups& groups) {
    terms.group_lasso = 0.01;
    terms.groups = {groups.data(), kRows};
  });
  add("splitting_pair_groups", Costs::distances, [](Regularizer& terms, RegularizedOptions&, Groups& groups) {
    terms.group_lasso = 0.01;
    terms.pair_groups = {groups.data(), kRows, kColumns, kColumns};
  });
  add("splitting_separable", Costs::distances, [](Regularizer& terms, RegularizedOptions&, Groups&) {
    static double const slopes[] = {0, 0, 1e-6, 0.1, 1e-3, 1};
    terms.slopes = {slopes, 3, 2};
  });
  // Problems that take one thread each, side by side, with unequal numbers of iterations.
  calls.push_back({"regularized_batch",
                   [](Context const& context) {
                     std::vector<Problem> problems;
                     std::vector<std::vector<std::int64_t>> groups;
                     for (std::int64_t const n : {12, 30, 50}) {
                       problems.push_back(make_problem({.n = n, .m = 20, .d = 2, .costs = Costs::distances}));
                       groups.push_back(indices(n * 20));
                       for (std::size_t k = 0; k < groups.back().size(); ++k)
                         groups.back()[k] = static_cast<std::int64_t>(k % 5);
                     }
                     std::vector<RegularizedProblem> batch;
                     for (std::size_t k = 0; k < problems.size(); ++k) {
                       Regularizer terms{.group_lasso = 0.01};
                       terms.pair_groups = {groups[k].data(), problems[k].n(), 20, 20};
                       batch.push_back({problems[k].geometry(), problems[k].a, problems[k].b, terms});
                     }
                     batch.push_back({problems[0].geometry(), problems[0].a, problems[0].b, {.quadratic = 1}});
                     Numbers all;
                     for (RegularizedPlan const& plan :
                          solve_regularized_batch(context, batch, {.tolerance = 1e-3, .iterations = 500}))
                       append(all, of_report(plan));
                     return all;
                   },
                   false});
  calls.push_back({"regularized_plan",
                   [problem = problem_with(Costs::points)](Context const& context) {
                     RegularizedPlan const plan =
                         solve_regularized(context, problem->geometry(), problem->a, problem->b, {.quadratic = 10},
                                           {.tolerance = 1e-2, .iterations = 12});
                     Numbers all, row = sized(kRows), column = sized(kColumns), x = sized(kRows * kDimension);
                     plan.marginals(row, column);
                     append(all, row);
                     plan.apply(problem->y.view(), {x.data(), kRows, kDimension});
                     append(all, x);
                     plan.barycentric_projection(problem->y.view(), {x.data(), kRows, kDimension});
                     append(all, x);
                     std::vector<std::int64_t> begin = indices(kRows + 1);
                     std::int64_t const count = plan.nonzeros({begin.data(), kRows + 1, 1, 1});
                     std::vector<std::int64_t> columns = indices(count);
                     Numbers values = sized(count);
                     plan.entries({begin.data(), kRows + 1, 1, 1}, {columns.data(), count, 1, 1}, values);
                     append(all, values);
                     Numbers dense = sized(kRows * kColumns);
                     plan.dense({dense.data(), kRows, kColumns});
                     for (std::size_t k = 0; k < dense.size(); k += 101) all.push_back(dense[k]);
                     return all;
                   },
                   false});
}

void add_small_matrices(std::vector<PublicCall>& calls) {
  calls.push_back(
      {"assignment", [](Context const& context) {
         Random random(5);
         std::int64_t const batch = 4, rows = 40, columns = 50;
         std::vector<float> costs(static_cast<std::size_t>(batch * rows * columns));
         for (float& cost : costs) cost = static_cast<float>(random.uniform());
         std::vector<std::int64_t> row = indices(batch * rows), column = row, status = indices(batch);
         linear_sum_assignment(
             context, BatchView(costs.data(), batch, 40, 50),
             {{row.data(), batch, rows, rows}, {column.data(), batch, rows, rows}, {status.data(), batch, 1, 1}});
         Numbers all;
         append(all, column);
         append(all, linear_sum_assignment(context, MatrixView(costs.data(), 50, 80)).column_indices);
         return all;
       }});
  calls.push_back({"project", [](Context const& context) {
                     Random random(6);
                     std::int64_t const batch = 300;
                     std::vector<float> logits(static_cast<std::size_t>(batch * 16)), out(logits), d(logits);
                     for (float& logit : logits) logit = static_cast<float>(random.normal());
                     ProjectionOptions const options = projection_preset(ProjectionPreset::deepseek);
                     project(context, BatchView(logits.data(), batch, 4, 4), {out.data(), batch, 4, 4}, options);
                     project_backward(context, BatchView(logits.data(), batch, 4, 4), {out.data(), batch, 4, 4},
                                      {d.data(), batch, 4, 4}, options);
                     Numbers all;
                     append(all, out);
                     append(all, d);
                     return all;
                   }});
  calls.push_back(
      {"mhc_mapping", [](Context const& context) {
         Random random(7);
         std::int64_t const tokens = 700, streams = 4, columns = streams * (streams + 2);
         auto const floats = [](std::int64_t size) { return std::vector<float>(static_cast<std::size_t>(size)); };
         std::vector<float> mixes = floats(tokens * columns), scale(3, 0.1F), base = floats(columns);
         for (float& mix : mixes) mix = static_cast<float>(random.normal());
         std::vector<float> pre = floats(tokens * streams), post = pre, res = floats(tokens * 16), d_mixes = mixes,
                            d_scale = scale, d_base = base;
         mhc_mapping(context, {mixes.data(), tokens, columns}, scale, base, {pre.data(), tokens, streams},
                     {post.data(), tokens, streams}, {res.data(), tokens, 4, 4}, {});
         mhc_mapping_backward(context, {mixes.data(), tokens, columns}, scale, base, {pre.data(), tokens, streams},
                              {post.data(), tokens, streams}, {res.data(), tokens, 4, 4},
                              {d_mixes.data(), tokens, columns}, d_scale, d_base, {});
         Numbers all;
         for (std::vector<float> const* part : {&pre, &post, &res, &d_mixes, &d_scale, &d_base}) append(all, *part);
         return all;
       }});
}

}  // namespace

std::vector<PlanCall> plan_calls() {
  std::vector<PlanCall> calls;
  calls.push_back({"plan_products", [problem = problem_with(Costs::points)](Plan const& plan) {
                     Numbers all, row = sized(kRows), column = sized(kColumns), x = sized(kRows * kDimension);
                     MatrixView const y = problem->y.view();
                     plan.marginals(row, column);
                     append(all, row);
                     plan.apply(y, {x.data(), kRows, kDimension});
                     append(all, x);
                     plan.apply_transpose({x.data(), kRows, 1, kDimension}, {column.data(), kColumns, 1});
                     append(all, column);
                     plan.apply_hadamard({x.data(), kRows, kDimension}, y, y, {x.data(), kRows, kDimension});
                     append(all, x);
                     plan.apply_gram(VectorView(row), VectorView(column), column);
                     append(all, column);
                     plan.barycentric_projection({x.data(), kRows, kDimension});
                     append(all, x);
                     plan.map(problem->x.view(), {x.data(), kRows, kDimension});
                     append(all, x);
                     plan.potential(problem->x.view(), row);
                     append(all, row);
                     all.push_back(plan.transport_cost());
                     return all;
                   }});
  calls.push_back(
      {"plan_entries", [](Plan const& plan) {
         Numbers all, largest = sized(2 * kRows);
         std::vector<std::int64_t> places = indices(2 * kRows), begin = indices(kRows + 1), pairs = indices(2 * 3000);
         plan.top_k({places.data(), kRows, 2, 2}, {largest.data(), kRows, 2});
         append(all, places);
         append(all, largest);
         double const threshold = 4.0 / (kRows * kColumns);
         std::int64_t const count = plan.count_above(threshold, {begin.data(), kRows + 1, 1, 1});
         std::vector<std::int64_t> columns = indices(count);
         Numbers values = sized(count);
         plan.entries_above(threshold, {begin.data(), kRows + 1, 1, 1}, {columns.data(), count, 1, 1}, values);
         append(all, columns);
         append(all, values);
         plan.sample(7, {pairs.data(), 3000, 2, 2});
         append(all, pairs);
         std::vector<float> dense(static_cast<std::size_t>(kRows * kColumns));
         plan.dense({dense.data(), kRows, kColumns});
         for (std::size_t k = 0; k < dense.size(); k += 101) all.push_back(dense[k]);
         return all;
       }});
  calls.push_back(
      {"plan_derivatives", [problem = problem_with(Costs::points)](Plan const& plan) {
         Numbers all, x = sized(kRows * kDimension), a = sized(kRows), b = sized(kColumns);
         plan.gradients({.x = {x.data(), kRows, kDimension}, .a = a}, {});
         append(all, x);
         append(all, a);
         plan.hessian_product({.x = problem->x.view()}, {.x = {x.data(), kRows, kDimension}}, {.iterations = 5});
         append(all, x);
         plan.potential_gradients(problem->a, problem->b, {.a = a, .b = b}, {.iterations = 5});
         append(all, b);
         return all;
       }});
  return calls;
}

Plan plan_for_calls(Context const& context) {
  std::shared_ptr<Problem const> const problem = problem_with(Costs::points);
  Numbers const f = sized(kRows), g = sized(kColumns);
  return plan_of(context, problem->geometry(), problem->a, problem->b, {.eps_relative = 0.5, .f = f, .g = g});
}

std::vector<PublicCall> public_calls() {
  std::vector<PublicCall> calls;
  add_solves(calls);
  for (PlanCall const& call : plan_calls())
    calls.push_back({call.name, [call](Context const& context) { return call.numbers(plan_for_calls(context)); }});
  add_gromov(calls);
  add_divergence_and_transform(calls);
  add_regularized(calls);
  add_small_matrices(calls);
  return calls;
}

}  // namespace monge::oracle
