#include "cuda/entropic/resident_sweep.hpp"

#include <algorithm>
#include <utility>

#include "core/numbers.hpp"
#include "cuda/entropic/resident_sweep.cuh"
#include "cuda/launch/generation.hpp"
#include "cuda/launch/occupancy.hpp"
#include "cuda/runtime/check.hpp"

namespace monge::cuda {
namespace {

/// Bytes of static shared memory, with CUDA's own part of each block's.
constexpr int kReservedBytes = 3072;

struct Choice {
  void const *one, *many;  // The kernel for one problem and for many.
  int coordinate_bytes;
};

template <class T, ScoreForm kForm>
Choice choice_of(int dimension) {
  return {reinterpret_cast<void const*>(resident_sweep_kernel<T, kForm, One<ResidentSweepArguments>>),
          reinterpret_cast<void const*>(resident_sweep_kernel<T, kForm, Many<ResidentSweepArguments>>),
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
  if (has_overlaid_coordinates(rows, columns)) return std::max(scores + rest, coordinate_bytes);
  return scores + std::max(rest, coordinate_bytes);
}

/// `source`: where the kernel finds the arguments of `tiles` tiles.
void launch(void const* kernel, ResidentSweepPlan const& plan, int tiles, void* source, cudaStream_t stream) {
  unsigned count = static_cast<unsigned>(tiles);
  unsigned const blocks = std::min(count, static_cast<unsigned>(plan.most_blocks));
  void* parameters[] = {source, &count};
  MONGE_CUDA_TRY(cudaLaunchCooperativeKernel(kernel, dim3(blocks), dim3(kTileThreads), parameters,
                                             to_size(plan.shared_bytes), stream));
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
    auto const most_blocks = [&](void const* kernel) {
      return multiprocessors * occupancy_of(kernel, kTileThreads, plan.shared_bytes).resident_blocks;
    };
    plan.most_blocks = most_blocks(choice.many);
    if (plan.blocks() <= std::min(most_blocks(choice.one), plan.most_blocks)) return plan;
  }
  return std::nullopt;
}

void launch_resident_sweeps(ResidentSweepPlan const& plan, ResidentSweepArguments const& arguments,
                            cudaStream_t stream) {
  One<ResidentSweepArguments> source{arguments};
  launch(choice_of(plan.scalar, plan.form).one, plan, plan.blocks(), &source, stream);
}

void launch_resident_sweeps(ResidentSweepPlan const& plan, BlockOfMany const* table, int tiles, cudaStream_t stream) {
  Many<ResidentSweepArguments> source{table};
  launch(choice_of(plan.scalar, plan.form).many, plan, tiles, &source, stream);
}

}  // namespace monge::cuda
