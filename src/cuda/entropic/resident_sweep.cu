#include "cuda/entropic/resident_sweep.hpp"

#include <algorithm>
#include <utility>

#include "cuda/entropic/resident_sweep.cuh"
#include "cuda/launch/generation.hpp"
#include "cuda/launch/occupancy.hpp"
#include "cuda/runtime/check.hpp"

namespace monge::cuda {
namespace {

/// Bytes of static shared memory, with CUDA's own part of each block's.
constexpr int kReservedBytes = 3072;

struct Choice {
  Kernel<ResidentSweepArguments> kernel;
  int coordinate_bytes;
};

template <class T, ScoreForm kForm>
Choice choice_of(int dimension) {
  return {{resident_sweep_kernel<T, kForm, One<ResidentSweepArguments>>,
           resident_sweep_kernel<T, kForm, Many<ResidentSweepArguments>>},
          TileScores<T, kForm>::shared_bytes(dimension)};
}

template <class T>
Choice choice_of(ScoreForm form, int dimension) {
  switch (form) {
    case ScoreForm::differences:
      return choice_of<T, ScoreForm::differences>(dimension);
    case ScoreForm::distances:
      return choice_of<T, ScoreForm::distances>(dimension);
    case ScoreForm::products:
      return choice_of<T, ScoreForm::products>(dimension);
    case ScoreForm::stored:
      return choice_of<T, ScoreForm::stored>(dimension);
  }
  return {};
}

Choice choice_of(DataType scalar, ScoreForm form, int dimension = 0) {
  return scalar == DataType::float32 ? choice_of<float>(form, dimension) : choice_of<double>(form, dimension);
}

int tile_bytes(DataType scalar, int rows, int columns, int coordinate_bytes) {
  using Single = ResidentSweepTile<float>;
  using Double = ResidentSweepTile<double>;
  bool const is_single = scalar == DataType::float32;
  int const scores = is_single ? Single::score_bytes(rows, columns) : Double::score_bytes(rows, columns);
  int const rest = is_single ? Single::rest_bytes(rows, columns) : Double::rest_bytes(rows, columns);
  return scores + std::max(rest, coordinate_bytes);
}

void launch(void const* kernel, ResidentSweepPlan const& plan, int blocks, void* argument, cudaStream_t stream) {
  void* parameters[] = {argument};
  MONGE_CUDA_TRY(cudaLaunchCooperativeKernel(kernel, dim3(static_cast<unsigned>(blocks)), dim3(kTileThreads),
                                             parameters, static_cast<std::size_t>(plan.shared_bytes), stream));
}

}  // namespace

/// The smallest tiles whose blocks are on the device at once: all multiprocessors then have work. Measured on sm_90
/// alone.
std::optional<ResidentSweepPlan> plan_resident_sweep(PassArguments const& scores, int multiprocessors) {
  if (generation() < Generation::sm_90) return std::nullopt;
  int const sizes[2] = {scores.rows.padded_size, scores.columns.padded_size};
  DataType const scalar = scores.rows.scalar;
  Choice const choice = choice_of(scalar, scores.form, scores.rows.dimension);
  int const most_bytes = most_shared_bytes() - kReservedBytes;
  for (auto const& [rows, columns] : {std::pair{64, 64}, {64, 128}, {128, 128}}) {
    ResidentSweepPlan plan{scalar, scores.form, {rows, columns}, {sizes[0] / rows, sizes[1] / columns}};
    plan.shared_bytes = tile_bytes(scalar, rows, columns, choice.coordinate_bytes);
    if (plan.shared_bytes > most_bytes || plan.blocks() > 4 * multiprocessors) continue;
    int resident = occupancy_of(choice.kernel.one, kTileThreads, plan.shared_bytes).resident_blocks;
    resident = std::min(resident, occupancy_of(choice.kernel.many, kTileThreads, plan.shared_bytes).resident_blocks);
    plan.most_blocks = resident * multiprocessors;
    if (plan.blocks() <= plan.most_blocks) return plan;
  }
  return std::nullopt;
}

void launch_resident_sweeps(ResidentSweepPlan const& plan, ResidentSweepArguments const& arguments,
                            cudaStream_t stream) {
  One<ResidentSweepArguments> source{arguments};
  launch(reinterpret_cast<void const*>(choice_of(plan.scalar, plan.form).kernel.one), plan, plan.blocks(), &source,
         stream);
}

void launch_resident_sweeps(ResidentSweepPlan const& plan, BlockOfMany const* table, int blocks, cudaStream_t stream) {
  Many<ResidentSweepArguments> source{table};
  launch(reinterpret_cast<void const*>(choice_of(plan.scalar, plan.form).kernel.many), plan, blocks, &source, stream);
}

}  // namespace monge::cuda
