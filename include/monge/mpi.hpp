// Makes a Communicator from an MPI communicator. The library itself needs no MPI: the program that includes this header
// does.
#pragma once
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <monge/context.hpp>
#include <monge/error.hpp>

namespace monge {
namespace detail {

/// Collectives that are polled, so that they end with an error if a rank does not come.
class MpiGather {
 public:
  MpiGather(MPI_Comm communicator, double limit) : limit_(limit) {
    check(MPI_Comm_dup(communicator, &communicator_), "MPI_Comm_dup");
    MPI_Comm_set_errhandler(communicator_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(communicator_, &rank_);
    MPI_Comm_size(communicator_, &size_);
    auto const ranks = static_cast<std::size_t>(size_);
    buffers_ = std::make_unique<Buffers>();
    *buffers_ = {std::unique_ptr<std::byte[]>(new std::byte[kPieceBytes / ranks]),
                 std::unique_ptr<std::byte[]>(new std::byte[kPieceBytes]), std::vector<int>(ranks),
                 std::vector<int>(ranks)};
  }
  MpiGather(MpiGather const&) = delete;
  MpiGather& operator=(MpiGather const&) = delete;
  ~MpiGather() {
    int finalized = 0;
    MPI_Finalized(&finalized);
    if (finalized == 0 && !abandoned_) MPI_Comm_free(&communicator_);
  }

  int rank() const { return rank_; }
  int size() const { return size_; }

  void operator()(void const* mine, void* all, std::span<std::size_t const> bytes_of) {
    std::size_t const most = kPieceBytes / static_cast<std::size_t>(size_);
    std::size_t const largest = *std::max_element(bytes_of.begin(), bytes_of.end());
    for (std::size_t begin = 0; begin < largest; begin += most) {
      auto const part = [&](std::size_t bytes) { return std::min(most, bytes - std::min(bytes, begin)); };
      auto& [sent, received, count, place] = *buffers_;
      for (std::size_t r = 0; r < bytes_of.size(); ++r) {
        count[r] = static_cast<int>(part(bytes_of[r]));
        if (r > 0) place[r] = place[r - 1] + count[r - 1];
      }
      std::copy_n(static_cast<std::byte const*>(mine) + begin, count[static_cast<std::size_t>(rank_)], sent.get());
      gather();
      std::byte* to = static_cast<std::byte*>(all);
      for (std::size_t r = 0; r < bytes_of.size(); to += bytes_of[r++])
        std::copy_n(received.get() + place[r], count[r], to + std::min(bytes_of[r], begin));
    }
  }

 private:
  static void check(int code, char const* call) {
    if (code == MPI_SUCCESS) return;
    char text[MPI_MAX_ERROR_STRING] = {};
    int length = 0;
    MPI_Error_string(code, text, &length);
    throw Error(ErrorCode::device_failure, std::string(call) + ": " + text);
  }

  void gather() {
    auto& [sent, received, count, place] = *buffers_;
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Iallgatherv(sent.get(), count[static_cast<std::size_t>(rank_)], MPI_BYTE, received.get(), count.data(),
                          place.data(), MPI_BYTE, communicator_, &request),
          "MPI_Iallgatherv");
    using Clock = std::chrono::steady_clock;
    Clock::time_point const start = Clock::now();
    for (int done = 0;;) {
      check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
      if (done != 0) return;
      std::chrono::duration<double> const waited = Clock::now() - start;
      if (waited.count() > limit_) break;
      if (waited.count() > 1e-2) std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    // MPI cannot cancel a collective: its memory and its communicator stay until the process ends.
    static_cast<void>(buffers_.release());
    abandoned_ = true;
    std::ostringstream message;
    message << "ranks: not all of the " << size_ << " ranks came within " << limit_ << " s (limit); rank " << rank_
            << " waits no longer";
    throw Error(ErrorCode::device_failure, message.str());
  }

  MPI_Comm communicator_ = MPI_COMM_NULL;
  double limit_;
  int rank_ = 0, size_ = 1;
  bool abandoned_ = false;
  /// Longer messages go in pieces: counts and places are of type int in MPI 3.
  static constexpr std::size_t kPieceBytes = std::size_t{1} << 26;
  /// All memory of messages, so that no rank runs out of it within one.
  struct Buffers {
    std::unique_ptr<std::byte[]> sent, received;
    std::vector<int> count, place;
  };
  std::unique_ptr<Buffers> buffers_;
};

}  // namespace detail

/// The ranks of an MPI communicator, for Context::distributed(). All ranks of the MPI communicator call this function.
/// MPI must be initialised, with MPI_THREAD_FUNNELED or more where threads work, and must stay initialised while a
/// context uses the result. A message that not all ranks have reached after `limit` seconds throws device_failure: see
/// Communicator::limit.
inline Communicator mpi_communicator(MPI_Comm communicator, double limit = kRankLimit) {
  auto const gather = std::make_shared<detail::MpiGather>(communicator, limit);
  return {
      gather->rank(), gather->size(),
      [gather](void const* mine, void* all, std::span<std::size_t const> bytes_of) { (*gather)(mine, all, bytes_of); },
      limit};
}

}  // namespace monge
