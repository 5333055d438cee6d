// Calls on several host threads.
#pragma once
#include <cstddef>
#include <exception>
#include <vector>

namespace monge {

/// Calls work(i) for each i < count on up to `threads` threads; then rethrows the first exception in order of i.
template <class Work>
void side_by_side(int threads, std::size_t count, Work&& work) {
  std::vector<std::exception_ptr> failures(count);
#pragma omp parallel for schedule(dynamic) num_threads(threads)
  for (std::size_t i = 0; i < count; ++i) {
    try {
      work(i);
    } catch (...) {
      failures[i] = std::current_exception();
    }
  }
  for (std::exception_ptr const& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

}  // namespace monge
