// GoogleTest's main. MONGE_INSTRUCTION_SET restricts the CPU's kernels to one instruction set by Highway's name;
// without it, in the build or in the machine, the exit code is 77. Without a usable GPU a last line counts the CUDA
// tests that were skipped and says why; the exit code is then 77, unless a test failed. A crash names its test.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <iostream>
#include <string>

#include "oracle/instruction_set.hpp"

namespace {

extern "C" void name_test(int signal) {
  std::signal(signal, SIG_DFL);
  testing::TestInfo const* const test = testing::UnitTest::GetInstance()->current_test_info();
  if (test != nullptr) std::cout << "[ CRASHED  ] " << test->test_suite_name() << "." << test->name() << std::endl;
  std::raise(signal);
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (!monge::oracle::restrict_instruction_set()) {
    std::cout << "tests skipped: no " << std::getenv("MONGE_INSTRUCTION_SET") << "\n";
    return 77;
  }
  std::signal(SIGABRT, name_test);
#ifndef __SANITIZE_ADDRESS__  // It reports these itself.
  for (int const signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL}) std::signal(signal, name_test);
#endif
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
  std::string const reason = monge::cuda_unavailable_reason();
  if (skipped == 0 || reason.empty()) return result;
  std::cout << "CUDA tests skipped: " << skipped << " (" << reason << ")\n";
  return result == 0 ? 77 : result;
}
