
#include "core/numbers.hpp"
#include "cuda/launch/generation.hpp"
#include "cuda/launch/occupancy.hpp"
#include "cuda/launch/sizes.hpp"
#include "cuda/regularized/splitting.hpp"
#include "cuda/regularized/splitting_resident.cuh"
#include "cuda/runtime/check.hpp"

namespace monge::cuda {
namespace {

/// Bytes of static shared memory, with CUDA's own part of each block's.
constexpr int kReservedBytes = 2048;

template <class T>
void (*kernel_of(SplittingProx prox))(ResidentArguments, int) {
  using enum SplittingProx;
  if (prox == slopes) return resident_splitting_kernel<T, slopes>;
  return prox == hypentropy ? resident_splitting_kernel<T, hypentropy> : resident_splitting_kernel<T, shrink>;
}

/// Calls function.operator()<T>().
template <class Function>
auto with_type(DataType scalar, Function&& function) {
  return scalar == DataType::float32 ? function.template operator()<float>() : function.template operator()<double>();
}

}  // namespace

std::optional<ResidentPlan> plan_resident(DataType scalar, SplittingProx prox, int rows, int columns,
                                          int multiprocessors) {
  if (has_groups(prox)) return std::nullopt;
  return with_type(scalar, [&]<class T>() -> std::optional<ResidentPlan> {
    constexpr int kWarpRows = ResidentTile<T>::kWarpRows;
    int const most_bytes = most_shared_bytes() - kReservedBytes;
    std::optional<ResidentPlan> best;
    for (int chunks = 1; chunks <= kResidentWarps; chunks *= 2) {
      ResidentPlan plan{scalar, prox, chunks * kWarpRows};
      plan.tiles[0] = divided_up(rows, plan.tile_rows);
      if (plan.tiles[0] > multiprocessors) continue;
      plan.tile_columns = divided_up(columns, multiprocessors / plan.tiles[0]);
      plan.tiles[1] = divided_up(columns, plan.tile_columns);
      std::int64_t const bytes = ResidentTile<T>::bytes(plan.tile_rows, plan.tile_columns);
      if (bytes > most_bytes || plan.tile_rows + plan.tile_columns > 2 * kResidentThreads) continue;
      plan.shared_bytes = static_cast<int>(bytes);
      if (!best || plan.shared_bytes < best->shared_bytes) best = plan;
    }
    if (!best) return best;
    Occupancy const occupancy = occupancy_of(kernel_of<T>(prox), kResidentThreads, best->shared_bytes);
    return occupancy.resident_blocks > 0 ? best : std::nullopt;
  });
}

void resident_iterations(ResidentPlan const& plan, ResidentArguments const& arguments, int count, cudaStream_t stream) {
  MONGE_CUDA_TRY(cudaMemsetAsync(arguments.arrived, 0, sizeof(unsigned), stream));
  void* parameters[] = {const_cast<ResidentArguments*>(&arguments), &count};
  with_type(plan.scalar, [&]<class T>() {
    MONGE_CUDA_TRY(cudaLaunchCooperativeKernel(reinterpret_cast<void const*>(kernel_of<T>(plan.prox)),
                                               dim3(static_cast<unsigned>(plan.blocks())), dim3(kResidentThreads),
                                               parameters, to_size(plan.shared_bytes), stream));
  });
}

}  // namespace monge::cuda
