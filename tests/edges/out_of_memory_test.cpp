// One allocation of a public call fails, wherever it is made: the call then throws out_of_memory, or needs no memory
// there, and the next call is right.
#include <gtest/gtest.h>

#include <algorithm>

#include "edges/calls.hpp"
#include "edges/counted_malloc.hpp"

namespace monge::oracle {
namespace {

/// Calls numbers() again and again, and each time another of its allocations fails. Returns the share of these calls
/// that ended in an Error of out_of_memory; expects that other calls ended well, or for want of the test's own arrays.
template <class Work>
double share_of_errors(Work const& numbers) {
  (void)fail_allocation(-1);
  (void)numbers();
  std::int64_t const calls = fail_allocation(-1);
  constexpr std::int64_t kPlaces = 24;
  int errors = 0;
  for (std::int64_t place = 0; place < kPlaces; ++place) {
    // Spread over the call, more densely at its start, where most arrays are made.
    (void)fail_allocation(calls * place * place / (kPlaces * kPlaces));
    try {
      (void)numbers();
    } catch (Error const& error) {
      EXPECT_EQ(error.code(), ErrorCode::out_of_memory) << error.what();
      ++errors;
    } catch (std::bad_alloc const&) {
    }
    (void)fail_allocation(-1);
  }
  return static_cast<double>(errors) / kPlaces;
}

class OutOfMemory : public testing::TestWithParam<PublicCall> {};
INSTANTIATE_TEST_SUITE_P(, OutOfMemory, testing::ValuesIn(public_calls()),
                         [](testing::TestParamInfo<PublicCall> const& info) { return info.param.name; });

TEST_P(OutOfMemory, IsAnErrorAndTheNextCallIsRight) {
  Context const context = Context::cpu(2);
  auto const numbers = [&] { return GetParam().numbers(context); };
  std::vector<double> const expected = numbers();
  EXPECT_GT(share_of_errors(numbers), 0.25);
  EXPECT_TRUE(std::ranges::equal(numbers(), expected));
}

TEST(OutOfMemoryOfPlans, LeavesThemAsTheyWere) {
  Context const context = Context::cpu(2);
  Plan const plan = plan_for_calls(context);
  for (PlanCall const& call : plan_calls()) {
    auto const numbers = [&] { return call.numbers(plan); };
    std::vector<double> const expected = call.numbers(plan_for_calls(context));
    EXPECT_GT(share_of_errors(numbers), 0) << call.name;
    EXPECT_TRUE(std::ranges::equal(numbers(), expected)) << call.name;
  }
}

}  // namespace
}  // namespace monge::oracle
