// What entries are selected with: running sums, and memory that does not grow with k.
#include "cuda/plan/select.hpp"

#include "oracle/backend_test.hpp"
#include "oracle/device_memory.hpp"

namespace monge::oracle {
namespace {

class Select : public testing::Test {
 protected:
  void SetUp() override { require_device(DeviceType::cuda); }
};

// A row is drawn where the sums pass a number: one that adds nothing must not.
TEST_F(Select, on_cuda_by_sums_that_ascend_and_stay_where_nothing_is_added) {
  Random random(1);
  for (std::int64_t const size : {1, 700, 20000}) {
    std::vector<double> values(size);
    for (double& value : values) value = random.uniform(0, 1) < 0.5 ? 0.0 : random.uniform(0, 1);
    OnDevice<double> const in(values, size, 1);
    OnDevice<double> out(values, size, 1);
    cuda::running_sums(static_cast<double const*>(in.matrix().data()), size,
                       static_cast<double*>(out.mutable_matrix().data()), nullptr);
    std::vector<double> const sums = out.values();
    double before = 0;
    Real exact = 0;
    for (std::int64_t i = 0; i < size; ++i) {
      exact += values[i];
      // Each sum is of at most `size` roundings.
      ASSERT_NEAR(sums[i], exact, static_cast<double>(exact) * static_cast<double>(size) * 0x1p-53) << i;
      ASSERT_TRUE(values[i] > 0 ? sums[i] >= before : sums[i] == before) << i << " of " << size;
      before = sums[i];
    }
  }
}

// Lists to sort take 4 MiB a row here, 280 together; the largest 64 of a row take none.
TEST_F(Select, on_cuda_in_bounded_memory_whatever_the_number) {
  std::int64_t const n = 70, m = 300000;
  Problem const problem = make_problem({n, m, 3});
  Pool pool;
  {
    Context const context = Context::cuda({.allocator = pool.allocator()});
    auto const entropic =
        backend_of(context).entropic_operator(problem.geometry(), {problem.a, problem.b}, {Precision::float32, 0});
    entropic->set_potentials({}, {});
    auto const plan = entropic->plan(Magnitudes(problem).spread());
    auto const largest = [&](std::int64_t k) {
      std::pair<std::vector<std::int64_t>, std::vector<double>> found{n * k, n * k};
      plan->entries().top_k(Side::rows, {found.first.data(), n, k, k, {}}, {found.second.data(), n, k});
      return found;
    };
    auto const [indices, values] = largest(64);
    auto const [all_indices, all_values] = largest(m);
    for (std::int64_t i = 0; i < n; ++i) {
      for (std::int64_t q = 0; q < 64; ++q) {
        ASSERT_EQ(all_indices[i * m + q], indices[i * 64 + q]) << "row " << i << ", rank " << q;
        ASSERT_EQ(all_values[i * m + q], values[i * 64 + q]);
      }
      std::vector<bool> seen(m);
      for (std::int64_t q = 0; q < m; ++q) {
        std::int64_t const j = all_indices[i * m + q];
        ASSERT_TRUE(j >= 0 && j < m && !seen[j]) << "row " << i << ", rank " << q;
        seen[j] = true;
      }
    }
  }
  // The results are 8 bytes an entry; they came through staging memory.
  EXPECT_LE(pool.largest_block, std::size_t{256} << 20);
}

}  // namespace
}  // namespace monge::oracle
