// The caller's allocator, and what a context asks of its device. Built where there is a CUDA toolkit.
#include <deque>
#include <optional>

#include "cuda/backend.hpp"
#include "cuda/runtime/runtime.hpp"
#include "oracle/backend_test.hpp"
#include "oracle/device_memory.hpp"

namespace monge::oracle {
namespace {

class CudaContext : public testing::Test {
 protected:
  void SetUp() override { require_device(DeviceType::cuda); }

  Problem const problem = make_problem({300, 200, 3});
  SolveOptions const options{.eps = 0.5, .tolerance = 1e-3, .precision = Precision::float32};

  Plan solved(Context const& context) const {
    return solve(context, problem.geometry(), problem.a, problem.b, options);
  }
  /// 40 x 40 with so many iterations that the backward pass keeps them in global memory.
  static std::vector<float> projected(Context const& context) {
    std::vector<float> logits(3 * 40 * 40), d_logits(logits.size());
    for (std::size_t k = 0; k < logits.size(); ++k) logits[k] = static_cast<float>(k % 7);
    BatchView const view(logits.data(), 3, 40, 40);
    project_backward(context, view, view, {d_logits.data(), 3, 40, 40}, {.iterations = 2000});
    return d_logits;
  }
};

TEST_F(CudaContext, cuda_memory_all_comes_from_the_allocator_of_the_caller_and_goes_back) {
  Pool pool;
  {
    std::optional<Context> context = Context::cuda({.allocator = pool.allocator()});
    Plan const plan = solved(*context);
    EXPECT_EQ(plan.f(), solved(Context::cuda()).f());
    EXPECT_EQ(projected(*context), projected(Context::cuda()));
    EXPECT_EQ(cuda::runtime_of(*context).counters().allocations, pool.allocations);
    EXPECT_GT(pool.allocations, 0);
    context.reset();
    EXPECT_FALSE(pool.out.empty()) << "the plan lives on";
    plan.f();
  }
  EXPECT_TRUE(pool.out.empty());
  EXPECT_EQ(pool.wrong_releases, 0);
  check(cudaDeviceSynchronize());
}

TEST_F(CudaContext, cuda_allocator_without_memory_is_out_of_memory) {
  Pool pool;
  Context const context = Context::cuda({.allocator = pool.allocator()});
  // Arrays of rows and partial sums are too large for pieces that several arrays share.
  Problem const large = make_problem({40000, 5, 3});
  auto const solve_large = [&] { return solve(context, large.geometry(), large.a, large.b, options); };
  solve_large();
  int const first = pool.allocations;
  solve_large();
  int const each = pool.allocations - first;
  ASSERT_GT(each, 2);
  for (int const limit : {0, 1, each - 1}) {
    pool.limit = pool.allocations + limit;
    try {
      solve_large();
      ADD_FAILURE() << "no error";
    } catch (Error const& error) {
      EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
      EXPECT_EQ(std::string(error.what()).rfind("allocator: returned null; must return ", 0), 0u) << error.what();
    }
    EXPECT_TRUE(pool.out.empty()) << "after " << limit << " allocations";
  }
  pool.limit = 1000000;
  EXPECT_EQ(solved(context).status(), Status::converged);
}

/// Small arrays are cut from pieces, which go back when the last of their arrays does. Results that outlive the next
/// call keep the pieces of both: with pieces that grew from call to call a loop would hold 64 MiB for some 100 KiB.
TEST_F(CudaContext, cuda_results_that_outlive_the_next_calls_keep_small_pieces) {
  Pool pool;
  Context const context = Context::cuda({.allocator = pool.allocator()});
  {
    std::deque<Plan> kept;
    for (int k = 0; k < 60; ++k) {
      kept.push_back(solved(context));
      if (kept.size() > 5) kept.pop_front();
    }
    constexpr std::size_t kMebibyte = std::size_t{1} << 20;
    EXPECT_LE(pool.largest_block, 4 * kMebibyte);
    EXPECT_LE(pool.most_bytes, 16 * kMebibyte);
    std::vector<double> const expected = solved(Context::cuda()).f();
    for (Plan const& plan : kept) EXPECT_EQ(plan.f(), expected);
  }
  EXPECT_TRUE(pool.out.empty());
}

TEST_F(CudaContext, cuda_allocator_needs_both_functions) {
  Pool pool;
  auto const expect = [](std::string const& text, DeviceAllocator const& allocator) {
    try {
      Context::cuda({.allocator = allocator});
      ADD_FAILURE() << "no error";
    } catch (Error const& error) {
      EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
      EXPECT_EQ(std::string(error.what()), text);
    }
  };
  expect("allocator: lacks release; must have both functions, or neither", {.allocate = pool.allocator().allocate});
  expect("allocator: lacks allocate; must have both functions, or neither", {.release = pool.allocator().release});
}

TEST_F(CudaContext, cuda_projections_in_device_memory_neither_allocate_nor_wait) {
  Context const context = Context::cuda();
  float* memory = nullptr;
  check(cudaMalloc(reinterpret_cast<void**>(&memory), 2 * 16 * sizeof(float)));
  check(cudaMemset(memory, 0, 2 * 16 * sizeof(float)));
  check(cudaDeviceSynchronize());
  Device const device = context.device();
  project(context, {memory, 1, 4, 4, kContiguous, kContiguous, device},
          {memory + 16, 1, 4, 4, kContiguous, kContiguous, device}, {});
  EXPECT_EQ(cuda::runtime_of(context).counters().allocations, 0);
  EXPECT_EQ(cuda::runtime_of(context).counters().waits, 0);
  projected(context);
  EXPECT_GT(cuda::runtime_of(context).counters().allocations, 0);
  EXPECT_GT(cuda::runtime_of(context).counters().waits, 0) << "for host memory";
  check(cudaFree(memory));
}

}  // namespace
}  // namespace monge::oracle
