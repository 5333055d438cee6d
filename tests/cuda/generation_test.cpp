// Which kernels each generation of GPUs gets. Tests named cuda_portable rest on this choice.
#include "cuda/launch/generation.hpp"

#include <set>

#include "cuda/backend.hpp"
#include "cuda/entries/entry_product.hpp"
#include "cuda/entropic/entropic_operator.hpp"
#include "oracle/backend_test.hpp"

namespace monge::oracle {
namespace {

using cuda::Generation;
using cuda::Pass;
using cuda::ScoreKernel;

constexpr int kHopperBytes = 227 * 1024 - cuda::kArgumentBytes;
constexpr int kLeastBytes = cuda::kLeastSharedBytes - cuda::kArgumentBytes;

cuda::PassKernel kernel_of(Pass pass, Generation generation, int half_stride, int shared_bytes = kHopperBytes) {
  return cuda::mma_kernel(pass, ScoreKernel::three_products, generation, half_stride, shared_bytes);
}

TEST(PassKernels, differ_between_sm_90a_and_all_before) {
  for (Pass const pass : {Pass::softmin, Pass::product, Pass::entries, Pass::logits, Pass::hadamard}) {
    for (int const stride : {16, 32, 64, 128, 448, 832}) {
      SCOPED_TRACE(testing::Message() << "pass " << static_cast<int>(pass) << ", " << stride << " coordinates");
      cuda::PassKernel const ampere = kernel_of(pass, Generation::sm_80, stride);
      EXPECT_EQ(ampere.kernel.one, kernel_of(pass, Generation::sm_90, stride).kernel.one);
      EXPECT_NE(ampere.kernel.one, kernel_of(pass, Generation::sm_90a, stride).kernel.one);
      EXPECT_EQ(ampere.merged, 1);
    }
  }
}

TEST(PassKernels, fit_the_shared_memory) {
  for (Generation const generation : {Generation::sm_80, Generation::sm_90a}) {
    int const limit = generation == Generation::sm_80 ? kLeastBytes : kHopperBytes;
    for (ScoreKernel const scores : {ScoreKernel::one_product, ScoreKernel::three_products}) {
      std::set<void (*)(cuda::One<cuda::PassArguments>)> kernels;
      for (int const stride : {16, 32, 64, 128, 192, 448, 832, 4096}) {
        cuda::PassKernel const kernel = cuda::mma_kernel(Pass::softmin, scores, generation, stride, limit);
        EXPECT_LE(kernel.shared_bytes, limit) << stride << " coordinates";
        EXPECT_EQ(stride % kernel.chunks, 0);
        kernels.insert(kernel.kernel.one);
      }
      // One chunk of three widths; rows that stay in shared memory; rows that pass through it.
      EXPECT_EQ(kernels.size(), 5u);
    }
  }
}

class PortableKernels : public testing::Test {
 protected:
  void SetUp() override { require_device(DeviceType::cuda); }
};

TEST_F(PortableKernels, are_what_a_limit_on_cuda_chooses) {
  Generation const before = cuda::generation();
  {
    auto const portable = use_portable_kernels();
    EXPECT_EQ(cuda::generation(), Generation::sm_80);
    EXPECT_EQ(cuda::most_shared_bytes(), cuda::kLeastSharedBytes);
    Problem const points = make_problem({300, 200, 40});
    Problem const matrix = make_problem({.n = 300, .m = 200, .d = 3, .costs = Costs::random});
    auto const costs_of = [](Problem const& problem, auto const& check) {
      auto const entropic = backend_of(Context::cuda())
                                .entropic_operator(problem.geometry(), {problem.a, problem.b}, {Precision::float32, 0});
      check(*static_cast<cuda::EntropicOperator const&>(*entropic).problem().costs);
    };
    costs_of(points, [](cuda::Costs const& costs) {
      for (Pass const pass : {Pass::softmin, Pass::product, Pass::entries, Pass::logits}) {
        EXPECT_EQ(costs.launch(Side::rows, 0, costs.padded_size(Side::rows), pass).plan.kernel.kernel.one,
                  kernel_of(pass, Generation::sm_80, 64).kernel.one);
      }
    });
    costs_of(matrix, [](cuda::Costs const& costs) { EXPECT_FALSE(costs.fused_sweep().has_value()); });
    EXPECT_FALSE(cuda::plan_entry_product(256, 256, 128, 1).wgmma);
  }
  EXPECT_EQ(cuda::generation(), before);
}

}  // namespace
}  // namespace monge::oracle
