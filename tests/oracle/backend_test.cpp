#include "oracle/backend_test.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <string_view>

#ifdef MONGE_HAVE_CUDA
#include "cuda/launch/generation.hpp"
#endif

namespace monge::oracle {
namespace {

bool is_set(char const* variable) {
  char const* const value = std::getenv(variable);
  return value != nullptr && std::string_view(value) == "1";
}

void record(char const* what, Real quotient) {
  static Real largest = 0;
  static std::string last_test;
  testing::TestInfo const* const test = testing::UnitTest::GetInstance()->current_test_info();
  std::string const name = std::string(test->test_suite_name()) + "." + test->name();
  if (name != last_test) largest = 0;
  last_test = name;
  if (quotient <= largest) return;
  largest = quotient;
  testing::Test::RecordProperty("error_over_tolerance", std::to_string(static_cast<double>(quotient)));
  if (is_set("MONGE_SHOW_ERRORS")) std::cout << name << ": " << what << " " << static_cast<double>(quotient) << "\n";
}

}  // namespace

std::vector<Target> all_targets() {
  return {{DeviceType::cpu, Precision::float32},
          {DeviceType::cpu, Precision::float64},
          {DeviceType::cuda, Precision::float32},
          {DeviceType::cuda, Precision::tf32},
          {DeviceType::cuda, Precision::float64}};
}

std::vector<Target> short_precisions() {
  std::vector<Target> targets = all_targets();
  std::erase_if(targets, [](Target const& target) { return target.precision == Precision::float64; });
  return targets;
}

std::vector<Target> all_devices() {
  return {{DeviceType::cpu, Precision::float64}, {DeviceType::cuda, Precision::float64}};
}

std::vector<Target> ordered_targets() {
  Target target{.device = DeviceType::cpu, .precision = Precision::float32};
  target.truncation = 1e-290;
  std::vector<Target> targets(4, target);
  targets[1].precision = targets[3].precision = Precision::float64;
  targets[2].device = targets[3].device = DeviceType::cuda;
  return targets;
}

std::vector<Target> portable_targets() {
  return {{DeviceType::cuda, Precision::float32, Costs::points, true},
          {DeviceType::cuda, Precision::tf32, Costs::points, true},
          {DeviceType::cuda, Precision::float64, Costs::points, true},
          {DeviceType::cuda, Precision::float32, Costs::distances, true}};
}

std::vector<Target> with_all_costs(std::vector<Target> const& targets) {
  std::vector<Target> result;
  for (Costs const costs : {Costs::points, Costs::distances, Costs::random}) {
    for (Target target : targets) {
      target.costs = costs;
      if (target.precision != Precision::tf32 || has_points(costs)) result.push_back(target);
    }
  }
  return result;
}

std::vector<Target> with_point_costs(std::vector<Costs> const& costs) {
  std::vector<Target> result;
  for (Costs const cost : costs) {
    for (Target target : all_targets()) {
      target.costs = cost;
      bool const is_refused = target.device == DeviceType::cuda && cost == Costs::labelled_distances;
      if (target.precision != Precision::tf32 && !is_refused) result.push_back(target);
    }
  }
  return result;
}

std::vector<Target> operator+(std::vector<Target> targets, std::vector<Target> const& more) {
  targets.insert(targets.end(), more.begin(), more.end());
  return targets;
}

void PrintTo(Target const& target, std::ostream* out) {
  static constexpr char const* kCosts[] = {
      "", "_distances", "_random", "_labels", "_cosine", "_dot", "_euclidean", "_p_norm", "_labelled_distances"};
  *out << (target.device == DeviceType::cpu ? "cpu_" : "cuda_") << (target.portable ? "portable_" : "")
       << name(target.precision) << kCosts[static_cast<int>(target.costs)];
}

std::string target_name(testing::TestParamInfo<Target> const& info) {
  return testing::PrintToString(info.param);
}

Context make_context(DeviceType device, int threads) {
  return device == DeviceType::cpu ? Context::cpu(threads) : Context::cuda();
}

void require_device(DeviceType device) {
  if (device == DeviceType::cpu) return;
  std::string const reason = cuda_unavailable_reason();
  if (!reason.empty() && is_set("MONGE_REQUIRE_CUDA")) FAIL() << "MONGE_REQUIRE_CUDA=1, but: " << reason;
  if (!reason.empty()) GTEST_SKIP() << reason;
}

std::shared_ptr<void> use_portable_kernels() {
#ifdef MONGE_HAVE_CUDA
  cuda::newest_generation = cuda::Generation::sm_80;
  EXPECT_EQ(cuda::generation(), cuda::Generation::sm_80);
  return {&cuda::newest_generation, [](cuda::Generation* newest) { *newest = cuda::Generation::sm_90a; }};
#else
  return nullptr;
#endif
}

void BackendTest::SetUp() {
  require_device(GetParam().device);
  if (IsSkipped() || HasFatalFailure()) return;
  if (GetParam().portable) portable_ = use_portable_kernels();
  context_ = make_context(GetParam().device, threads_);
}

void expect_close(char const* what, std::span<double const> actual, Vector const& expected, Vector const& tolerance) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  ASSERT_EQ(actual.size(), tolerance.size()) << what;
  Real worst = -1;
  std::size_t where = 0;
  for (std::size_t i = 0; i < actual.size(); ++i) {
    Real const difference = std::abs(actual[i] - expected[i]);
    Real const quotient = difference == 0 ? 0 : difference / tolerance[i];
    if (quotient <= worst) continue;  // NaN is worse than anything
    worst = quotient;
    where = i;
    if (std::isnan(quotient)) break;
  }
  if (worst <= 1) {
    record(what, worst);
  } else {
    ADD_FAILURE() << what << "[" << where << "] of " << actual.size() << " is " << actual[where] << ", the oracle has "
                  << static_cast<double>(expected[where]) << ": off by "
                  << static_cast<double>(actual[where] - expected[where]) << " where "
                  << static_cast<double>(tolerance[where]) << " is allowed";
  }
}

