// Calls on several host threads.
#pragma once
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "core/parallel.hpp"

namespace monge {

/// Calls work(i) for each i < count on up to `threads` threads, also after an exception; then rethrows the first one in
/// order of i.
template <class Work>
void side_by_side(int threads, std::size_t count, Work&& work) {
  Failures failures;
  std::atomic<std::size_t> next = 0;
  on_team(threads, [&](int, int) {
    for (std::size_t i = next++; i < count; i = next++) failures.guard(static_cast<std::int64_t>(i), [&] { work(i); });
  });
  failures.rethrow();
}

/// Calls work(i) for each i < count again and again until it returns false, on up to `threads` threads. Between two
/// calls it calls show(i) on the caller's thread. A thread waits only where no call is ready, so the order of calls
/// differs from run to run; with one thread each i runs to its end before the next. An exception ends all; the first
/// one in order of i is rethrown.
template <class Work, class Show>
void side_by_side(int threads, std::size_t count, Work const& work, Show const& show) {
  Failures failures;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::size_t> for_work(count), for_show;  // The last is the next, so that few are under way at a time.
  for (std::size_t i = 0; i < count; ++i) for_work[i] = count - 1 - i;
  for_show.reserve(count);
  std::size_t left = count;
  on_team(threads, [&](int thread, int) {
    std::unique_lock lock(mutex);
    while (left > 0 && !failures.any()) {
      bool const shows = thread == 0 && !for_show.empty();  // Thread 0 is the caller's.
      std::vector<std::size_t>&from = shows ? for_show : for_work, &to = shows ? for_work : for_show;
      if (from.empty()) {
        changed.wait(lock);
        continue;
      }
      std::size_t const i = from.back();
      from.pop_back();
      lock.unlock();
      bool goes_on = true;
      failures.guard(static_cast<std::int64_t>(i), [&] {
        if (shows) {
          show(i);
        } else {
          goes_on = work(i);
        }
      });
      lock.lock();
      if (goes_on) {
        to.push_back(i);
      } else {
        --left;
      }
      changed.notify_all();
    }
  });
  failures.rethrow();
}

}  // namespace monge
