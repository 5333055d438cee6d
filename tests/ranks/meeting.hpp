// Ranks that are threads of this process.
#pragma once
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <monge/monge.hpp>

namespace monge::oracle {

class Meeting {
 public:
  explicit Meeting(int size, std::chrono::milliseconds limit = std::chrono::minutes(5))
      : posted_(static_cast<std::size_t>(size)), limit_(limit) {}

  Communicator communicator(int rank) {
    auto const gather = [this, rank](void const* mine, void* all, std::span<std::size_t const> bytes_of) {
      std::size_t const self = static_cast<std::size_t>(rank);
      posted_[self].assign(static_cast<std::byte const*>(mine), static_cast<std::byte const*>(mine) + bytes_of[self]);
      meet();
      std::byte* to = static_cast<std::byte*>(all);
      for (std::size_t r = 0; r < posted_.size(); ++r) {
        if (posted_[r].size() != bytes_of[r]) throw std::logic_error("ranks disagree on the bytes of a message");
        to = std::copy(posted_[r].begin(), posted_[r].end(), to);
      }
      meet();
    };
    return {rank, static_cast<int>(posted_.size()), gather};
  }
  int messages() const { return turns_ / 2; }

 private:
  void meet() {
    std::unique_lock lock(mutex_);
    int const turn = turns_;
    if (++present_ == posted_.size()) {
      present_ = 0;
      ++turns_;
      all_came_.notify_all();
    } else if (!all_came_.wait_for(lock, limit_, [&] { return turns_ != turn; })) {
      throw std::runtime_error("not all ranks came within the time limit");
    }
  }

  std::vector<std::vector<std::byte>> posted_;
  std::chrono::milliseconds limit_;
  std::mutex mutex_;
  std::condition_variable all_came_;
  std::size_t present_ = 0;
  int turns_ = 0;
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