void expect_close(char const* what, double actual, Real expected, Real tolerance) {
  expect_close(what, std::span(&actual, 1), Vector{expected}, Vector{tolerance});
}

Potentials potentials_of(EntropicOperator const& entropic) {
  std::vector<double> f(entropic.size(Side::rows)), g(entropic.size(Side::columns));
  entropic.get_potentials(f, g);
  return {widen(f), widen(g)};
}

Potentials potentials_of(Plan const& plan) {
  return {widen(plan.f()), widen(plan.g())};
}

void expect_iterates(Dense const& dense, Tolerance const& tolerance, double eps, Potentials const& actual,
                     Potentials const& expected, Real allowed, Penalties const& penalties) {
  for (Side const side : {Side::rows, Side::columns}) {
    std::vector<double> const& weight = dense.weights(side);
    Vector const& given = actual.of(other(side));
    Vector const transforms = dense.softmin(side, eps, given);
    Vector const transform_error = tolerance.softmin(side, given, transforms);
    Vector target = expected.of(side), error(target.size(), allowed);
    for (std::size_t i = 0; i < target.size(); ++i) {
      if (weight[i] > 0) continue;
      Real const rho = penalties.of(side);
      target[i] = std::isinf(rho) ? transforms[i] : transforms[i] * rho / (rho + eps);
      error[i] = transform_error[i];
    }
    expect_close(side == Side::rows ? "f" : "g", narrow(actual.of(side)), target, error);
  }
}

void expect_report_matches(Report const& report, Problem const& problem, double eps, Potentials const& potentials) {
  Dense const dense(problem);
  Penalties const penalties{report.penalty_a, report.penalty_b};
  DenseEvaluation const truth = evaluate(dense, eps, potentials, penalties);
  Arithmetic const float64 = arithmetic({}, Precision::float64, problem);
  EvaluationTolerance const tolerance = Tolerance(problem, eps, float64).evaluation(dense, potentials, penalties);
  EXPECT_TRUE(report.certified);
  expect_close("transported_mass", report.transported_mass, truth.mass, tolerance.mass);
  expect_close("marginal_error", report.marginal_error, truth.row_error + truth.column_error,
               tolerance.row_error + tolerance.column_error);
  expect_close("transport_cost", report.transport_cost, truth.transport_cost, tolerance.transport_cost);
  expect_close("primal", report.primal, truth.primal, tolerance.primal);
  expect_close("dual", report.dual, truth.dual, tolerance.dual);
  expect_close("gap", report.gap, truth.gap, tolerance.gap);
}

}  // namespace monge::oracle
