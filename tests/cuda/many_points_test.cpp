// More points on one side than the second dimension of a grid has blocks for: 2^22 and more. The many points are copies
// of a few, so the plan of the few, of the CPU in float64, says what is right.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "cuda/outputs.hpp"
#include "oracle/backend_test.hpp"
#include "oracle/device_memory.hpp"

namespace monge::oracle {
namespace {

using Values = std::vector<double>;

// From 7 columns or coordinates on products go through entries in memory.
constexpr std::int64_t kFew = 8, kDistinct = 1000, kCopies = 5000, kMany = kDistinct * kCopies, kDimension = 10,
                       kWidth = 10, kInner = 2;

/// Rows of `columns` numbers, as many again as there are copies.
Values copies(Values const& values) {
  Values result;
  result.reserve(values.size() * kCopies);
  for (std::int64_t copy = 0; copy < kCopies; ++copy) result.insert(result.end(), values.begin(), values.end());
  return result;
}
Values magnitudes(Values values) {
  for (double& value : values) value = std::abs(value);
  return values;
}

/// The plan of few points and the distinct ones, on the CPU.
struct Reference {
  Reference() : problem(make_problem({.n = kFew, .m = kDistinct, .d = kDimension, .storage = DataType::float32})) {
    SolveOptions const options{.eps = eps, .tolerance = 1e-11, .precision = Precision::float64};
    Plan solved = solve(Context::cpu(), problem.geometry(), problem.a, problem.b, options);
    EXPECT_EQ(solved.status(), Status::converged);
    f = solved.f();
    g = solved.g();
    primal = solved.report().primal;
    plan.emplace(std::move(solved));
  }
  double eps = 4, primal = 0;
  Problem problem;
  Values f, g;
  std::optional<Plan> plan;
};
Reference const& reference() {
  static Reference const result;
  return result;
}

/// The plan of the copies. Its entries are those of the reference, over the number of copies.
struct Many {
  explicit Many(Precision precision) : context(Context::cuda()) {
    Problem const& few = reference().problem;
    Stored const y(copies(few.y.values()), kMany, kDimension, DataType::float32);
    Values const g = copies(reference().g);
    // The memory suffices to keep the entries of both sides in float64.
    plan.emplace(plan_of(context, PointCloud{few.x.view(), y.view(), few.scale}, few.a, {},
                         {.eps = reference().eps,
                          .precision = precision,
                          .certificate = false,
                          .cache_bytes = 2.5 * kMany * 128 * 8,
                          .f = reference().f,
                          .g = g}));
    // The logarithms of weights are those of the many. Everything else is as large as for the few.
    Problem scaled = few;
    scaled.b.assign(scaled.b.size(), 1.0 / kMany);
    Tolerance const gpu(scaled, reference().eps, arithmetic({DeviceType::cuda}, precision, kDimension)),
        cpu(few, reference().eps, arithmetic({}, Precision::float64, kDimension));
    Potentials const potentials{widen(reference().f), widen(reference().g)};
    for (int s : {0, 1}) {
      Side const side = s == 0 ? Side::rows : Side::columns;
      for (Tolerance const* one : {&gpu, &cpu}) {
        Vector const of_entries = one->plan(side, potentials);
        relative[s] += *std::max_element(of_entries.begin(), of_entries.end()) + one->sum_error(side);
      }
    }
  }
  Context context;
  std::optional<Plan> plan;
  Real relative[2] = {};  // Error of sums of entries by rows and by columns.
};

class ManyPoints : public testing::TestWithParam<Target> {
 protected:
  void SetUp() override {
    require_device(DeviceType::cuda);
    if (IsSkipped() || HasFatalFailure()) return;
    std::unique_ptr<Many>& made = made_[GetParam().precision];
    if (!made) made = std::make_unique<Many>(GetParam().precision);
    many_ = made.get();
  }
  static void TearDownTestSuite() { made_.clear(); }

  bool is_float64() const { return GetParam().precision == Precision::float64; }
  Plan const& plan() const { return *many_->plan; }
  Plan const& few() const { return *reference().plan; }
  Real relative(int side) const { return many_->relative[side]; }
  Values numbers(std::int64_t rows, std::int64_t columns = 1) { return gaussian_points(rows, columns, random_); }

