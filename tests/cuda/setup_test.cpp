// What comes before and after the sweeps of a solve: packing, the float64 twin, the certificate. How often it waits,
// and what it finds out.
#include <cmath>

#include "cuda/backend.hpp"
#include "cuda/runtime/runtime.hpp"
#include "oracle/backend_test.hpp"
#include "oracle/device_memory.hpp"

namespace monge::oracle {
namespace {

class DeviceSetup : public BackendTest {
 protected:
  std::int64_t waits() const { return cuda::runtime_of(context()).counters().waits; }
};
INSTANTIATE_TEST_SUITE_P(, DeviceSetup,
                         testing::Values(Target{DeviceType::cuda, Precision::float32},
                                         Target{DeviceType::cuda, Precision::float64}),
                         target_name);

TEST_P(DeviceSetup, and_the_certificate_wait_for_the_device_once_each) {
  for (std::int64_t const d : {3, 40}) {
    SCOPED_TRACE(testing::Message() << "d " << d);
    std::int64_t const n = 300, m = 200;
    Problem const problem = make_problem({n, m, d});
    OnDevice<float> const x(problem.x.values(), n, d), y(problem.y.values(), m, d, 5);
    OnDevice<double> const a(problem.a, n, 1), b(problem.b, m, 1);
    check(cudaDeviceSynchronize());
    SolveOptions const options{.eps = 0.1 * Magnitudes(problem).spread(), .tolerance = 1e-3, .precision = precision()};
    auto const waits_outside_checks = [&](PointCloud const& clouds, VectorView a_view, VectorView b_view) {
      std::int64_t const before = waits();
      Report const report = solve(context(), clouds, a_view, b_view, options).report();
      EXPECT_EQ(report.status, Status::converged);
      EXPECT_TRUE(report.certified);
      return waits() - before - static_cast<std::int64_t>(report.history.size());
    };
    EXPECT_EQ(waits_outside_checks({x.matrix(), y.matrix()}, {}, {}), 2);
    EXPECT_EQ(waits_outside_checks(problem.clouds(), problem.a, problem.b), 2);
    EXPECT_EQ(waits_outside_checks({x.matrix(), y.matrix()}, a.vector(), b.vector()), 4) << "the weights as well";
  }
}

TEST_P(DeviceSetup, finds_the_mean_cost) {
  for (std::int64_t const d : {1, 3, 8, 40, 100}) {
    for (Place const place : {Place::origin, Place::shifted, Place::apart}) {
      SCOPED_TRACE(testing::Message() << "d " << d << ", place " << static_cast<int>(place));
      Problem const problem = make_problem({333, 70, d, Weights::with_zeros, place, 1, DataType::float32, 2, 0.5, 2.5});
      Dense const dense(problem);
      std::vector<double> const &a = dense.weights(Side::rows), &b = dense.weights(Side::columns);
      Real sum = 0, mass = 0;
      for (std::int64_t i = 0; i < problem.n(); ++i) {
        for (std::int64_t j = 0; j < problem.m(); ++j) {
          sum += Real(a[i]) * b[j] * dense.cost(Side::rows, i, j);
          mass += Real(a[i]) * b[j];
        }
      }
      // Each coordinate of x', y' and w is rounded once, and their squares and products add up in about log2(n d)
      // steps.
      Real const rounding = (4 + std::log2(Real(problem.n() * d))) * 0x1p-53L;
      expect_close("mean_cost", make_operator(problem)->cost_size().mean, sum / mass, rounding * dense.largest_cost());
    }
  }
}

// An operator that has swept a while launches graphs, a new one its kernels one by one.
TEST_P(DeviceSetup, sweeps_from_graphs_and_without_agree) {
  auto const portable = use_portable_kernels();  // Other sweeps of so small a problem are resident.
  for (bool const symmetric : {false, true}) {
    Problem const problem = make_problem({150, 130, 5});
    double const eps = 0.1 * Magnitudes(problem).spread();
    auto const used = make_operator(problem), fresh = make_operator(problem);
    used->sweep({2 * eps, symmetric, 1.0}, 130);
    for (EntropicOperator* entropic : {used.get(), fresh.get()}) {
      entropic->set_potentials({}, {});
      entropic->sweep({eps, symmetric, 1.0}, 10);
    }
    EXPECT_EQ(potentials_of(*used).f, potentials_of(*fresh).f);
    EXPECT_EQ(potentials_of(*used).g, potentials_of(*fresh).g);
  }
}

TEST_P(DeviceSetup, of_a_solver_allocates_nothing_anew_but_for_plans) {
  std::int64_t const n = 300, m = 200, d = 40;
  Problem const first = make_problem({n, m, d, Weights::skewed}),
                second = make_problem({.n = n, .m = m, .d = d, .seed = 2});
  OnDevice<double> const x(first.x.values(), n, d), y(first.y.values(), m, d);
  OnDevice<double> const other_x(second.x.values(), n, d), other_y(second.y.values(), m, d);
  check(cudaDeviceSynchronize());
  SolveOptions const options{
      .eps = 0.1 * Magnitudes(first).spread(), .tolerance = 1e-3, .precision = precision(), .certificate = false};
  cuda::RuntimeCounters const& counters = cuda::runtime_of(context()).counters();
  Solver solver(context(), PointCloud{x.matrix(), y.matrix()}, options);
  auto const allocations_of_a_solve = [&] {
    std::int64_t const before = counters.allocations;
    Plan const plan = solver.solve();
    EXPECT_EQ(plan.status(), Status::converged);
    return counters.allocations - before;
  };
  std::int64_t const at_first = allocations_of_a_solve(), of_a_plan = allocations_of_a_solve();
  EXPECT_LT(of_a_plan, at_first);
  EXPECT_LE(of_a_plan, 2) << "its potentials";
  solver.set_geometry(PointCloud{other_x.matrix(), other_y.matrix(), 2.0});
  EXPECT_EQ(allocations_of_a_solve(), of_a_plan);
  std::vector<double> const a(first.a.rbegin(), first.a.rend());
  solver.set_weights(a, {});
  EXPECT_EQ(allocations_of_a_solve(), of_a_plan);
}

}  // namespace
}  // namespace monge::oracle
