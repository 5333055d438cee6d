// Passes over all pairs, each by one of several kernels.
#pragma once
#include "cuda/launch/arguments.hpp"
#include "cuda/launch/generation.hpp"
#include "cuda/launch/queue.hpp"

namespace monge::cuda {

/// Deals the tiles out to as many blocks as run on the device at once.
WorkPlan plan_work(int row_blocks, int rows_per_block, int column_tiles, int resident_blocks);

/// The settings of a launch of a pass, besides the operands.
struct PassChoice {
  Pass pass;
  ScoreKernel kernel;
  ScoreForm form;
  int multiprocessors;
};

/// The kernel of a pass, and the size of its blocks and tiles.
struct PassKernel {
  Kernel<PassArguments> kernel = {};
  int threads = 0;
  int shared_bytes = 0;
  int rows = 0;  // Rows of a tile.
  int columns = 0;
  int chunks = 1;  // Chunks of coordinates, for the tensor cores.
  int merged = 1;  // LaunchShape::merged.
};
/// In a launch for many problems shared memory also holds the arguments, before operands, which are aligned to 1024
/// bytes.
inline constexpr int kArgumentBytes = 1024;
static_assert(sizeof(PassArguments) <= kArgumentBytes);
/// ScoreKernel::difference, for squared differences and Euclidean distances.
PassKernel difference_kernel(Pass pass, ScoreForm form, int dimension);
/// ScoreKernel::tile.
PassKernel tile_kernel(Pass pass, ScoreForm form, DataType scalar, int dimension);
/// ScoreKernel::one_product and three_products, for operands of `half_stride` coordinates. A block may have
/// `shared_limit` bytes of shared memory beside kArgumentBytes.
PassKernel mma_kernel(Pass pass, ScoreKernel scores, Generation generation, int half_stride, int shared_limit);

/// A kernel for a pass, and the distribution of its work.
struct PassPlan {
  PassKernel kernel;
  WorkPlan work;
};
PassPlan plan_pass(PassChoice const& choice, Operand const& rows, Operand const& columns);
void launch_pass(PassPlan const& plan, PassArguments const& arguments, Queue const& queue);

}  // namespace monge::cuda
