// Totals of a and b that differ in their last digits: what is allowed, and what a solve makes of it.
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

#include <monge/monge.hpp>

#include "oracle/backend_test.hpp"

namespace monge::oracle {
namespace {

double total(std::vector<double> const& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

template <class Call>
void expect_error(Call&& call, std::string const& text) {
  try {
    call();
    ADD_FAILURE() << "no error; expected: " << text;
  } catch (Error const& error) {
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
    EXPECT_NE(std::string(error.what()).find(text), std::string::npos) << error.what();
  }
}

/// a has the total 1, and b 1 + kExcess: both exactly.
class Totals : public BackendTest {
 protected:
  static constexpr int kSize = 64;
  static constexpr double kUnit = 1.0 / (1 << 25), kExcess = 17 * kUnit;  // 5e-7

  Totals() {
    for (int i = 0; i < kSize; ++i) {
      a_.push_back(i % 2 == 0 ? 1.0f / 128 : 3.0f / 128);
      b_.push_back(i < kSize / 2 ? 3.0f / 128 : 1.0f / 128);
      for (int j = 0; j < kSize; ++j) cost_.push_back(std::pow((i - j) / double{kSize}, 2));
    }
    for (double& cost : cost_) cost += 0.25;
    set_excess(kExcess);
  }
  void set_excess(double excess) {
    for (std::size_t j = 0; j < 16; ++j) b_[j] = static_cast<float>(3.0 / 128 + excess / 16);
  }

  CostMatrix matrix() const { return {MatrixView(cost_.data(), kSize, kSize)}; }
  static SolveOptions options() { return {.eps = 0.05, .tolerance = kTolerance}; }
  static std::vector<double> wide(std::vector<float> const& weights) { return {weights.begin(), weights.end()}; }

  /// The plan has the shares of b and the total of a, to the tolerance.
  template <class AnyPlan>
  void expect_marginals(AnyPlan const& plan) const {
    EXPECT_EQ(plan.status(), Status::converged) << plan.report().message;
    EXPECT_LE(plan.report().marginal_error, 10 * kTolerance);
    std::vector<double> row(kSize), column(kSize);
    plan.marginals(row, column);
    double const share = total(wide(b_));
    for (std::size_t i = 0; i < kSize; ++i) {
      EXPECT_NEAR(row[i], static_cast<double>(a_[i]), 10 * kTolerance);
      EXPECT_NEAR(column[i], static_cast<double>(b_[i]) / share, 10 * kTolerance);
    }
  }

  static constexpr double kTolerance = 1e-10;
  std::vector<float> a_, b_;
  std::vector<double> cost_;
};
MONGE_FOR_EACH_DEVICE(Totals);

TEST_P(Totals, of_float32_weights_may_differ_at_any_tolerance) {
  for (bool const both : {true, false}) {  // Or b alone.
    SCOPED_TRACE(both);
    std::vector<double> const a64 = wide(a_);
    VectorView const a = both ? VectorView(a_) : VectorView(a64);
    Plan const plan = solve(context(), matrix(), a, b_, options());
    expect_marginals(plan);
    EXPECT_EQ(plan.report().mass, plan.report().mass_b);
    SolveOptions newton = options();
    newton.method = Method::newton;
    expect_marginals(solve(context(), matrix(), a, b_, newton));
  }
}

TEST_P(Totals, of_float32_weights_may_differ_in_batches_and_divergences) {
  std::vector<double> const a64 = wide(a_), b64 = wide(b_);
  std::vector<BatchProblem> problems{{matrix(), a_, b_}, {matrix(), a_, b_}};
  for (Plan const& plan : solve_batch(context(), problems, options())) expect_marginals(plan);
  problems[1].b = b64;
  problems[1].a = a64;
  expect_error([&] { solve_batch(context(), problems, options()); }, "problem 1: b: the total is 1.0000005");

  DivergenceCosts const costs{matrix(), matrix(), matrix()};
  Divergence const divergence = sinkhorn_divergence(context(), costs, a_, b_, options());
  EXPECT_EQ(divergence.status(), Status::converged);
  expect_marginals(divergence.ab);
  EXPECT_LE(divergence.gap, 10 * kTolerance);
}

TEST_P(Totals, of_regularized_problems_of_float32_weights_may_differ_too) {
  Regularizer regularizer;
  regularizer.quadratic = 10;
  for (RegularizedMethod const method : {RegularizedMethod::newton, RegularizedMethod::splitting}) {
    RegularizedOptions options;
    options.method = method;
    options.tolerance = kTolerance;
    expect_marginals(solve_regularized(context(), matrix(), a_, b_, regularizer, options));
    std::vector<double> const a64 = wide(a_), b64 = wide(b_);
    expect_error([&] { solve_regularized(context(), matrix(), a64, b64, regularizer, options); },
                 "q: the total is 1.0000005");
  }
}

TEST_P(Totals, of_float64_weights_differ_by_half_of_the_tolerance_at_most) {
  std::vector<double> const a = wide(a_), b = wide(b_);
  SolveOptions rough = options();
  rough.tolerance = 1.01 * 2 * kExcess;
  EXPECT_EQ(solve(context(), matrix(), a, b, rough).status(), Status::converged);
  rough.tolerance = 0.99 * 2 * kExcess;
  expect_error([&] { solve(context(), matrix(), a, b, rough); }, "b: the total is 1.0000005");
  expect_error([&] { solve(context(), matrix(), a, b, options()); }, "to 5.0e-11 relative");
}

TEST_P(Totals, of_any_weights_differ_by_a_millionth_at_most) {
  set_excess(37 * kUnit);
  SolveOptions rough = options();
  rough.tolerance = 1e-3;
  for (SolveOptions const& each : {options(), rough})
    expect_error([&] { solve(context(), matrix(), a_, b_, each); }, "b: the total is 1.0000011");
}

// The weights as given, whatever an earlier solve made of them.
TEST_P(Totals, of_a_solver_are_those_given_where_penalties_let_them_differ) {
  Solver solver(context(), matrix(), a_, b_, options());
  expect_marginals(solver.solve());
  SolveOptions unbalanced = options();
  unbalanced.penalty_a = unbalanced.penalty_b = 1;
  Plan const plan = solver.solve(unbalanced);
  EXPECT_NEAR(plan.report().mass_b - plan.report().mass, kExcess, 1e-9);
  EXPECT_EQ(plan.f(), solve(context(), matrix(), a_, b_, unbalanced).f());
  solver.set_weights(b_, a_);
  EXPECT_EQ(solver.solve().g(), solve(context(), matrix(), b_, a_, options()).g());
}

}  // namespace
}  // namespace monge::oracle
