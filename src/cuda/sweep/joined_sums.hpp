// Sums of a rank's rows, one a row, for the gather of several ranks.
#pragma once
#include <cstdint>

#include "cuda/launch/arguments.hpp"

namespace monge::cuda {

/// Joins the partial sums of each row.
struct JoinSumsArguments {
  SumArguments sums;
  void* out;  // PartialSum, of the type of the sums.
};
void join_sums(JoinSumsArguments const& arguments, cudaStream_t stream);

/// out_i = sum_k parts_ki, T float or double, in double.
template <class T>
struct JoinPartsArguments {
  T const* parts;
  std::int64_t stride;  // Between parts.
  int count;            // Number of parts.
  int size;             // Numbers in a part.
  T* out;
};
template <class T>
void join_parts(JoinPartsArguments<T> const& arguments, cudaStream_t stream);

}  // namespace monge::cuda
