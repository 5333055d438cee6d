// Entries of a plan at given pairs, one by one (cuda/plan/entries_at.cuh).
#pragma once
#include "cuda/plan/select.hpp"

namespace monge::cuda {

struct EntriesAtArguments {
  PassArguments scores;  // The result of Costs::scores().
  PackedSide side[2];    // Rows, columns.
  double const* potential[2];
  double log2e_over_eps = 0;
  std::int64_t count = 0;
  StridedIndices rows, columns;  // Read only.
  StridedView values;
};
void entries_at(EntriesAtArguments const& arguments, cudaStream_t stream);

}  // namespace monge::cuda
