// Passes over all pairs: scores by one of several kernels, and what a Pass makes of them.
#pragma once
#include <span>
#include <vector>

#include "cuda/launch/arguments.hpp"
#include "cuda/launch/queue.hpp"

namespace monge::cuda {

/// Deals the tiles out to as many blocks as the device runs at once.
WorkPlan plan_work(int row_blocks, int rows_per_block, int column_tiles, int resident_blocks);
/// The same where each row block has a list of column tiles of its own: tile_begin (row_blocks + 1) and tile_list say
/// which, here on the host; the result points to `device_begin` and `device_list`, their copies.
WorkPlan plan_listed_work(std::span<std::int64_t const> tile_begin, int rows_per_block, int resident_blocks,
                          std::int64_t const* device_begin, int const* device_list);

/// What decides how a pass is launched, beside the operands.
struct PassChoice {
  Pass pass;
  ScoreKernel kernel;
  ScoreForm form;
  int multiprocessors;
};
PassPlan plan_pass(PassChoice const& choice, Operand const& rows, Operand const& columns);
void launch_pass(PassPlan const& plan, PassArguments const& arguments, Queue const& queue);

PassPlan plan_difference(PassChoice const& choice, Operand const& rows, Operand const& columns);
void launch_difference(PassPlan const& plan, PassArguments const& arguments, Queue const& queue);
PassPlan plan_mma(PassChoice const& choice, Operand const& rows, Operand const& columns);
void launch_mma(PassPlan const& plan, PassArguments const& arguments, Queue const& queue);
PassPlan plan_tile(PassChoice const& choice, Operand const& rows, Operand const& columns);
void launch_tile(PassPlan const& plan, PassArguments const& arguments, Queue const& queue);

}  // namespace monge::cuda
