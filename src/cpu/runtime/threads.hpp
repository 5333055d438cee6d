// The threads of a pass over pairs, and the part of a rank in them.
#pragma once
#include <cstdint>

#include "core/parallel.hpp"
#include "ranks/ranks.hpp"

namespace monge::cpu {

/// The threads of a context: `threads` on each rank.
struct Workers {
  int threads;
  Ranks* ranks = nullptr;  // Null for one rank.

  int total() const { return threads * (ranks ? ranks->size() : 1); }
};

/// The threads that share a pass. Threads are numbered from 0 on rank 0, then on rank 1, and so on. If the pass keeps
/// at most as many threads busy as one rank has, each rank does all the work by itself, with the same bits and without
/// a message.
struct Team {
  Team(Workers const& workers, std::int64_t n, std::int64_t m)
      : size(useful_threads(workers.total(), n, m)),
        ranks(size > workers.threads ? workers.ranks : nullptr),
        first(ranks ? edge(ranks->rank()) : 0),
        own(ranks ? edge(ranks->rank() + 1) - first : size) {}

  /// The first thread of a rank.
  int edge(int rank) const { return static_cast<int>(std::int64_t{size} * rank / ranks->size()); }

  int size;
  Ranks* ranks;  // Null where this rank does all the work.
  int first;     // First of this rank's `own` threads.
  int own;
};

}  // namespace monge::cpu
