// Joins the partial results of a row, in the order of its slots. __device__ only.
#pragma once
#include "cuda/device/numerics.cuh"
#include "cuda/launch/arguments.hpp"

namespace monge::cuda {

/// Joins `count` partial sums, load(s) for the s-th, to one reference, at least `least`, and one sum. Several loads are
/// in flight at a time.
template <class T, class Load>
__device__ __forceinline__ void join_partials(int count, T least, Load const& load, T& reference, double& sum) {
  constexpr int kBatch = 8;
  reference = least;
  sum = 0;
  for (int first = 0; first < count; first += kBatch) {
    PartialSum<T> part[kBatch];
    T next = reference;
#pragma unroll
    for (int s = 0; s < kBatch; ++s) {
      part[s] = first + s < count ? load(first + s) : PartialSum<T>{least, T(0)};
      next = part[s].reference > next ? part[s].reference : next;
    }
    sum *= static_cast<double>(power_of_two(reference - next));
#pragma unroll
    for (int s = 0; s < kBatch; ++s)
      sum += static_cast<double>(part[s].sum) * static_cast<double>(power_of_two(part[s].reference - next));
    reference = next;
  }
}

/// The same for the slots of a row.
template <class T>
__device__ __forceinline__ void join_slots(SumArguments const& sums, int point, T& reference, double& sum) {
  auto const* const partials = static_cast<PartialSum<T> const*>(sums.partials) + point;
  std::int64_t const stride = sums.points.padded_size;
  int const slots = sums.work.slots_of(point / sums.work.rows_per_block);
  join_partials(
      slots, kEmptyLogit<T>, [&](int s) { return partials[s * stride]; }, reference, sum);
}

}  // namespace monge::cuda
