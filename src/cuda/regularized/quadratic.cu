#include "cuda/regularized/quadratic.hpp"

#include <algorithm>
#include <limits>

#include "core/numbers.hpp"
#include "cuda/launch/generation.hpp"
#include "cuda/launch/occupancy.hpp"
#include "cuda/launch/sizes.hpp"
#include "cuda/regularized/quadratic.cuh"
#include "cuda/runtime/check.hpp"

namespace monge::cuda {
namespace {

/// Calls `function` for the kernels of the source of costs.
template <class Function>
void with_costs(RegularizedMatrix const& matrix, Function&& function) {
  if (!matrix.cost.data) {
    function.template operator()<PointsInLines>();
  } else if (matrix.cost.scalar == DataType::float32) {
    function.template operator()<MatrixInLines<float>>();
  } else {
    function.template operator()<MatrixInLines<double>>();
  }
}

unsigned blocks_of(std::int64_t count, int each) {
  return static_cast<unsigned>(divided_up(count, each));
}

}  // namespace

int quadratic_chunks(int lines) {
  return divided_up(lines, kChunkLines);
}

void quadratic_pass(QuadraticPassArguments const& arguments, cudaStream_t stream) {
  QuadraticProblem const& problem = arguments.problem;
  unsigned const blocks =
      static_cast<unsigned>(problem.words[0]) * static_cast<unsigned>(quadratic_chunks(problem.size[0]));
  with_costs(problem.matrix, [&]<class LineCosts>() {
    quadratic_pass_kernel<LineCosts>
        <<<blocks_of(problem.size[0], kQuadraticWarps), kQuadraticBlock, 0, stream>>>(arguments);
    MONGE_CUDA_TRY(cudaGetLastError());
    turn_mask_kernel<LineCosts><<<blocks, kQuadraticBlock, 0, stream>>>(arguments);
    MONGE_CUDA_TRY(cudaGetLastError());
  });
  join_chunks_kernel<<<blocks_of(problem.size[1], kQuadraticBlock), kQuadraticBlock, 0, stream>>>(
      arguments, quadratic_chunks(problem.size[0]));
  MONGE_CUDA_TRY(cudaGetLastError());
}

void quadratic_values(QuadraticProblem const& problem, QuadraticState const& state, QuadraticValues* result,
                      cudaStream_t stream) {
  quadratic_values_kernel<<<1, kDirectionBlock, 0, stream>>>(problem, state, result);
  MONGE_CUDA_TRY(cudaGetLastError());
}

int quadratic_direction_blocks(int multiprocessors) {
  return multiprocessors;
}

std::int64_t quadratic_list_size(int lines, int places) {
  return 4 * (static_cast<std::int64_t>(lines) + places);
}

namespace {

/// Launches on lists: one block for each 1024 points of the larger side, up to 8 in a cluster, if the device has them.
class ListLaunch {
 public:
  ListLaunch(int lines, int places) {
    int const wanted = divided_up(std::max(lines, places), kDirectionBlock);
    while (cluster_ < std::min(wanted, kMostDirectionCluster)) cluster_ *= 2;
    if (cluster_ > 1 && is_clustered()) return;
    cluster_ = 1;
    std::int64_t const gathered =
        (static_cast<std::int64_t>(lines) + places) * static_cast<std::int64_t>(sizeof(double));
    fits_ = gathered <= std::numeric_limits<int>::max() &&
            occupancy_of(kAlone, kDirectionBlock, static_cast<int>(gathered)).resident_blocks > 0;
    if (fits_) bytes_ = to_size(gathered);
  }
  bool fits() const { return fits_; }
  void operator()(QuadraticDirectionArguments const& arguments, cudaStream_t stream) const {
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {static_cast<unsigned>(cluster_), 1, 1};
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>(cluster_));
    config.blockDim = dim3(kDirectionBlock);
    config.dynamicSmemBytes = bytes_;
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = cluster_ > 1 ? 1 : 0;
    MONGE_CUDA_TRY(cudaLaunchKernelEx(&config, cluster_ > 1 ? kCluster : kAlone, arguments));
  }

 private:
  static constexpr auto kAlone = quadratic_direction_kernel<BlockTeam>;
  static constexpr auto kCluster = quadratic_direction_kernel<ClusterTeam>;
  bool is_clustered() const {
    return generation() >= Generation::sm_90 &&
           occupancy_of(kCluster, kDirectionBlock, 0, cluster_).resident_clusters > 0;
  }
  int cluster_ = 1;
  std::size_t bytes_ = 0;
  bool fits_ = true;
};

}  // namespace

void quadratic_direction(QuadraticDirectionArguments const& arguments, std::int64_t active, int blocks,
                         cudaStream_t stream) {
  int const lines = arguments.problem.size[0], places = arguments.problem.size[1];
  if (active <= quadratic_list_size(lines, places)) {
    ListLaunch const solve(lines, places);
    if (solve.fits()) {
      list_begins_kernel<<<2, kDirectionBlock, 0, stream>>>(arguments);
      MONGE_CUDA_TRY(cudaGetLastError());
      dim3 const points(blocks_of(std::max(lines, places), kQuadraticWarps), 2);
      list_active_kernel<<<points, kQuadraticBlock, 0, stream>>>(arguments);
      MONGE_CUDA_TRY(cudaGetLastError());
      return solve(arguments, stream);
    }
  }
  void* parameters[] = {const_cast<void*>(static_cast<void const*>(&arguments))};
  MONGE_CUDA_TRY(cudaLaunchCooperativeKernel(reinterpret_cast<void const*>(quadratic_direction_kernel<GridTeam>),
                                             dim3(static_cast<unsigned>(blocks)), dim3(kDirectionBlock), parameters, 0,
                                             stream));
}

void idle_potentials(QuadraticProblem const& problem, int side, double const* potential, double const* other,
                     double* out, cudaStream_t stream) {
  with_costs(problem.matrix, [&]<class LineCosts>() {
    idle_potentials_kernel<LineCosts><<<blocks_of(problem.size[side], kQuadraticWarps), kQuadraticBlock, 0, stream>>>(
        problem, side, potential, other, out);
  });
  MONGE_CUDA_TRY(cudaGetLastError());
}

}  // namespace monge::cuda
