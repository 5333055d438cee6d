// Products in float64 as devices before sm_90 make them. The passes of a newer device take larger ones.
#include "cuda/double_products.hpp"

#include "oracle/backend_test.hpp"

namespace monge::oracle {
namespace {

// Products and sums of small integers are exact in any order, and each element of the result is another number.
TEST(DoubleProducts, on_cuda_in_parts_are_the_product) {
  require_device(DeviceType::cuda);
  if (testing::Test::IsSkipped() || testing::Test::HasFatalFailure()) return;
  Random random(1);
  auto const integers = [&](std::size_t count) {
    std::vector<double> values(count);
    for (double& value : values) value = std::floor(random.uniform(-100, 100));
    return values;
  };
  std::vector<double> const a = integers(16 * 16), b = integers(16 * 8), c = integers(16 * 8);
  std::vector<double> expected = c, actual(c.size());
  for (std::size_t i = 0; i < 16; ++i) {
    for (std::size_t j = 0; j < 8; ++j) {
      for (std::size_t k = 0; k < 16; ++k) expected[8 * i + j] += a[16 * i + k] * b[8 * k + j];
    }
  }
  multiply_in_parts(a.data(), b.data(), c.data(), actual.data());
  EXPECT_EQ(actual, expected);
}

}  // namespace
}  // namespace monge::oracle
