// Ranks of one machine, joined by sockets.
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <utility>

#include <monge/context.hpp>
#include <monge/error.hpp>

#include "core/numbers.hpp"
#include "core/require.hpp"

namespace monge {
namespace {

using Clock = std::chrono::steady_clock;

/// The reason why a message did not go through: the other end is closed, or the time is over.
enum class Loss { none, ended, late };

/// One end of a connection.
class Socket {
 public:
  explicit Socket(int file) : file_(file) {}
  ~Socket() {
    if (file_ >= 0) close(file_);
  }
  Socket(Socket&& other) noexcept : file_(std::exchange(other.file_, -1)) {}
  Socket& operator=(Socket&&) = delete;

  Loss send(void const* data, std::size_t bytes, Clock::time_point end) const {
    return all(static_cast<std::byte const*>(data), bytes, POLLOUT, end, [this](std::byte const* at, std::size_t left) {
      return ::send(file_, at, left, MSG_DONTWAIT | MSG_NOSIGNAL);
    });
  }
  Loss receive(void* data, std::size_t bytes, Clock::time_point end) const {
    return all(static_cast<std::byte*>(data), bytes, POLLIN, end,
               [this](std::byte* at, std::size_t left) { return ::recv(file_, at, left, MSG_DONTWAIT); });
  }

 private:
  /// Moves all bytes by calls of move(place, bytes left), which returns those that it has moved.
  template <class Byte, class Move>
  Loss all(Byte* at, std::size_t left, short event, Clock::time_point end, Move const& move) const {
    while (left > 0) {
      ssize_t const moved = move(at, left);
      if (moved > 0) {
        at += moved;
        left -= to_size(moved);
        continue;
      }
      if (moved == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) return Loss::ended;
      auto const wait = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
      if (wait <= 0) return Loss::late;
      pollfd waiting{file_, event, 0};
      poll(&waiting, 1, static_cast<int>(wait));
    }
    return Loss::none;
  }

  int file_;
};

/// The header that rank 0 sends before the bytes of all ranks: the rank that it has lost, if any.
struct Answer {
  Loss loss = Loss::none;
  int rank = 0;
};

/// The connections of a rank: of rank 0 to all others, in order; of another rank to rank 0.
class LocalRank {
 public:
  LocalRank(int rank, double limit) : rank_(rank), limit_(limit) {}
  void connect(Socket socket) { to_.push_back(std::move(socket)); }

  void operator()(void const* mine, void* all, std::span<std::size_t const> bytes_of) {
    if (!failure_.empty()) throw Error(ErrorCode::device_failure, failure_);
    std::size_t const own = bytes_of[to_size(rank_)];
    std::size_t total = 0;
    for (std::size_t const bytes : bytes_of) total += bytes;
    if (rank_ > 0) {
      // Rank 0, whose time is over first, says which rank is missing.
      Clock::time_point const end = after(limit_ + 1);
      Answer answer;
      Loss loss = to_[0].send(mine, own, end);
      // Rank 0 may have ended after it has sent an answer about another.
      if (loss != Loss::late) loss = to_[0].receive(&answer, sizeof answer, end);
      if (loss == Loss::none) fail(answer);
      if (loss == Loss::none) loss = to_[0].receive(all, total, end);
      return fail({loss, 0});
    }
    Clock::time_point const end = after(limit_);
    auto* to = static_cast<std::byte*>(all);
    to = std::copy_n(static_cast<std::byte const*>(mine), own, to);
    Answer answer;
    for (std::size_t k = 0; k < to_.size() && answer.loss == Loss::none; ++k) {
      answer = {to_[k].receive(to, bytes_of[k + 1], end), static_cast<int>(k) + 1};
      to += bytes_of[k + 1];
    }
    Answer const received = answer;
    for (std::size_t k = 0; k < to_.size(); ++k) {
      Loss loss = to_[k].send(&received, sizeof received, after(limit_));
      if (loss == Loss::none && received.loss == Loss::none) loss = to_[k].send(all, total, after(limit_));
      if (loss != Loss::none && answer.loss == Loss::none) answer = {loss, static_cast<int>(k) + 1};
    }
    fail(answer);
  }

 private:
  static Clock::time_point after(double seconds) {
    return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  }
  /// Throws if a rank is lost. Connections then hold parts of messages, so they end.
  void fail(Answer const& answer) {
    if (answer.loss == Loss::none) return;
    failure_ = answer.loss == Loss::ended
                   ? fmt::format("ranks: rank {} has ended", answer.rank)
                   : fmt::format("ranks: rank {} did not come within {} s (limit)", answer.rank, limit_);
    to_.clear();
    throw Error(ErrorCode::device_failure, failure_);
  }

  int rank_;
  double limit_;
  std::vector<Socket> to_;
  std::string failure_;
};

}  // namespace

std::vector<Communicator> local_communicators(int size, double limit) {
  require(size >= 1, "size: is {}; must be >= 1", size);
  std::vector<std::shared_ptr<LocalRank>> ranks;
  ranks.reserve(to_size(size));
  for (int rank = 0; rank < size; ++rank) ranks.push_back(std::make_shared<LocalRank>(rank, limit));
  for (int rank = 1; rank < size; ++rank) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
      throw Error(ErrorCode::device_failure, fmt::format("ranks: a socket cannot be made: {}", std::strerror(errno)));
    ranks[0]->connect(Socket(ends[0]));
    ranks[to_size(rank)]->connect(Socket(ends[1]));
  }
  std::vector<Communicator> communicators;
  for (int rank = 0; rank < size; ++rank) {
    auto const gather = [own = ranks[to_size(rank)]](void const* mine, void* all,
                                                     std::span<std::size_t const> bytes_of) {
      (*own)(mine, all, bytes_of);
    };
    communicators.push_back({rank, size, gather, limit});
  }
  return communicators;
}

}  // namespace monge
