#include <algorithm>

#include "cuda/projection/kernels/block.cuh"
#include "cuda/projection/launch/tile.cuh"

namespace monge::cuda {
namespace {

template <bool kBackward>
void launch(ProjectionArguments const& arguments, SumTargets const& marginals, int multiprocessors,
            cudaStream_t stream) {
  int const bytes = static_cast<int>(block_bytes(arguments.rows, arguments.columns, kBackward));
  allow_shared(project_block_kernel<kBackward>, bytes);
  std::int64_t const blocks = block_count(arguments.batch, multiprocessors);
  project_block_kernel<kBackward>
      <<<static_cast<unsigned>(blocks), kBlockThreads, bytes, stream>>>(arguments, marginals);
  MONGE_CUDA_TRY(cudaGetLastError());
}

}  // namespace

std::int64_t block_bytes(int rows, int columns, bool backward) {
  return 4 * block_floats(rows, columns, backward);
}

std::int64_t block_count(std::int64_t batch, int multiprocessors) {
  return std::min<std::int64_t>(batch, static_cast<std::int64_t>(multiprocessors) * 8);
}

void project_blocks(ProjectionArguments const& arguments, SumTargets const& marginals, int multiprocessors,
                    cudaStream_t stream) {
  launch<false>(arguments, marginals, multiprocessors, stream);
}
void project_backward_blocks(ProjectionArguments const& arguments, SumTargets const& marginals, int multiprocessors,
                             cudaStream_t stream) {
  launch<true>(arguments, marginals, multiprocessors, stream);
}

}  // namespace monge::cuda
