// Threads of the library: exceptions, forks, and systems that start too few of them.
#include "core/parallel.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <monge/monge.hpp>

#include "core/side_by_side.hpp"
#include "oracle/problem.hpp"
#include "seam/backend.hpp"

namespace monge {
namespace {

TEST(Parallel, CallsEachIndexOnce) {
  for (int const threads : {0, 1, 2, 3, 7}) {
    std::vector<std::atomic<int>> calls(7), items(100);
    on_threads(threads, [&](int t) { ++calls[static_cast<std::size_t>(t)]; });
    for (int t = 0; t < 7; ++t) EXPECT_EQ(calls[static_cast<std::size_t>(t)], t < threads ? 1 : 0);
    parallel_for(threads, 100, [&](std::int64_t i) { ++items[static_cast<std::size_t>(i)]; });
    EXPECT_TRUE(std::ranges::all_of(items, [](auto const& count) { return count == 1; })) << threads;
    parallel_ranges(threads, 3, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) ++items[static_cast<std::size_t>(i)];
    });
    EXPECT_EQ(items[2], 2);
    EXPECT_EQ(items[3], 1);
  }
  parallel_for(2, 0, [](std::int64_t) { FAIL(); });
}

TEST(Parallel, RethrowsTheFirstException) {
  auto const message = [](auto const& work) -> std::string {
    try {
      work();
    } catch (std::runtime_error const& error) {
      return error.what();
    }
    return "none";
  };
  auto const fail = [](auto i) {
    if (i >= 2) throw std::runtime_error(std::to_string(i));
  };
  EXPECT_EQ(message([&] { on_threads(4, fail); }), "2");
  EXPECT_EQ(message([&] { side_by_side(3, 9, fail); }), "2");
  EXPECT_EQ(message([&] { parallel_for(1, 9, fail); }), "2");
  EXPECT_EQ(message([&] { on_threads(2, fail); }), "none");
}

TEST(Parallel, ShowsOnTheCallersThreadWhatOthersWorkOn) {
  std::thread::id const caller = std::this_thread::get_id();
  std::mutex mutex;
  std::condition_variable changed;
  int begun = 0;
  std::vector<int> worked(20), shown(20);
  auto const work = [&](std::size_t i) {
    EXPECT_EQ(worked[i], shown[i]);
    if (i < 2 && worked[i] == 0) {  // Each waits for the other, so one thread alone would fail.
      std::unique_lock lock(mutex);
      ++begun;
      changed.notify_all();
      EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(20), [&] { return begun == 2; }));
    }
    return ++worked[i] <= static_cast<int>(i);
  };
  auto const show = [&](std::size_t i) {
    EXPECT_EQ(std::this_thread::get_id(), caller);
    EXPECT_EQ(++shown[i], worked[i]);
  };
  Context const context = Context::cpu(2);
  backend_of(context).run_each(std::vector<ProblemSize>(worked.size(), {30, 40}), true, work, show);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(worked[static_cast<std::size_t>(i)], i + 1);
    EXPECT_EQ(shown[static_cast<std::size_t>(i)], i);
  }
  std::vector<std::size_t> order;
  side_by_side(
      1, 3, [&](std::size_t) { return order.size() % 3 != 2; }, [&](std::size_t i) { order.push_back(i); });
  EXPECT_EQ(order, (std::vector<std::size_t>{0, 0})) << "in turn";
  EXPECT_THROW(side_by_side(
                   3, 20, [](std::size_t) { return true; },
                   [](std::size_t i) {
                     if (i == 7) throw std::runtime_error("7");
                   }),
               std::runtime_error);
}

/// The threads of OpenMP do not survive a fork: the child has to start its own.
TEST(Parallel, ChildrenOfAForkHaveThreadsAndEqualBits) {
  oracle::Problem const problem = oracle::make_problem({.n = 700, .m = 600, .d = 3});
  auto const dual = [&](Context const& context) {
    return solve(context, problem.geometry(), problem.a, problem.b, {.eps_relative = 0.1, .iterations = 5})
        .report()
        .dual;
  };
  Context const context = Context::cpu(2);
  double const expected = dual(context);
  auto const status_of_child = [](auto const& succeeds) {
    pid_t const child = fork();
    if (child == 0) {
      alarm(60);  // Ends a child that hangs.
      _exit(succeeds() ? 0 : 1);
    }
    int status = -1;
    waitpid(child, &status, 0);
    return status;
  };
  for (int k = 0; k < 2; ++k) {
    EXPECT_EQ(status_of_child([&] {
                bool const is_equal = dual(context) == expected && dual(Context::cpu(2)) == expected;
                return is_equal && status_of_child([&] { return dual(context) == expected; }) == 0;
              }),
              0);
    EXPECT_EQ(dual(context), expected);
  }
  std::thread([&] {
    EXPECT_EQ(dual(context), expected);
    EXPECT_EQ(status_of_child([&] { return dual(context) == expected; }), 0);
  }).join();
}

TEST(Parallel, NamesTheMostThreads) {
  for (int const threads : {-1, kMostThreads + 1, 100000}) {
    try {
      Context::cpu(threads);
      FAIL() << threads;
    } catch (Error const& error) {
      EXPECT_EQ(error.what(), "threads: is " + std::to_string(threads) + "; must be from 0 to 4096 (0: all cores)");
    }
  }
}

/// Few items take few threads, however many the context has.
TEST(Parallel, ManyThreadsOfAContextAreNoBurdenForFewItems) {
  oracle::Problem const problem = oracle::make_problem({.n = 5, .m = 6, .d = 2});
  Plan const plan = solve(Context::cpu(kMostThreads), problem.geometry(), problem.a, problem.b, {.eps = 1});
  std::vector<std::int64_t> pairs(2);
  plan.sample(1, {pairs.data(), 1, 2, 2});
  EXPECT_LT(pairs[0], 5);
  EXPECT_LT(pairs[1], 6);
}

#if !defined(__SANITIZE_ADDRESS__) && defined(__linux__)
/// Sanitizers reserve more addresses than any limit allows.
TEST(Parallel, TooFewThreadsAreAnError) {
  std::int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  rlimit limit;
  ASSERT_EQ(getrlimit(RLIMIT_AS, &limit), 0);
  std::thread([&] {  // Its threads have no memory yet.
    rlimit const low{static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE)) + (std::size_t{200} << 20), limit.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_AS, &low), 0);
    std::string message;
    try {
      on_threads(200, [](int) {});
    } catch (Error const& error) {
      message = error.what();
      EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
    }
    ASSERT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
    EXPECT_TRUE(message.starts_with("threads: are 200; the system starts only ")) << message;
    std::atomic<int> calls = 0;
    on_threads(4, [&](int) { ++calls; });
    EXPECT_EQ(calls, 4);
  })
      .join();
}
#endif

}  // namespace
}  // namespace monge
