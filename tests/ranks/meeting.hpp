// Ranks that are threads of this process.
#pragma once
#include <cstddef>
#include <exception>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <monge/monge.hpp>

namespace monge::oracle {

/// Joins ranks and counts their messages.
class Meeting {
 public:
  explicit Meeting(int size, double limit = 300) : communicators_(local_communicators(size, limit)) {}

  Communicator communicator(int rank) {
    Communicator counted = communicators_[static_cast<std::size_t>(rank)];
    if (rank == 0) {
      counted.all_gather = [this, gather = counted.all_gather](void const* mine, void* all,
                                                               std::span<std::size_t const> bytes_of) {
        gather(mine, all, bytes_of);
        ++messages_;
      };
    }
    return counted;
  }
  int messages() const { return messages_; }

 private:
  std::vector<Communicator> communicators_;
  int messages_ = 0;
};

/// What a rank returned, or the message of its exception.
template <class Result>
struct Outcome {
  std::optional<Result> result;
  std::string error;
};

/// work(rank) on a thread for each rank.
template <class Work>
auto on_ranks(int ranks, Work const& work) {
  std::vector<Outcome<decltype(work(0))>> outcomes(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      auto& outcome = outcomes[static_cast<std::size_t>(rank)];
      try {
        outcome.result = work(rank);
      } catch (std::exception const& error) {
        outcome.error = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return outcomes;
}

}  // namespace monge::oracle
