// Work on several threads of the host. OpenMP's threads start here alone.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <limits>
#include <mutex>
#include <utility>

namespace monge {

/// The most threads of a context.
inline constexpr int kMostThreads = 4096;

/// Exceptions of work on several threads, which must not leave a parallel region. The first one by index is kept.
class Failures {
 public:
  template <class Work>
  void guard(std::int64_t index, Work&& work) noexcept {
    try {
      work();
    } catch (...) {
      keep(index, std::current_exception());
    }
  }
  /// Threads that have met at a barrier since the last guard() get one answer.
  bool any() const { return any_; }
  void rethrow() const {
    if (first_) std::rethrow_exception(first_);
  }

 private:
  void keep(std::int64_t index, std::exception_ptr failure) {
    std::lock_guard const lock(mutex_);
    any_ = true;
    if (index >= index_) return;
    index_ = index;
    first_ = std::move(failure);
  }

  std::atomic<bool> any_ = false;
  std::mutex mutex_;
  std::int64_t index_ = std::numeric_limits<std::int64_t>::max();
  std::exception_ptr first_;
};

/// on_team() for a function pointer.
void call_on_team(int threads, void (*work)(void const* data, int thread, int size), void const* data);

/// Calls work(thread, size) on each thread of a team of `size` <= max(threads, 1). Threads of a team of several may
/// wait for each other at an OpenMP barrier; for a team of one it would be the barrier of an outer team. `work` must
/// not throw. Throws out_of_memory where the system starts no further thread.
template <class Work>
void on_team(int threads, Work const& work) {
  auto const call = [](void const* data, int thread, int size) { (*static_cast<Work const*>(data))(thread, size); };
  call_on_team(threads, call, &work);
}

/// Calls work(t) for each t < threads, on a thread each if the team has as many. The results of `work` then do not
/// depend on the size of the team. Rethrows the exception of the first t.
template <class Work>
void on_threads(int threads, Work const& work) {
  Failures failures;
  on_team(threads, [&](int thread, int size) {
    for (int t = threads * thread / size; t < threads * (thread + 1) / size; ++t) failures.guard(t, [&] { work(t); });
  });
  failures.rethrow();
}

/// A thread with fewer pairs (about 40 us) works hardly longer than it takes to start and join a team.
inline constexpr double kPairsPerThread = 1 << 17;

/// The number of threads, of `threads` available, that n x m pairs of a pass keep busy. Other work counts as the
/// pairs of a pass that take the same time.
inline int useful_threads(int threads, std::int64_t n, std::int64_t m) {
  double const pairs = static_cast<double>(n) * static_cast<double>(m);
  return static_cast<int>(std::clamp(pairs / kPairsPerThread, 1.0, static_cast<double>(std::max(threads, 1))));
}

/// Calls work(begin, end) for ranges that together are [0, count), one for each of up to `threads` threads.
template <class Work>
void parallel_ranges(int threads, std::int64_t count, Work const& work) {
  int const ranges = static_cast<int>(std::min<std::int64_t>(std::max(threads, 1), count));
  on_threads(ranges, [&](int t) { work(count * t / ranges, count * (t + 1) / ranges); });
}

/// Calls work(i) for each i < count, by ranges.
template <class Work>
void parallel_for(int threads, std::int64_t count, Work const& work) {
  parallel_ranges(threads, count, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) work(i);
  });
}

}  // namespace monge
