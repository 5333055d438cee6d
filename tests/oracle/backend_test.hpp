// The one fixture: a test of a BackendTest runs once for each device, precision and geometry, named cpu_float32,
// cuda_float64_random and so on. A name with cuda_portable is a test of the kernels that all CUDA devices can run, on
// whatever device there is. Where CUDA is not usable its tests skip, or fail if the environment says
// MONGE_REQUIRE_CUDA=1.
#pragma once
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <monge/monge.hpp>

#include "oracle/dense.hpp"
#include "oracle/tolerance.hpp"
#include "seam/backend.hpp"

namespace monge::oracle {

struct Target {
  DeviceType device;
  Precision precision;
  Costs costs = Costs::points;
  bool portable = false;  // The kernels that all CUDA devices can run.
  double truncation = 0;  // OperatorOptions::truncation.
};
void PrintTo(Target const& target, std::ostream* out);
std::vector<Target> all_targets();
/// Those short of float64.
std::vector<Target> short_precisions();
/// Float64 on each device: for what does not depend on the precision, and for what needs it.
std::vector<Target> all_devices();
/// The portable kernels, with points and with a matrix.
std::vector<Target> portable_targets();
/// Operators that keep points in the order of a tree, and leave out what no tolerance of a test sees.
std::vector<Target> ordered_targets();
/// Each of these, with squared distances of points and with matrices. Products, and so tf32, are of points alone.
std::vector<Target> with_all_costs(std::vector<Target> const& targets);
/// All costs of points but squared distances.
inline std::vector<Costs> const kPointCosts{Costs::labels,    Costs::cosine, Costs::dot,
                                            Costs::euclidean, Costs::p_norm, Costs::labelled_distances};
/// Float32 and float64 of each device, with each of these costs of points that it takes.
std::vector<Target> with_point_costs(std::vector<Costs> const& costs);
std::vector<Target> operator+(std::vector<Target> targets, std::vector<Target> const& more);
std::string target_name(testing::TestParamInfo<Target> const& info);
/// A test on a CUDA device calls it from SetUp: skips, or fails with MONGE_REQUIRE_CUDA=1, where CUDA is not usable.
void require_device(DeviceType device);
/// On the CPU with this many threads.
Context make_context(DeviceType device, int threads = 1);
/// While the result lives, this thread gets the portable CUDA kernels.
std::shared_ptr<void> use_portable_kernels();

class BackendTest : public testing::TestWithParam<Target> {
 protected:
  /// One thread is the fastest for problems of this size.
  explicit BackendTest(int threads = 1) : threads_(threads) {}
  void SetUp() override;
  Context const& context() const { return *context_; }
  Precision precision() const { return GetParam().precision; }
  bool is_float64() const { return precision() == Precision::float64; }
  /// Arithmetic of costs between points of d dimensions, or of the matrix in their place.
  Arithmetic arithmetic(std::int64_t d) const {
    return oracle::arithmetic({GetParam().device}, precision(), d, GetParam().costs);
  }
  /// With the geometry of the target.
  Problem make_problem(Recipe recipe) const {
    recipe.costs = GetParam().costs;
    return oracle::make_problem(recipe);
  }

  std::unique_ptr<EntropicOperator> make_operator(Problem const& problem, double cache_bytes = 1e9,
                                                  Penalties const& penalties = {}) const {
    return backend_of(context()).entropic_operator(problem.geometry(), {problem.a, problem.b},
                                                   {precision(), cache_bytes, penalties, truncation(problem.d())});
  }
  /// OperatorOptions::truncation for points of d dimensions: on a CUDA device operators of many take all pairs.
  double truncation(std::int64_t d) const {
    return GetParam().device == DeviceType::cuda && d > 8 ? 0 : GetParam().truncation;
  }

 private:
  int threads_;
  std::shared_ptr<void> portable_;
  std::optional<Context> context_;
};

#define MONGE_FOR_EACH_OF(Suite, targets) \
  INSTANTIATE_TEST_SUITE_P(, Suite, testing::ValuesIn(targets), ::monge::oracle::target_name)
#define MONGE_FOR_EACH_TARGET(Suite) \
  MONGE_FOR_EACH_OF(Suite, ::monge::oracle::with_all_costs(::monge::oracle::all_targets()))
/// Targets with all costs; they suit tests that take recipes() only.
#define MONGE_FOR_EACH_COST_TARGET(Suite)                                                        \
  MONGE_FOR_EACH_OF(Suite, ::monge::oracle::with_all_costs(::monge::oracle::all_targets()) +     \
                               ::monge::oracle::with_point_costs(::monge::oracle::kPointCosts) + \
                               ::monge::oracle::portable_targets())
/// Beside the other targets.
#define MONGE_FOR_EACH_ORDERED(Suite)                                                             \
  INSTANTIATE_TEST_SUITE_P(ordered, Suite, testing::ValuesIn(::monge::oracle::ordered_targets()), \
                           ::monge::oracle::target_name)
#define MONGE_FOR_EACH_POINT_TARGET(Suite) MONGE_FOR_EACH_OF(Suite, ::monge::oracle::all_targets())
#define MONGE_FOR_EACH_SHORT_PRECISION(Suite) MONGE_FOR_EACH_OF(Suite, ::monge::oracle::short_precisions())
#define MONGE_FOR_EACH_DEVICE(Suite) MONGE_FOR_EACH_OF(Suite, ::monge::oracle::all_devices())

/// Fails with the worst element if any |actual - expected| exceeds its tolerance. The largest quotient of the test goes
/// to the property error_over_tolerance of its XML report, and to stdout with MONGE_SHOW_ERRORS=1.
void expect_close(char const* what, std::span<double const> actual, Vector const& expected, Vector const& tolerance);
void expect_close(char const* what, double actual, Real expected, Real tolerance);

/// Float64 potentials of an operator or plan for the oracle.
Potentials potentials_of(EntropicOperator const& entropic);
Potentials potentials_of(Plan const& plan);
/// Iterates to within `allowed`. Points of no weight take no part in sweeps: theirs must be the softmin of the other
/// side.
void expect_iterates(Dense const& dense, Tolerance const& tolerance, double eps, Potentials const& actual,
                     Potentials const& expected, Real allowed, Penalties const& penalties = {});
/// With the penalties of the report.
void expect_report_matches(Report const& report, Problem const& problem, double eps, Potentials const& potentials);

}  // namespace monge::oracle
