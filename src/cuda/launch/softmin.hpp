// The half-step over all pairs: for each row, the sum over the columns of 2^(logit + score), in parts.
#pragma once
#include "cuda/launch/arguments.hpp"

namespace monge::cuda {

/// Deals the tiles out to as many blocks as the device runs at once.
WorkPlan plan_work(int row_blocks, int rows_per_block, int column_tiles, int resident_blocks);

SoftminPlan plan_softmin(SoftminKernel kernel, PackedCloud const& rows, PackedCloud const& columns, bool moments,
                         int multiprocessors);
void launch_softmin(SoftminPlan const& plan, SoftminArguments const& arguments, cudaStream_t stream);

SoftminPlan plan_difference(PackedCloud const& rows, PackedCloud const& columns, int multiprocessors);
void launch_difference(SoftminPlan const& plan, SoftminArguments const& arguments, cudaStream_t stream);
SoftminPlan plan_mma(SoftminKernel kernel, PackedCloud const& rows, PackedCloud const& columns, int multiprocessors);
void launch_mma(SoftminPlan const& plan, SoftminArguments const& arguments, cudaStream_t stream);
SoftminPlan plan_tile(PackedCloud const& rows, PackedCloud const& columns, bool moments, int multiprocessors);
void launch_tile(SoftminPlan const& plan, SoftminArguments const& arguments, cudaStream_t stream);

}  // namespace monge::cuda
