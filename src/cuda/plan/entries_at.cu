#include "cuda/plan/entries_at.hpp"

#include "cuda/launch/sizes.hpp"
#include "cuda/plan/entries_at.cuh"
#include "cuda/runtime/check.hpp"

namespace monge::cuda {
namespace {

/// At lower dimensions one thread takes all coordinates of a pair; from this one on, a warp shares them.
constexpr int kSmallestSharedDimension = 16;

}  // namespace

void entries_at(EntriesAtArguments const& arguments, cudaStream_t stream) {
  if (arguments.count == 0) return;
  bool const shared = arguments.scores.rows.dimension >= kSmallestSharedDimension;
  int const blocks = divided_up(arguments.count * (shared ? 32 : 1), kEntryThreads);
  auto const kernel = shared ? entries_at_kernel<32> : entries_at_kernel<1>;
  kernel<<<blocks, kEntryThreads, 0, stream>>>(arguments);
  MONGE_CUDA_TRY(cudaGetLastError());
}

}  // namespace monge::cuda
