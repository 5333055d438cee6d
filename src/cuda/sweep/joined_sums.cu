// Joins sums of a rank's rows, in the order of the slots. O(n) each.
#include "cuda/sweep/joined_sums.hpp"

#include "cuda/device/points.cuh"
#include "cuda/device/sums.cuh"

namespace monge::cuda {
namespace {

template <class T>
struct JoinRow {
  JoinSumsArguments arguments;

  __device__ void operator()(int i) const {
    T reference;
    double sum;
    join_slots<T>(arguments.sums, i, reference, sum);
    static_cast<PartialSum<T>*>(arguments.out)[i] = {reference, static_cast<T>(sum)};
  }
};

}  // namespace

void join_sums(JoinSumsArguments const& arguments, cudaStream_t stream) {
  for_each_point<JoinRow>(arguments.sums.points.scalar, arguments.sums.points.size, stream, arguments);
}

template <class T>
void join_parts(JoinPartsArguments<T> const& arguments, cudaStream_t stream) {
  for_each_point(arguments.size, stream, [arguments] __device__(int i) {
    double sum = 0;
#pragma unroll 16
    for (int k = 0; k < arguments.count; ++k) sum += static_cast<double>(arguments.parts[k * arguments.stride + i]);
    arguments.out[i] = static_cast<T>(sum);
  });
}
template void join_parts(JoinPartsArguments<float> const&, cudaStream_t);
template void join_parts(JoinPartsArguments<double> const&, cudaStream_t);

}  // namespace monge::cuda
