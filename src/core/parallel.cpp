#include "core/parallel.hpp"

#include <omp.h>
#include <pthread.h>

#include <exception>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include <monge/error.hpp>

#include "core/numbers.hpp"

namespace monge {
namespace {

/// The most threads, this one included, that have been alive at once for the regions of this thread.
thread_local int reached = 1;

// OpenMP keeps the threads of a region for the next one. fork() copies none of them to the child, and GNU's run time
// would wait for them there for ever. So they end before a fork, and both processes start new ones. A fork within a
// region leaves them alone: the child has one thread there.
[[maybe_unused]] int const kForkHandlers = pthread_atfork(
    [] {
      omp_pause_resource_all(omp_pause_soft);
      reached = 1;
    },
    nullptr, nullptr);

/// Throws unless `threads` threads can be alive at once: GNU's run time ends the process where it cannot start one.
void require_threads(int threads) {
  std::latch enough(1);
  std::vector<std::thread> others;
  others.reserve(to_size(threads));
  int possible = reached;
  try {
    for (; possible < threads; ++possible) others.emplace_back([&] { enough.wait(); });
  } catch (std::exception const&) {  // std::system_error, std::bad_alloc
  }
  enough.count_down();
  for (std::thread& other : others) other.join();
  if (possible < threads)
    throw Error(ErrorCode::out_of_memory,
                "threads: are " + std::to_string(threads) + "; the system starts only " + std::to_string(possible));
  reached = threads;
}

}  // namespace

void call_on_team(int threads, void (*work)(void const* data, int thread, int size), void const* data) {
  if (threads <= 1) return work(data, 0, 1);
  if (threads > reached && omp_get_level() == 0) require_threads(threads);
#pragma omp parallel num_threads(threads)
  {
    // The first exception of a thread needs memory of its own, and the process ends where there is none: so it is taken
    // while nothing has failed.
    static_cast<void>(std::uncaught_exceptions());
    work(data, omp_get_thread_num(), omp_get_num_threads());
  }
}

}  // namespace monge
