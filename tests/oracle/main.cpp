// GoogleTest's main, with a last line that counts the CUDA tests that were skipped and says why.
#include <gtest/gtest.h>

#include <iostream>
#include <string>

#include <monge/context.hpp>

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  int const result = RUN_ALL_TESTS();
  testing::UnitTest const& all = *testing::UnitTest::GetInstance();
  int skipped = 0;
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    testing::TestSuite const& suite = *all.GetTestSuite(i);
    for (int k = 0; k < suite.total_test_count(); ++k) {
      testing::TestInfo const& test = *suite.GetTestInfo(k);
      skipped += test.result()->Skipped() && std::string(test.name()).find("cuda") != std::string::npos;
    }
  }
  if (skipped > 0) {
    std::cout << "CUDA tests skipped: " << skipped << " (" << monge::cuda_unavailable_reason() << ")\n";
  }
  return result;
}