  /// |actual - share expected| <= relative share size, numbers of the few or of the copies of the distinct points.
  void expect(char const* what, Values const& actual, Values const& expected, Values const& size, Real relative,
              double share = 1) {
    ASSERT_EQ(actual.size() % expected.size(), 0u) << what;
    Real const unit = relative * share;
    std::size_t worst = 0;
    double largest = -1;
    for (std::size_t k = 0; k < actual.size(); ++k) {
      double const off = std::abs(actual[k] - share * expected[k % expected.size()]);
      double const quotient = off == 0 ? 0 : off / (static_cast<double>(unit) * size[k % size.size()]);
      if (quotient <= largest) continue;  // NaN is worse than anything.
      largest = quotient;
      worst = k;
      if (std::isnan(quotient)) break;
    }
    SCOPED_TRACE(testing::Message() << "number " << worst);
    expect_close(what, actual[worst], share * expected[worst % expected.size()], unit * size[worst % size.size()]);
  }

 private:
  static inline std::map<Precision, std::unique_ptr<Many>> made_;  // Its inputs take a second to make.
  Many const* many_ = nullptr;
  Random random_{5};
};
INSTANTIATE_TEST_SUITE_P(, ManyPoints,
                         testing::Values(Target{DeviceType::cuda, Precision::float32},
                                         Target{DeviceType::cuda, Precision::float64}),
                         target_name);

Values times(Plan const& plan, Values const& v) {
  auto const width = std::ssize(v) / plan.columns();
  Values out(length(plan.rows(), width));
  plan.apply({v.data(), plan.columns(), width}, {out.data(), plan.rows(), width});
  return out;
}
Values transpose_times(Plan const& plan, Values const& u) {
  auto const width = std::ssize(u) / plan.rows();
  Values out(length(plan.columns(), width));
  plan.apply_transpose({u.data(), plan.rows(), width}, {out.data(), plan.columns(), width});
  return out;
}

constexpr double kShare = 1.0 / kCopies;

TEST_P(ManyPoints, have_the_products_of_the_few_that_they_are_copies_of) {
  for (std::int64_t const width : {std::int64_t{1}, kWidth}) {
    SCOPED_TRACE(testing::Message() << "width " << width);
    Values const v = numbers(kDistinct, width), u = numbers(kFew, width);
    expect("P V", times(plan(), copies(v)), times(few(), v), times(few(), magnitudes(v)), relative(0));
    expect("P^T U", transpose_times(plan(), u), transpose_times(few(), u), transpose_times(few(), magnitudes(u)),
           relative(1), kShare);
  }
  Values row(length(kFew)), column(length(kMany)), few_row(row.size()), few_column(length(kDistinct));
  plan().marginals(row, column);
  few().marginals(few_row, few_column);
  expect("P 1", row, few_row, few_row, relative(0));
  expect("P^T 1", column, few_column, few_column, relative(1), kShare);
}

TEST_P(ManyPoints, have_the_gram_and_hadamard_products_of_the_few) {
  Values const w = numbers(kFew), v = numbers(kDistinct), many = copies(v);
  Real const both = (1 + relative(0)) * (1 + relative(1)) - 1;
  auto const gram = [](Plan const& plan, Values const& weights, Values const& values) {
    Values out(values.size());
    plan.apply_gram(weights, values, out);
    return out;
  };
  expect("P^T diag(w) P v", gram(plan(), w, many), gram(few(), w, v), gram(few(), magnitudes(w), magnitudes(v)), both,
         kShare);

  Values const l = numbers(kFew, kInner), r = numbers(kDistinct, kInner);
  auto const hadamard = [](Plan const& plan, Values const& left, Values const& right, Values const& values) {
    Values out(length(plan.rows()));
    plan.apply_hadamard({left.data(), plan.rows(), kInner}, {right.data(), plan.columns(), kInner},
                        {values.data(), plan.columns(), 1}, {out.data(), plan.rows(), 1});
    return out;
  };
  auto const hadamard_transpose = [](Plan const& plan, Values const& left, Values const& right, Values const& values) {
    Values out(length(plan.columns()));
    plan.apply_hadamard_transpose({left.data(), plan.rows(), kInner}, {right.data(), plan.columns(), kInner},
                                  {values.data(), plan.rows(), 1}, {out.data(), plan.columns(), 1});
    return out;
  };
  // |<l, r>| is at most the sum of the products of magnitudes, which is twice as large as their error counts.
  Arithmetic const factors = arithmetic({DeviceType::cuda}, GetParam().precision, kInner);
  Real const inner = 2 * (factors.product + 2 * factors.unit);
  expect("(P o L R^T) v", hadamard(plan(), l, copies(r), many), hadamard(few(), l, r, v),
         hadamard(few(), magnitudes(l), magnitudes(r), magnitudes(v)), relative(0) + inner);
  expect("(P o L R^T)^T w", hadamard_transpose(plan(), l, copies(r), w), hadamard_transpose(few(), l, r, w),
         hadamard_transpose(few(), magnitudes(l), magnitudes(r), magnitudes(w)), relative(1) + inner, kShare);
}

TEST_P(ManyPoints, have_the_derivatives_of_the_few) {
  auto const gradients = [](Plan const& plan, Values& by_x, Values& by_y) {
    by_x.resize(length(plan.rows(), kDimension));
    by_y.resize(length(plan.columns(), kDimension));
    plan.gradients({.x = {by_x.data(), plan.rows(), kDimension}, .y = {by_y.data(), plan.columns(), kDimension}},
                   {.error_iterations = 0, .scale = false});
  };
  Values by_x, by_y, few_x, few_y;
  gradients(plan(), by_x, by_y);
  gradients(few(), few_x, few_y);
  // sum_j P_ij 2 (x_i - y_j): at most twice the marginal times the coordinates' size, which centring does not double.
  double largest = 0;
  for (Stored const* points : {&reference().problem.x, &reference().problem.y}) {
    for (double const value : points->values()) largest = std::max(largest, std::abs(value));
  }
  auto const sizes = [&](std::size_t size, double weight) { return Values(size, 8 * largest * weight); };
  expect("by x", by_x, few_x, sizes(few_x.size(), 1.0 / kFew), relative(0));
  expect("by y", by_y, few_y, sizes(few_y.size(), 1.0 / kDistinct), relative(1), kShare);
  if (!is_float64()) return;

  Values const of_x = numbers(kFew, kDimension), of_y = numbers(kDistinct, kDimension);
  LinearOptions const options{.damping = 0.1, .tolerance = 1e-10};
  auto const product = [&](Plan const& plan, Values const& y, Values& out_x, Values& out_y) {
    out_x.resize(of_x.size());
    out_y.resize(y.size());
    LinearReport const report = plan.hessian_product(
        {.x = {of_x.data(), kFew, kDimension}, .y = {y.data(), plan.columns(), kDimension}},
        {.x = {out_x.data(), kFew, kDimension}, .y = {out_y.data(), plan.columns(), kDimension}}, options);
    EXPECT_EQ(report.status, LinearStatus::converged);
  };
  Values out_x, out_y, few_out_x, few_out_y;
  product(plan(), copies(of_y), out_x, out_y);
  product(few(), of_y, few_out_x, few_out_y);
  // Its terms are of second order in slopes over eps. The damped system has a condition of 1 / damping at most, and is
  // solved to its tolerance.
  double const slope = 2 * 2 * largest * std::sqrt(kDimension);
  double const term = (2 + slope * slope / reference().eps / options.damping) * 4 * std::sqrt(kDimension);
  Real const error = 8 * (relative(0) + relative(1) + options.tolerance) / options.damping;
  expect("H v in x", out_x, few_out_x, Values(few_out_x.size(), term / kFew), error);
  expect("H v in y", out_y, few_out_y, Values(few_out_y.size(), term / kDistinct), error, kShare);
}

TEST_P(ManyPoints, have_the_entries_of_the_few) {
  constexpr std::int64_t kLargest = 3;
  auto const largest = [](Plan const& plan) {
    std::vector<std::int64_t> indices(length(plan.columns(), kLargest));
    Values values(indices.size());
    plan.top_k_transpose({indices.data(), plan.columns(), kLargest, kLargest, {}},
                         {values.data(), plan.columns(), kLargest});
    return values;
  };
  expect("the largest of each column", largest(plan()), largest(few()), largest(few()), relative(1), kShare);
  std::vector<std::int64_t> indices(length(kFew, kLargest)), few_indices(length(kFew, 1));
  Values values(indices.size()), few_values(few_indices.size()), first;
  plan().top_k({indices.data(), kFew, kLargest, kLargest, {}}, {values.data(), kFew, kLargest});
  few().top_k({few_indices.data(), kFew, 1, 1, {}}, {few_values.data(), kFew, 1});
  for (std::size_t k = 0; k < values.size(); ++k) first.push_back(few_values[k / kLargest]);
  expect("the largest of each row, each a copy of one", values, first, first, relative(0), kShare);

  Values dense(length(kFew, kMany)), few_dense(length(kFew, kDistinct));
  plan().dense({dense.data(), kFew, kMany});
  few().dense({few_dense.data(), kFew, kDistinct});
  for (std::int64_t i = 0; i < kFew; ++i) {
    auto const row = [i](Values const& all, std::int64_t size) {
      return Values(all.begin() + i * size, all.begin() + (i + 1) * size);
    };
    Values const own = row(few_dense, kDistinct);
    expect("a row", row(dense, kMany), own, own, relative(0), kShare);
  }

  std::vector<std::int64_t> pairs(2000);
  plan().sample(4, {pairs.data(), 1000, 2, 2, {}});
  for (std::size_t k = 0; k < pairs.size(); k += 2) {
    ASSERT_TRUE(pairs[k] >= 0 && pairs[k] < kFew && pairs[k + 1] >= 0 && pairs[k + 1] < kMany);
    EXPECT_GT(few_dense[static_cast<std::size_t>(pairs[k] * kDistinct + pairs[k + 1] % kDistinct)], 0);
  }
  // A thousand draws of columns that are all alike: the mean index is within 6 standard deviations.
  double mean = 0;
  for (std::size_t k = 1; k < pairs.size(); k += 2) mean += static_cast<double>(pairs[k]) / 1000;
  EXPECT_NEAR(mean / kMany, 0.5, 6 / std::sqrt(12.0 * 1000));
  if (!is_float64()) return;

  // Off by some 1e-12, no entry is so near the threshold.
  std::sort(few_dense.begin(), few_dense.end());
  double const threshold = 1.000001 * few_dense[few_dense.size() - 20];
  std::vector<std::int64_t> begin(length(kFew + 1)), few_begin(begin.size());
  MutableIndexView const row_begin{begin.data(), kFew + 1, 1, 1, {}};
  std::int64_t const count = plan().count_above(kShare * threshold, row_begin);
  EXPECT_EQ(count, kCopies * few().count_above(threshold, {few_begin.data(), kFew + 1, 1, 1, {}}));
  for (std::size_t i = 0; i < begin.size(); ++i) EXPECT_EQ(begin[i], kCopies * few_begin[i]);
  std::vector<std::int64_t> columns(length(count)), few_columns(length(few_begin.back()));
  Values above(columns.size()), few_above(few_columns.size());
  plan().entries_above(kShare * threshold, row_begin, {columns.data(), count, 1, 1, {}}, above);
  few().entries_above(threshold, {few_begin.data(), kFew + 1, 1, 1, {}},
                      {few_columns.data(), std::ssize(few_columns), 1, 1, {}}, few_above);
  for (std::size_t i = 0; i < static_cast<std::size_t>(kFew); ++i) {
    std::int64_t const each = few_begin[i + 1] - few_begin[i];
    for (std::int64_t k = 0; k < kCopies * each; ++k) {
      ASSERT_EQ(columns[static_cast<std::size_t>(begin[i] + k)],
                k / each * kDistinct + few_columns[static_cast<std::size_t>(few_begin[i] + k % each)]);
    }
  }
}

TEST_P(ManyPoints, have_the_average_and_potential_of_the_few) {
  auto const average = [](Plan const& plan) {
    Values out(length(kFew, kDimension));
    plan.barycentric_projection(MutableMatrixView(out.data(), kFew, kDimension));
    return out;
  };
  double largest = 0;
  for (double const value : reference().problem.y.values()) largest = std::max(largest, std::abs(value));
  expect("averages", average(plan()), average(few()), Values(length(kFew, kDimension), 4 * largest), 2 * relative(0));
  auto const potential = [](Plan const& plan) {
    Values out(length(kFew));
    plan.potential(reference().problem.x.view(), out);
    return out;
  };
  // A softmin is off by eps times the errors of the logarithms of its terms, which are those of P.
  expect("potential", potential(plan()), potential(few()), Values(length(kFew), 2 * reference().eps), relative(0));
}

/// Sweeps, certificate and float64 twin: of points, and of a matrix whose lines are few or many.
TEST(ManyPointsOfASolve, cuda_have_the_value_of_the_few) {
  require_device(DeviceType::cuda);
  if (testing::Test::IsSkipped()) return;
  Problem const& few = reference().problem;
  std::vector<long double> const costs = dense_costs(few);
  auto const largest = static_cast<double>(*std::max_element(costs.begin(), costs.end()));
  std::vector<float> lines(length(kFew, kMany)), columns(lines.size());
  for (std::int64_t i = 0; i < kFew; ++i) {
    for (std::int64_t j = 0; j < kMany; ++j) {
      auto const cost = static_cast<float>(costs[static_cast<std::size_t>(i * kDistinct + j % kDistinct)]);
      lines[static_cast<std::size_t>(i * kMany + j)] = columns[static_cast<std::size_t>(j * kFew + i)] = cost;
    }
  }
  Stored const y(copies(few.y.values()), kMany, kDimension, DataType::float32);
  SolveOptions const options{.eps = reference().eps, .tolerance = 1e-6};
  auto const expect_value = [&](char const* name, Geometry const& geometry, double rounding) {
    SCOPED_TRACE(name);
    Report const report = solve(Context::cuda(), geometry, few.a, {}, options).report();
    EXPECT_EQ(report.status, Status::converged) << report.message;
    // Marginal errors move the value by at most as much as potentials, whose range is that of the costs.
    EXPECT_NEAR(report.primal, reference().primal, (2 * options.tolerance + rounding) * largest);
  };
  expect_value("points", PointCloud{few.x.view(), y.view(), few.scale}, 0);
  double const single = std::numeric_limits<float>::epsilon();  // Rounding of the costs in the matrix.
  expect_value("few lines", CostMatrix{MatrixView(lines.data(), kFew, kMany)}, single);
  expect_value("many lines", CostMatrix{MatrixView(columns.data(), kMany, kFew), true}, single);
}

/// Columns of the values of a regularised plan: 8 of them a block.
TEST(ManyColumns, cuda_of_a_regularised_plan_are_right) {
  require_device(DeviceType::cuda);
  if (testing::Test::IsSkipped()) return;
  Problem const problem = make_problem({5, 4, 2});
  constexpr std::int64_t kColumns = 600000;
  auto const product = [&](Context const& context, Side side) {
    RegularizedPlan const plan =
        solve_regularized(context, problem.geometry(), problem.a, problem.b, {.quadratic = 10}, {});
    std::int64_t const from = side == Side::rows ? 4 : 5, to = 9 - from;
    Values v(length(from, kColumns)), out(length(to, kColumns));
    for (std::size_t k = 0; k < v.size(); ++k) v[k] = static_cast<double>(k * k % 1009);
    MatrixView const in(v.data(), from, kColumns);
    MutableMatrixView const to_view(out.data(), to, kColumns);
    side == Side::rows ? plan.apply(in, to_view) : plan.apply_transpose(in, to_view);
    return out;
  };
  for (Side const side : {Side::rows, Side::columns}) {
    Values const found = product(Context::cuda(), side);
    Vector const expected = widen(product(Context::cpu(1), side));
    // Both plans are good to 1e-4 of their marginals, of mass 1.
    expect_close("P V", found, expected, Vector(expected.size(), 1009 * 2e-4));
  }
}

/// Chunks of 256 lines, which are points of the longer side, in the mask of Newton's method.
TEST(ManyLines, cuda_of_a_quadratic_term_are_right) {
  require_device(DeviceType::cuda);
  if (testing::Test::IsSkipped()) return;
  constexpr std::int64_t kLines = 17'000'000;
  std::vector<float> cost(length(kLines, 2));
  for (std::size_t k = 0; k < cost.size(); ++k) cost[k] = static_cast<float>(k * 7919 % 1000) / 1000;
  RegularizedPlan const plan =
      solve_regularized(Context::cuda(), CostMatrix{MatrixView(cost.data(), kLines, 2)}, {}, {}, {.quadratic = kLines},
                        {.method = RegularizedMethod::newton, .tolerance = 1e-3});
  EXPECT_EQ(plan.status(), Status::converged) << plan.report().message;
  Values row(length(kLines)), column(2);
  plan.marginals(row, column);
  for (double const value : column) EXPECT_NEAR(value, 0.5, 1e-3);  // The weights of both sides are less than 1 long.
}

}  // namespace
}  // namespace monge::oracle
