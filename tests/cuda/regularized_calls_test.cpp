// What regularised solves and their plans ask of the device: the caller's stream and the caller's memory.
#include <cmath>
#include <limits>
#include <string>
#include <thread>

#include "cuda/backend.hpp"
#include "cuda/outputs.hpp"
#include "cuda/runtime/runtime.hpp"
#include "oracle/backend_test.hpp"
#include "oracle/device_memory.hpp"
#include "oracle/gate.hpp"

namespace monge::oracle {
namespace {

struct Case {
  std::string name;
  std::int64_t n, m;
  RegularizedMethod method;
  Regularizer regularizer;
};

/// The kernels of each method. 1000 x 900 entries stay in the shared memory of a large GPU.
std::vector<Case> cases() {
  static std::vector<std::int64_t> const groups = [] {
    std::vector<std::int64_t> result(150);
    for (std::size_t i = 0; i < result.size(); ++i) result[i] = static_cast<std::int64_t>(i * 7 % 4);
    return result;
  }();
  auto const splitting = RegularizedMethod::splitting, newton = RegularizedMethod::newton;
  std::vector<Case> result{{"splitting", 150, 130, splitting, {}},
                           {"group lasso", 150, 130, splitting, {}},
                           {"hypentropy", 150, 130, splitting, {}},
                           {"many iterations in a launch", 1000, 900, splitting, {}},
                           {"newton", 150, 130, newton, {}}};
  result[0].regularizer.quadratic = result[3].regularizer.quadratic = result[4].regularizer.quadratic = 100;
  result[1].regularizer.group_lasso = 0.1;
  result[1].regularizer.groups = {groups.data(), std::ssize(groups), 1, {}};
  result[2].regularizer.hypentropy = 0.05;
  result[2].regularizer.hypentropy_width = 0.001;
  return result;
}

/// The costs of a case on the device, and what its plans write to.
class Arrays {
 public:
  explicit Arrays(Case const& test)
      : n_(test.n),
        m_(test.m),
        costs_(random_values(n_ * m_), n_, m_),
        given_(poison(n_ * m_), n_, m_),
        factors_(random_values(2 * m_), m_, 2),
        dense_(poison(n_ * m_), n_, m_),
        product_(poison(2 * n_), n_, 2),
        row_(poison(n_), n_, 1),
        column_(poison(m_), m_, 1),
        u_(poison(n_), n_, 1),
        v_(poison(m_), m_, 1) {
    given_.fill(std::numeric_limits<double>::quiet_NaN());
    check(cudaDeviceSynchronize());
  }

  /// The matrix that solves read. No costs are in it before this copy has been made.
  CostMatrix given() const { return {given_.matrix()}; }
  void give_costs(cudaStream_t stream) {
    check(cudaMemcpyAsync(given_.mutable_matrix().data(), costs_.matrix().data(),
                          static_cast<std::size_t>(n_ * m_) * sizeof(double), cudaMemcpyDeviceToDevice, stream));
  }
  /// Calls that promise not to wait.
  void read(RegularizedPlan const& plan) {
    plan.dense(dense_.mutable_matrix());
    plan.apply(factors_.matrix(), product_.mutable_matrix());
    plan.marginals(row_.mutable_vector(), column_.mutable_vector());
    plan.potentials(u_.mutable_vector(), v_.mutable_vector());
  }
  std::vector<std::vector<double>> values() {
    return {dense_.values(), product_.values(), row_.values(), column_.values(), u_.values(), v_.values()};
  }
  bool is_untouched() {
    for (std::vector<double> const& output : values()) {
      for (double const value : output) {
        if (value != kPoison) return false;
      }
    }
    return true;
  }

 private:
  std::vector<double> random_values(std::int64_t size) {
    std::vector<double> result(static_cast<std::size_t>(size));
    for (double& value : result) value = random_.uniform(0, 1);
    return result;
  }
  static std::vector<double> poison(std::int64_t size) {
    return std::vector<double>(static_cast<std::size_t>(size), kPoison);
  }

  Random random_{5};
  std::int64_t n_, m_;
  OnDevice<double> costs_, given_, factors_, dense_, product_, row_, column_, u_, v_;
};

class RegularizedCalls : public BackendTest {
 protected:
  /// Splitting in the precision of the target. Newton's method is always in float64.
  RegularizedPlan solve(Context const& where, Case const& test, Arrays const& arrays) const {
    RegularizedOptions options{.method = test.method, .tolerance = 1e-3, .iterations = 200};
    if (test.method == RegularizedMethod::splitting) options.precision = precision();
    return solve_regularized(where, arrays.given(), {}, {}, test.regularizer, options);
  }
};
INSTANTIATE_TEST_SUITE_P(, RegularizedCalls,
                         testing::Values(Target{DeviceType::cuda, Precision::float32},
                                         Target{DeviceType::cuda, Precision::float64}),
                         target_name);

TEST_P(RegularizedCalls, run_on_the_stream_of_the_caller) {
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  Context const own = Context::cuda({.stream = stream});
  cuda::RuntimeCounters const& counters = cuda::runtime_of(own).counters();
  for (Case const& test : cases()) {
    SCOPED_TRACE(test.name);
    Arrays expected(test), actual(test);
    expected.give_costs(nullptr);
    expected.read(solve(context(), test, expected));
    check(cudaDeviceSynchronize());
    EXPECT_FALSE(expected.is_untouched());

    // The costs come late. A kernel of another stream would find none.
    check(cudaLaunchHostFunc(
        stream, [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(50)); }, nullptr));
    actual.give_costs(stream);
    RegularizedPlan const plan = solve(own, test, actual);
    Gate gate(stream);
    std::int64_t const waits = counters.waits;
    actual.read(plan);
    EXPECT_EQ(counters.waits, waits);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));  // Time for what runs on another stream.
    EXPECT_TRUE(actual.is_untouched()) << "while the stream is held up";
    gate.open();
    check(cudaStreamSynchronize(stream));
    EXPECT_EQ(actual.values(), expected.values());
  }
  EXPECT_EQ(cudaStreamQuery(stream), cudaSuccess);
}

TEST_P(RegularizedCalls, give_all_memory_back) {
  Pool pool;
  {
    Context const own = Context::cuda({.allocator = pool.allocator()});
    for (Case const& test : cases()) {
      SCOPED_TRACE(test.name);
      Arrays arrays(test);
      arrays.give_costs(nullptr);
      {
        RegularizedPlan const plan = solve(own, test, arrays);
        arrays.read(plan);
        EXPECT_FALSE(pool.out.empty());
      }
      EXPECT_EQ(cuda::runtime_of(own).counters().allocations, pool.allocations);
      EXPECT_TRUE(pool.out.empty());
      EXPECT_EQ(pool.bytes, 0u);
    }
  }
  EXPECT_GT(pool.allocations, 0);
  EXPECT_EQ(pool.wrong_releases, 0);
  check(cudaDeviceSynchronize());
}

}  // namespace
}  // namespace monge::oracle
