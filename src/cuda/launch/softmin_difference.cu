#include "cuda/kernels/softmin_difference.cuh"

#include "cuda/launch/chained.hpp"
#include "cuda/launch/softmin.hpp"

namespace monge::cuda {
namespace {

/// function.operator()<kDimension>() for the smallest instantiated dimension that holds `dimension`.
template <class Function>
auto with_dimension(int dimension, Function&& function) {
  if (dimension <= 1) return function.template operator()<1>();
  if (dimension <= 2) return function.template operator()<2>();
  if (dimension <= 3) return function.template operator()<3>();
  if (dimension <= 4) return function.template operator()<4>();
  if (dimension <= 6) return function.template operator()<6>();
  return function.template operator()<8>();
}

}  // namespace

SoftminPlan plan_difference(PackedCloud const& rows, PackedCloud const& columns, int multiprocessors) {
  return with_dimension(rows.dimension, [&]<int kDimension>() {
    using Policy = DifferencePolicy<kDimension>;
    int resident = 1;
    MONGE_CUDA_TRY(
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, softmin_difference<kDimension>, Policy::kThreads, 0));
    int const row_blocks = (rows.padded_size + Policy::kRows - 1) / Policy::kRows;
    SoftminPlan plan;
    plan.kernel = SoftminKernel::difference;
    plan.variant = kDimension;
    plan.work =
        plan_work(row_blocks, Policy::kRows, columns.padded_size / Policy::kColumns, multiprocessors * resident);
    return plan;
  });
}

void launch_difference(SoftminPlan const& plan, SoftminArguments const& arguments, cudaStream_t stream) {
  with_dimension(plan.variant, [&]<int kDimension>() {
    using Policy = DifferencePolicy<kDimension>;
    launch_chained(softmin_difference<kDimension>, plan.work.grid, Policy::kThreads, 0, stream, arguments);
  });
}

}  // namespace monge::cuda
